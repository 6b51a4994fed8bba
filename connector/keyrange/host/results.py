"""What a chunk came to, in a file: Arrow batches whose rows stand in the order of their readers.

Each batch's metadata say where its readers' rows start, so that a reader maps the file and takes
its rows without touching the others'.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import ipc

_STARTS: Final = b"starts"
# How a stream ends that was written to its end.
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
# What a message's metadata may take, beside its buffers and where its readers' rows start.
_MESSAGE_BYTES: Final = 2 * 1024


class ResultWriter:
    """Writes one file, which is there already and as long as the room that is reserved for it.

    `enlarge` reserves more, and says whether there was room. Raises OSError where it cannot write:
    no room, or the directory is gone.
    """

    def __init__(self, path: Path, schema: pa.Schema, enlarge: Callable[[int], bool]) -> None:
        self._path = path
        self._reserved = path.stat().st_size
        self._enlarge = enlarge
        self._sink = pa.OSFile(str(path), "wb")
        try:
            # Opening cut it to nothing.
            os.truncate(path, self._reserved)
            self._claim(schema.serialize().size + len(_END))
            self._writer = ipc.new_stream(self._sink, schema)
        except BaseException:
            self._sink.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if raised is None:
                self._writer.close()
                size = self._sink.tell()
        finally:
            self._sink.close()
        if raised is None:
            os.truncate(self._path, size)

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
    with pa.memory_map(str(path), "rb") as source:
        # A stream that was cut between two messages would pass for a shorter one.
        if source.read_at(len(_END), max(source.size() - len(_END), 0)) != _END:
            raise pa.ArrowInvalid(f"{path.name} is not whole")
        stream = ipc.open_stream(source)
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            starts = np.frombuffer(metadata[_STARTS], np.int64)
            first, until = int(starts[reader]), int(starts[reader + 1])
            if first < until:
                yield batch.slice(first, until - first)
