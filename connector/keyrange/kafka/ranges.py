"""Read key ranges of a partition beside other readers on the same host, each byte once.

Whoever comes first fetches a chunk, decodes it and leaves the others' rows in a file (host/); his
own he keeps. While another is at work on the chunk that he needs, a reader makes the next one. What
cannot be kept, or is gone, or was left unfinished by a reader that died, is read again: sharing
saves work, the rows do not depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from keyrange.core.splits import Split
from keyrange.host.chain import Chain, End, Link, State
from keyrange.host.directory import ExecutorDirectory
from keyrange.host.results import ResultWriter, read_results
from keyrange.kafka.cursor import Cursor
from keyrange.kafka.fetch import SplitReader
from keyrange.wire.columns import ConstantColumns, without_constants
from keyrange.wire.decode import Chunk

_log = logging.getLogger(__name__)

# How many chunks a reader makes ahead of the one that it needs. Its own rows of them are held.
_AHEAD_MAX: Final = 2
# Own rows beyond so many bytes of a chunk, which may decompress to a multiple, go to the file too.
_HELD_BYTES_MAX: Final = 64 * 1024 * 1024
# Bytes of a result per byte of log, before the first one is written.
_FIRST_RATIO: Final = 1.5


@dataclass(frozen=True, slots=True)
class _Made:
    """A chunk that this reader made: his own rows, all of them with `whole`, else the rest is in
    the file. `chunk` is there where nothing could be kept."""

    rows: list[pa.RecordBatch]
    whole: bool = True
    chunk: Chunk | None = None


class RangeReader:
    """Reads a reader's part of one split; `splits` fetches, `directory` is where results are left.

    For one pass: make a new one for another.
    """

    def __init__(self, splits: SplitReader, directory: ExecutorDirectory, split: Split) -> None:
        assert split.placement is not None
        self._splits = splits
        self._directory = directory
        self._split = split
        self._reader = split.placement.reader
        self._readers = split.placement.readers
        columns = splits.settings.decode.columns
        self._decoder = splits.decoder(split, shared=without_constants(columns))
        self._constants = ConstantColumns(split.topic, split.partition, columns)
        self._made: dict[int, _Made] = {}
        self._ratio = _FIRST_RATIO

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows of this reader's ranges, in offset order; batches may be small."""
        split = self._split
        try:
            self._directory.sweep_idle(split.shared)
            directory = self._directory.path / split.shared
            chain = Chain(directory, self._readers, self._reader, split.from_offset)
        except OSError as failure:
            _log.info("%s is read without sharing: %s", split.topic_partition, failure)
            yield from self._splits.read([split])
            return
        try:
            yield from self._follow(chain)
            if chain.leave():
                self._directory.remove(split.shared)
        finally:
            chain.close()

    def _follow(self, chain: Chain) -> Iterator[pa.RecordBatch]:
        index, position = 0, self._split.from_offset
        while position < self._split.until_offset:
            link = chain.link(index)
            made = self._made.pop(index, None)
            if link is None:
                self._make_next(chain, index)
            elif made is not None:
                yield from self._own(chain, link, made)
            elif link.state is State.PENDING:
                if not self._make_ahead(chain, index):
                    self._wait(chain, index)
                continue
            elif link.state is State.NOWHERE:
                yield from self._read_alone(link)
            else:
                yield from self._read_stored(chain, link)
            if link is not None:
                index, position = index + 1, link.until_offset

    def _own(self, chain: Chain, link: Link, made: _Made) -> Iterator[pa.RecordBatch]:
        if made.chunk is not None:
            alone = self._splits.decoder(self._split)
            yield from alone.decode(made.chunk, link.from_offset, link.until_offset)
            return
        yield from map(self._constants.add, made.rows)
        if not made.whole:
            yield from self._read_stored(chain, link)

    def _make_next(self, chain: Chain, index: int) -> None:
        """Make the chunk that is needed now, unless another was quicker."""
        end = chain.claim_end(wait=True)
        assert end is not None
        if end.index != index:
            chain.release_end()
            return
        self._made[index] = self._make(chain, end)

    def _make_ahead(self, chain: Chain, index: int) -> bool:
        """Make a chunk behind the one that is needed, if the end of the chain is near and free."""
        end = chain.claim_end(wait=False)
        if end is None:
            return False
        if end.index - index > _AHEAD_MAX or end.from_offset >= self._split.until_offset:
            chain.release_end()
            return False
        made = self._make(chain, end)
        if made.chunk is None:
            self._made[end.index] = made
        return True

    def _wait(self, chain: Chain, index: int) -> None:
        """Wait for who makes a chunk; what a reader that died has left is nowhere."""
        chain.wait(index)
        if chain.try_lock(index):
            link = chain.link(index)
            dead = link is not None and link.state is State.PENDING
            chain.finish(index, State.NOWHERE) if dead else chain.unlock(index)

    def _make(self, chain: Chain, end: End) -> _Made:
        split = self._split
        cursor = Cursor(split, end.from_offset, self._decoder, bytes_read=end.bytes_before)
        chunk = self._splits.next_chunk(cursor)
        until_offset = min(cursor.position, split.until_offset)
        chain.extend(end, until_offset, len(chunk.data) if chunk is not None else 0)
        if chunk is None:
            # What is lost is found to be lost by every reader.
            chain.finish(end.index, State.NOWHERE)
            return _Made([])
        path, made = self._store(chunk, end, until_offset)
        if path is None:
            chain.finish(end.index, State.NOWHERE)
        else:
            memory = path.parent.parent == self._directory.path
            chain.finish(end.index, State.MEMORY if memory else State.SPILL)
            if made.whole:
                self._take(chain, end.index, path)
        return made

    def _store(self, chunk: Chunk, end: End, until_offset: int) -> tuple[Path | None, _Made]:
        """Decode a chunk and leave the others' rows in a file, if there is room for it."""
        split, own = self._split, self._reader
        rows: list[pa.RecordBatch] = []
        held_bytes, whole = 0, True
        nothing = _Made([], chunk=chunk)
        try:
            size = int(len(chunk.data) * self._ratio)
            path = self._directory.reserve(split.shared, str(end.index), size)
        except OSError:
            return None, nothing
        if path is None:
            return None, nothing
        try:
            with ResultWriter(path, self._decoder.schema) as writer:
                placed = self._decoder.decode_placed(chunk, end.from_offset, until_offset)
                for batch, starts in placed:
                    whole = held_bytes < _HELD_BYTES_MAX
                    held_bytes += batch.nbytes
                    if whole and starts[own] < starts[own + 1]:
                        rows.append(batch.slice(starts[own], starts[own + 1] - starts[own]))
                    writer.write(batch, starts, own if whole else None)
            self._ratio = max(path.stat().st_size / len(chunk.data), 0.1)
        except OSError as failure:
            _log.info("no room for what others read of %s: %s", split.topic_partition, failure)
            path.unlink(missing_ok=True)
            return None, nothing
        return path, _Made(rows, whole)

    def _read_stored(self, chain: Chain, link: Link) -> Iterator[pa.RecordBatch]:
        memory = link.state is State.MEMORY
        parent = self._directory.path if memory else self._directory.spill_path
        path = parent / self._split.shared / str(link.index)
        try:
            rows = list(read_results(path, self._reader))
        except (OSError, pa.ArrowInvalid) as failure:
            _log.info("%s is read again: %s", link, failure)
            yield from self._read_alone(link)
            return
        # What is mapped stays readable.
        self._take(chain, link.index, path)
        yield from map(self._constants.add, rows)

    def _take(self, chain: Chain, index: int, path: Path) -> None:
        if chain.take(index):
            path.unlink(missing_ok=True)

    def _read_alone(self, link: Link) -> Iterator[pa.RecordBatch]:
        part = replace(
            self._split,
            from_offset=link.from_offset,
            until_offset=link.until_offset,
            bytes_estimate=link.size,
        )
        yield from self._splits.read([part])
