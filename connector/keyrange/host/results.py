"""What a chunk came to, in a file: Arrow batches whose rows stand in the order of their readers.

Each batch's metadata say where its readers' rows start, so that a reader maps the file and takes
its rows without touching the others'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
from pyarrow import ipc

_STARTS: Final = b"starts"


class ResultWriter:
    """Writes one file. Raises OSError where it cannot: no room, or the directory is gone."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = ipc.new_stream(self._sink, schema)

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
        inside = np.clip(np.array(starts, np.int64), at, until) - at
        metadata = pa.KeyValueMetadata({_STARTS: inside.tobytes()})
        self._writer.write_batch(batch.slice(at, until - at), custom_metadata=metadata)


def read_results(path: Path, reader: int) -> Iterator[pa.RecordBatch]:
    """A reader's rows of a file, as slices of the mapped file.

    Raises OSError where the file is gone, pa.ArrowInvalid where it is not whole.
    """
    with pa.memory_map(str(path), "rb") as source, ipc.open_stream(source) as stream:
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            starts = np.frombuffer(metadata[_STARTS], np.int64)
            first, until = int(starts[reader]), int(starts[reader + 1])
            if first < until:
                yield batch.slice(first, until - first)
