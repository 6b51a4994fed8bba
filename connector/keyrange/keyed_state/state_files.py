"""Files of states below the state directory: Parquet, rows sorted by hash, a run in row groups of
its own."""

from __future__ import annotations

import io
import uuid
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.model.state_runs import MadeRun, StateRun
from keyrange.keyed_state.sorted_blocks import Numbers, within
from keyrange.keyed_state.variables import KEY_HASH, StateForm
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES, failing_as, is_unanswered, let_go

_BLOCKS_KEPT: Final = 4
# Of the footer: the file's own name.
_NAME: Final = b"keyrange.file"
_MAGIC: Final = b"PAR1"
# Behind the footer: its size and the magic bytes.
_END_BYTES: Final = 8
# Most footers are smaller.
_FOOTER_BYTES: Final = 64 << 10


class StateFileWriter:
    """Writes runs to one file, which is there only if there are rows. A file that no commit names
    is nobody's, and goes with what is not kept any more."""

    def __init__(self, directory: Directory, source_id: str, form: StateForm) -> None:
        self.name = f"{source_id}/{uuid.uuid4().hex}.parquet"
        self._directory = directory
        self._form = form
        self._stream: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._runs: list[tuple[TopicPartition, tuple[int, int], KeyRange, int]] = []
        self._groups = 0

    def add(
        self,
        partition: TopicPartition,
        span: KeyRange,
        from_seq: int,
        blocks: Iterable[pa.RecordBatch],
    ) -> bool:
        """Write a run; whether it has rows. Raises STATE_UNWRITABLE."""
        first = self._groups
        with self._writing():
            for block in blocks:
                self._open().write_batch(block, row_group_size=block.num_rows)
                self._groups += 1
        if self._groups == first:
            return False
        self._runs.append((partition, (first, self._groups), span, from_seq))
        return True

    def finish(self) -> list[tuple[TopicPartition, MadeRun]]:
        """The runs that have rows, in the order in which they were added. Raises
        STATE_UNWRITABLE."""
        if self._writer is None or self._stream is None:
            return []
        with self._writing():
            self._writer.close()
            self._stream.close()
        [metadata] = self._told
        footer = io.BytesIO()
        metadata.write_metadata_file(footer)
        crc = zlib.crc32(_footer_of(footer.getvalue()))
        return [
            (at, MadeRun(self.name, groups, span, from_seq, *_extent(metadata, groups), crc))
            for at, groups, span, from_seq in self._runs
        ]

    def abandon(self) -> None:
        let_go(self._writer, self._stream)

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._told: list[pq.FileMetaData] = []
            self._stream = self._directory.create(self.name)
            metadata = self._form.schema.metadata or {}
            self._writer = pq.ParquetWriter(
                self._stream,
                self._form.schema.with_metadata(metadata | {_NAME: self.name.encode()}),
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                # Hashes in order are close to one another.
                column_encoding={KEY_HASH: "DELTA_BINARY_PACKED"},
                write_page_checksum=True,
                metadata_collector=self._told,
            )
        return self._writer

    def _writing(self) -> AbstractContextManager[None]:
        path = self._directory.uri(self.name)
        return failing_as("STATE_UNWRITABLE", "state cannot be kept", path=path)


def _extent(metadata: pq.FileMetaData, groups: tuple[int, int]) -> tuple[int, int]:
    """The rows of some row groups, and their bytes in the file."""
    told = [metadata.row_group(number) for number in range(*groups)]
    size = sum(
        group.column(at).total_compressed_size for group in told for at in range(group.num_columns)
    )
    return sum(group.num_rows for group in told), size


def _footer_of(data: bytes) -> bytes:
    """The footer that a Parquet file ends with (parquet.apache.org/docs/file-format). Raises
    ValueError where there is none, or not all of it."""
    size = int.from_bytes(data[-_END_BYTES:-4], "little")
    if len(data) < size + _END_BYTES or not data.endswith(_MAGIC):
        raise ValueError("it does not end as a file of Parquet does")
    return data[-size - _END_BYTES : -_END_BYTES]


def _read_footer(source: pa.NativeFile) -> bytes:
    """Raises ValueError where there is none."""
    size = source.size()
    end = source.read_at(min(size, _FOOTER_BYTES), max(size - _FOOTER_BYTES, 0))
    told = int.from_bytes(end[-_END_BYTES:-4], "little") + _END_BYTES
    if len(end) < told <= size:
        end = source.read_at(told, size - told)
    return _footer_of(end)


class FileBlocks:
    """A run in its file: a block is what a row group has of its keys, and read when it is asked
    for."""

    def __init__(self, directory: Directory, run: StateRun, form: StateForm | None) -> None:
        """`form`: what rows are to be read for; None for any. Raises STATE_GONE, STATE_DAMAGED,
        STATE_UNREADABLE, STATE_SCHEMA_CHANGED."""
        self._uri = directory.uri(run.file)
        self._open = partial(directory.open, run.file)
        self._span = run.span
        self._kept: dict[int, pa.RecordBatch] = {}
        try:
            source = self._open()
            footer = _read_footer(source)
            if zlib.crc32(footer) != run.footer_crc:
                raise ValueError("its end is not the one that was written")
            end = len(footer).to_bytes(4, "little") + _MAGIC
            self._metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer + end))
            file = self._parquet(source)
        except FAILURES as failure:
            raise self._unreadable(failure) from None
        # There may be thousands of runs, and a process has some hundreds of files open at a time.
        self._file = None if directory.is_local else file
        self.schema: pa.Schema = file.schema_arrow
        if form is not None:
            form.check(self.schema, self._uri)
        self._groups, lowest, highest = [], [], []
        for number in range(*run.groups):
            low, high = self._bounds(number)
            if low < run.span.until_hash and high >= run.span.from_hash:
                self._groups.append(number)
                lowest.append(max(low, run.span.from_hash))
                highest.append(min(high, run.span.until_hash - 1))
        self.bounds: tuple[Numbers, Numbers] = (
            np.array(lowest, np.int64),
            np.array(highest, np.int64),
        )
        # Compressed bytes of the blocks that were read.
        self.read_bytes = 0

    def _bounds(self, number: int) -> tuple[int, int]:
        if number >= self._metadata.num_row_groups:
            raise self._damaged("it has fewer row groups than its commit says")
        told = self._metadata.row_group(number).column(0).statistics
        if told is None or not told.has_min_max:
            raise self._damaged("a row group does not say which hashes it has")
        return told.min, told.max

    def block(self, at: int) -> pa.RecordBatch:
        if at not in self._kept:
            number = self._groups[at]
            while len(self._kept) >= _BLOCKS_KEPT:
                self._kept.pop(next(iter(self._kept)))
            group = self._metadata.row_group(number)
            try:
                file = self._file or self._parquet(self._open())
                table = file.read_row_group(number, use_threads=False)
            except FAILURES as failure:
                raise self._unreadable(failure) from None
            self.read_bytes += sum(
                group.column(each).total_compressed_size for each in range(group.num_columns)
            )
            [batch] = table.combine_chunks().to_batches()
            # Of other keys a newer run says what is true.
            self._kept[at] = within(batch, self._span)
        return self._kept[at]

    def _parquet(self, source: pa.NativeFile) -> pq.ParquetFile:
        return pq.ParquetFile(
            source, metadata=self._metadata, page_checksum_verification=True, pre_buffer=True
        )

    def _unreadable(self, failure: BaseException) -> KeyrangeError:
        if isinstance(failure, FileNotFoundError):
            text = "a file of states that a commit names is gone"
            return error("STATE_GONE", text, path=self._uri)
        if not is_unanswered(failure):
            return self._damaged(failure)
        text = f"the store did not give a file of states: {failure}"
        return error("STATE_UNREADABLE", text, path=self._uri)

    def _damaged(self, why: object) -> KeyrangeError:
        return error("STATE_DAMAGED", f"a file of states cannot be read: {why}", path=self._uri)
