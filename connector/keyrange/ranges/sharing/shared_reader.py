"""Read key ranges of a partition beside other readers on the same host, each byte once.

The reader that comes first fetches a chunk and decodes it. It keeps its own rows and leaves those
of the others in a file (`chunk_results.py`). While another one works on the chunk that a reader
needs, that reader makes the next one. A reader reads again what cannot be kept, is gone, or was
left unfinished by a reader that died: sharing saves work, the rows do not depend on it.

To wait for another reader is no progress: it counts towards the reader's own deadline, so that the
deadlines of readers that wait for the same broker do not add up. Who was not given way until then
waits for a process that was stopped, and goes on by himself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from keyrange.kafka.fetching.cursor import Cursor
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.retry_deadline import Deadline
from keyrange.model.offset_splits import Split
from keyrange.ranges.sharing.chunk_chain import Chain, ChainEnd, ChunkState, Link
from keyrange.ranges.sharing.chunk_results import (
    RUNS,
    ResultWriter,
    mapped_results,
    read_results,
    runs_of_readers,
)
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory
from keyrange.wire.chunk_decoder import Chunk
from keyrange.wire.columns import ConstantColumns, copied, without_constants

_log = logging.getLogger(__name__)

# How many chunks a reader makes ahead of the one that it needs. Its own rows of them are held.
_AHEAD_MAX: Final = 2
# Own rows beyond so many bytes of a chunk, which may decompress to a multiple, are mapped.
_HELD_BYTES_MAX: Final = 64 * 1024 * 1024
# Of more readers than these, one's own rows are copied out of the batch that they came in.
_SLICED_MAX: Final = 2
# With more results than these mapped, because somebody keeps the rows, they are copied.
_MAPPED_MAX: Final = 64
# Bytes of a result per byte of log, before the first one is written, and at least.
_FIRST_RATIO: Final = 1.5
_RATIO_MIN: Final = 0.1
# Where a chunk is kept, in the order in which it is tried.
_KEPT: Final = (ChunkState.MEMORY, ChunkState.SPILL)
# Who comes to the end of a chain with less of his time left than this makes nothing for others.
_LATE_PART: Final = 1 / 4


class RangeReader:
    """Reads a reader's part of one split; `splits` fetches, `directory` is where results are left.

    Without `keep_values` a result only says in which record batches a reader's records are, and
    they are fetched again. For one pass: make a new one for another. Rows are handed over while no
    lock is held but the one that says that a reader is here: whoever takes them may be slow, or
    never come back.
    """

    def __init__(
        self,
        splits: SplitReader,
        directory: ExecutorDirectory,
        split: Split,
        keep_values: bool = True,
    ) -> None:
        assert split.placement is not None
        self._splits = splits
        self._directory = directory
        self._split = split
        self._reader = split.placement.reader
        self._readers = split.placement.readers
        columns = splits.settings.decode.columns
        self._keep_values = keep_values
        shared = without_constants(columns) if keep_values else ("offset",)
        self._decoder = splits.decoder(split, shared)
        self._schema = self._decoder.schema if keep_values else RUNS
        self._constants = ConstantColumns(split.topic, split.partition, columns)
        # Of chunks that this reader made and has not come to: its own rows.
        self._made: dict[int, Iterator[pa.RecordBatch]] = {}
        self._ratio = _FIRST_RATIO
        self._had_room = True
        # What is left of the time for the chunk that this reader goes on with by itself; None: all.
        self._left: Deadline | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of this reader's ranges, in offset order; batches may be small."""
        split = self._split
        position = split.from_offset
        chain = self._join()
        if chain is not None:
            try:
                index = 0
                while position < split.until_offset:
                    deadline = self._splits.new_deadline()
                    step = self._step(chain, index, deadline)
                    if step is None:
                        break
                    link, rows = step
                    yield from rows
                    index, position = index + 1, link.until_offset
            finally:
                self._leave(chain)
        if position < split.until_offset:
            yield from self._splits.read([replace(split, from_offset=position)], self._left)

    def _join(self) -> Chain | None:
        split = self._split
        try:
            self._directory.sweep_idle(split.shared)
            directory = self._directory.path / split.shared
            return Chain(directory, self._readers, self._reader, split.from_offset)
        except OSError as failure:
            self._log_alone(failure)
            return None

    def _leave(self, chain: Chain) -> None:
        """Others wait for nothing of this reader from here on, even where it did not come to its
        end."""
        self._made.clear()
        try:
            if chain.leave():
                self._directory.remove(self._split.shared)
        except OSError as failure:
            _log.info("%s stays until it is swept: %s", self._split.shared, failure)
        finally:
            chain.close()

    def _step(
        self, chain: Chain, index: int, deadline: Deadline
    ) -> tuple[Link, Iterator[pa.RecordBatch]] | None:
        """A chunk and its rows; None where what is shared cannot be used any more."""
        try:
            while True:
                link = chain.link(index)
                made = self._made.pop(index, None)
                if link is None:
                    if not self._make_next(chain, index, deadline):
                        return None
                elif made is not None:
                    return link, made
                elif link.state is not ChunkState.PENDING:
                    return link, self._others(chain, link)
                elif not self._make_ahead(chain, index) and not self._wait(chain, index, deadline):
                    # It is given up as if it was taken: nobody has to keep it for this reader.
                    chain.take(index)
                    return link, self._read_alone(link)
        except OSError as failure:
            self._log_alone(failure)
            return None

    def _log_alone(self, failure: OSError) -> None:
        _log.info("%s is read without sharing: %s", self._split.topic_partition, failure)

    def _others(self, chain: Chain, link: Link) -> Iterator[pa.RecordBatch]:
        """The rows of a chunk that another made, or this reader in an attempt that failed."""
        if link.state is ChunkState.NOWHERE or chain.has_made(link.index):
            return self._read_alone(link)
        path = self._path(chain, link.index, link.state)
        try:
            rows = list(read_results(path, self._reader))
        except (OSError, pa.ArrowInvalid) as failure:
            _log.info("%s is read again: %s", link, failure)
            return self._read_alone(link)
        # What is mapped stays readable.
        chain.take(link.index)
        self._drop_if_taken(chain, link.index, path)
        if not self._keep_values:
            return self._fetch_again(rows)
        if mapped_results() > _MAPPED_MAX:
            return (self._constants.add(copied([each])) for each in rows)
        return map(self._constants.add, rows)

    def _make_next(self, chain: Chain, index: int, deadline: Deadline) -> bool:
        """Make the chunk that is needed now, unless another was quicker; False where this reader
        has to go on by itself."""
        patience_ms = deadline.left_ms
        # A little more: where no broker answers, others give up at the same moment.
        end = chain.claim_end(max(patience_ms, 0) * (1 + _LATE_PART) / 1000)
        if end is None:
            _log.warning(
                "another reader of %s does not move: it is read without sharing",
                self._split.topic_partition,
            )
            return False
        if end.index != index:
            chain.release_end()
            return True
        if deadline.left_ms < patience_ms * _LATE_PART:
            # Whoever held it had no answer. The others are late too, and wait for this reader.
            chain.release_end()
            self._left = deadline
            return False
        self._made[index], _ = self._make(chain, end, deadline)
        return True

    def _make_ahead(self, chain: Chain, index: int) -> bool:
        """Make a chunk behind the one that is needed, if the end of the chain is near and free, and
        what is made can be kept."""
        pays = self._had_room and self._keep_values
        end = chain.claim_end() if pays else None
        if end is None:
            return False
        if end.index - index > _AHEAD_MAX or end.from_offset >= self._split.until_offset:
            chain.release_end()
            return False
        rows, is_held = self._make(chain, end)
        if is_held:
            self._made[end.index] = rows
        return True

    def _wait(self, chain: Chain, index: int, deadline: Deadline) -> bool:
        """Wait for who makes a chunk; what a reader that died has left is nowhere. False where it
        is not made in time."""
        if not chain.wait(index, max(deadline.left_ms, 0) / 1000):
            return False
        if not _is_pending(chain, index) or not chain.try_lock(index):
            return True
        if not _is_pending(chain, index):
            chain.unlock(index)
            return True
        for state in _KEPT:
            self._path(chain, index, state).unlink(missing_ok=True)
        chain.finish(index, ChunkState.NOWHERE)
        return True

    def _make(
        self, chain: Chain, end: ChainEnd, deadline: Deadline | None = None
    ) -> tuple[Iterator[pa.RecordBatch], bool]:
        """Make a chunk; returns this reader's rows of it, and whether they are held: where nothing
        could be kept they are decoded when they are taken, before another chunk is fetched."""
        split = self._split
        cursor = Cursor(split, end.from_offset, self._decoder, bytes_read=end.bytes_before)
        found = self._splits.next_chunk(cursor, deadline)
        # The first record batch may hold records that count as lost.
        chunk, from_offset = found or (None, end.from_offset)
        until_offset = min(cursor.position, split.until_offset)
        chain.extend(end, until_offset, len(chunk.data) if chunk is not None else 0)
        if chunk is None:
            # What is lost is found to be lost by every reader.
            chain.finish(end.index, ChunkState.NOWHERE)
            return iter(()), True
        alone = self._decode_alone(chunk, from_offset, until_offset)
        for state in _KEPT:
            path = self._path(chain, end.index, state)
            rows = self._store(path, chunk, from_offset, until_offset)
            if rows is not None:
                self._had_room = True
                chain.finish(end.index, state)
                self._drop_if_taken(chain, end.index, path)
                return (
                    (map(self._constants.add, rows), True) if self._keep_values else (alone, False)
                )
        self._had_room = False
        chain.finish(end.index, ChunkState.NOWHERE)
        return alone, False

    def _decode_alone(
        self, chunk: Chunk, from_offset: int, until_offset: int
    ) -> Iterator[pa.RecordBatch]:
        yield from self._splits.decoder(self._split).decode(chunk, from_offset, until_offset)

    def _store(
        self, path: Path, chunk: Chunk, from_offset: int, until_offset: int
    ) -> list[pa.RecordBatch] | None:
        """Decode a chunk and leave the others' rows in a file; returns this reader's, or None where
        there is no room."""
        enlarge = partial(self._directory.reserve, path)
        try:
            # Never over a file that somebody may have mapped.
            path.unlink(missing_ok=True)
            if not enlarge(int(len(chunk.data) * self._ratio)):
                return None
            with ResultWriter(path, self._schema, enlarge) as writer:
                write = self._write if self._keep_values else self._write_runs
                rows, whole = write(writer, chunk, from_offset, until_offset)
            self._ratio = max(path.stat().st_size / len(chunk.data), _RATIO_MIN)
            return rows if whole else [*rows, *read_results(path, self._reader)]
        except TimeoutError:
            # Of another process that was stopped: it would be waited for again and again.
            path.unlink(missing_ok=True)
            raise
        except (OSError, pa.ArrowInvalid) as failure:
            _log.info("%s has no room for what others read: %s", path.parent, failure)
            path.unlink(missing_ok=True)
            return None
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def _write(
        self, writer: ResultWriter, chunk: Chunk, from_offset: int, until_offset: int
    ) -> tuple[list[pa.RecordBatch], bool]:
        """Write a chunk; returns this reader's rows as far as they are held, and whether that is
        all of them."""
        own, rows = self._reader, []
        held_bytes, whole = 0, True
        for batch, starts in self._decoder.decode_placed(chunk, from_offset, until_offset):
            whole = held_bytes < _HELD_BYTES_MAX
            held_bytes += batch.nbytes
            if whole and starts[own] < starts[own + 1]:
                rows.append(batch.slice(starts[own], starts[own + 1] - starts[own]))
            writer.write(batch, starts, own if whole else None)
        if rows and self._readers > _SLICED_MAX:
            # A slice holds the rows of all readers.
            rows = [copied(rows)]
        return rows, whole

    def _write_runs(
        self, writer: ResultWriter, chunk: Chunk, from_offset: int, until_offset: int
    ) -> tuple[list[pa.RecordBatch], bool]:
        """As `_write`: where records are. This reader has the chunk at hand and needs none."""
        placed = (
            (batch.column(0).to_numpy(), starts)
            for batch, starts in self._decoder.decode_placed(chunk, from_offset, until_offset)
        )
        runs, starts = runs_of_readers(chunk, from_offset, until_offset, placed, self._readers)
        writer.write(runs, starts, self._reader)
        return [], True

    def _fetch_again(self, runs: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [
            self._part(run["from_offset"], run["until_offset"], run["bytes"])
            for batch in runs
            for run in batch.to_pylist()
        ]
        return self._splits.read(parts)

    def _path(self, chain: Chain, index: int, state: ChunkState) -> Path:
        name = chain.result_name(index)
        return self._directory.result(self._split.shared, name, state is ChunkState.SPILL)

    def _drop_if_taken(self, chain: Chain, index: int, path: Path) -> None:
        if not chain.is_needed(index):
            self._directory.drop(path)

    def _read_alone(self, link: Link) -> Iterator[pa.RecordBatch]:
        return self._splits.read([self._part(link.from_offset, link.until_offset, link.size)])

    def _part(self, from_offset: int, until_offset: int, size: int) -> Split:
        return replace(
            self._split, from_offset=from_offset, until_offset=until_offset, bytes_estimate=size
        )


def _is_pending(chain: Chain, index: int) -> bool:
    link = chain.link(index)
    return link is not None and link.state is ChunkState.PENDING
