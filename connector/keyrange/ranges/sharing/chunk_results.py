"""What a chunk came to, in a file: Arrow batches whose rows stand in the order of their readers.
For values so large that they are better fetched again than kept, the rows say where in the log a
reader's records are: a broker hands out whole record batches, so what it has to fetch are runs of
them.

Each batch's metadata say where its readers' rows start, so that a reader maps the file and takes
its rows without touching the others'. While anything of a mapping is held, so is a shared lock on
the file: nobody writes to it.
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from keyrange.ranges.sharing.locks import lock_soon
from keyrange.wire.chunk_decoder import Chunk
from keyrange.wire.key_range_selection import Places

_STARTS: Final = b"starts"
# How a stream ends that was written to its end.
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
# What a message's metadata may take, beside its buffers and where its readers' rows start.
_MESSAGE_BYTES: Final = 2 * 1024

RUNS: Final = pa.schema(
    [("from_offset", pa.int64()), ("until_offset", pa.int64()), ("bytes", pa.int64())]
)

_mapped: Final[WeakSet[mmap.mmap]] = WeakSet()


class _Sink(io.FileIO):
    """A file that is there already and is not cut; what is written is written whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "r+")

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        count = len(left)
        while left:
            left = left[os.write(self.fileno(), left) :]
        return count


class ResultWriter:
    """Writes one file, which is there already and as long as the room that is reserved for it.

    What the file holds is written over, and it is no whole result until it was cut to its end.
    `enlarge` reserves more, and says whether there was room. Raises OSError where it cannot write:
    no room, or the directory is gone.
    """

    def __init__(self, path: Path, schema: pa.Schema, enlarge: Callable[[int], bool]) -> None:
        self._reserved = path.stat().st_size
        self._enlarge = enlarge
        self._file = _Sink(path)
        self._sink = pa.PythonFile(self._file, "w")
        try:
            # The end of what was in it before. A file that only grew ends in zeros.
            os.pwrite(self._file.fileno(), bytes(len(_END)), max(self._reserved - len(_END), 0))
            self._claim(schema.serialize().size + len(_END))
            self._writer = ipc.new_stream(self._sink, schema)
        except BaseException:
            self._sink.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        try:
            if raised is None:
                self._writer.close()
                self._file.truncate(self._sink.tell())
        finally:
            self._sink.close()

    def write(self, batch: pa.RecordBatch, starts: Sequence[int], without: int | None) -> None:
        """Add a batch: the rows of reader n are [starts[n], starts[n + 1]), and those of reader
        `without` are left out."""
        if without is None:
            self._write_rows(batch, starts, 0, batch.num_rows)
        else:
            self._write_rows(batch, starts, 0, starts[without])
            self._write_rows(batch, starts, starts[without + 1], batch.num_rows)

    def _write_rows(
        self, batch: pa.RecordBatch, starts: Sequence[int], at: int, until: int
    ) -> None:
        if at == until:
            return
        rows = batch.slice(at, until - at)
        inside = np.clip(np.array(starts, np.int64), at, until) - at
        self._claim(self._sink.tell() + rows.nbytes + inside.nbytes + _MESSAGE_BYTES)
        metadata = pa.KeyValueMetadata({_STARTS: inside.tobytes()})
        self._writer.write_batch(rows, custom_metadata=metadata)

    def _claim(self, size: int) -> None:
        """Reserve as much, if it is not reserved yet."""
        if size > self._reserved:
            self._reserved = max(size, 2 * self._reserved)
            if not self._enlarge(self._reserved):
                raise OSError(errno.ENOSPC, "the budget has no room")


def read_results(path: Path, reader: int) -> Iterator[pa.RecordBatch]:
    """A reader's rows of a file, as slices of the mapped file.

    Raises OSError where the file is gone, pa.ArrowInvalid where it is not whole.
    """
    stream = ipc.open_stream(pa.py_buffer(_map(path)))
    while True:
        try:
            batch, metadata = stream.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        starts = np.frombuffer(metadata[_STARTS], np.int64)
        first, until = int(starts[reader]), int(starts[reader + 1])
        if first < until:
            yield batch.slice(first, until - first)


def mapped_results() -> int:
    """How many files this process has mapped. Each takes a descriptor as long as it is held."""
    return len(_mapped)


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        # The mapping has a duplicate of the descriptor, and with it the lock.
        lock_soon(file.fileno(), fcntl.LOCK_SH, path.name)
        status = os.fstat(file.fileno())
        if not os.path.samestat(status, path.stat()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        # A stream that was cut between two messages would pass for a shorter one.
        end_at = max(status.st_size - len(_END), 0)
        if os.pread(file.fileno(), len(_END), end_at) != _END:
            raise pa.ArrowInvalid(f"{path.name} is not whole")
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    _mapped.add(mapped)
    return mapped


def runs_of_readers(
    chunk: Chunk,
    from_offset: int,
    until_offset: int,
    placed: Iterable[tuple[Places, Sequence[int]]],
    readers: int,
) -> tuple[pa.RecordBatch, list[int]]:
    """The runs of record batches that hold each reader's records of the chunk in [from_offset,
    until_offset), reader by reader, and where each reader's runs start.

    `placed` are offsets of records in the order of their readers, with where those start.
    """
    needed: list[set[int]] = [set() for _ in range(readers)]
    for offsets, starts in placed:
        rows = np.searchsorted(chunk.batches["last_offset"], offsets)
        for reader in range(readers):
            needed[reader].update(np.unique(rows[starts[reader] : starts[reader + 1]]).tolist())
    runs: list[tuple[int, int, int]] = []
    run_starts = [0]
    for each in needed:
        runs += _runs(chunk, sorted(each), from_offset, until_offset)
        run_starts.append(len(runs))
    columns = np.array(runs, np.int64).reshape(-1, len(RUNS)).T
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=RUNS), run_starts


def _runs(
    chunk: Chunk, rows: Sequence[int], from_offset: int, until_offset: int
) -> Iterator[tuple[int, int, int]]:
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if rows else ():
        first, last = chunk.batches[run[0]], chunk.batches[run[-1]]
        yield (
            max(int(first["base_offset"]), from_offset),
            min(int(last["last_offset"]) + 1, until_offset),
            int(last["records_end"] - first["at"]),
        )
