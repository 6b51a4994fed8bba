"""One fetched chunk of a topic-partition to Arrow batches, in offset order, within a memory bound.

The way: scan the batches (one compiled pass, CRC32C checked), then per run of batches that lie in
one region (the chunk itself for uncompressed ones, the scratch region for decompressed ones) index
the records and gather the columns. No Python object is made per record.

Memory: the chunk (the caller's), one scratch region of about `batch_bytes` plus one decompressed
batch, the index of `batch_rows` records, and one Arrow batch of about `batch_bytes` plus one
record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.model.columns import USUAL
from keyrange.model.offset_splits import Delivery
from keyrange.model.reader_ranges import Placement
from keyrange.wire import record_batches, record_kernels
from keyrange.wire.columns import ColumnWriter
from keyrange.wire.compression import Bytes, Scratch
from keyrange.wire.fetch_response import AbortedTransaction
from keyrange.wire.key_range_selection import SelectedRoom, Selection, Selector

# What decompression needs to know of a batch.
_HEAD = ["attributes", "records_at", "records_end", "base_offset", "count"]


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """Sizes of what is handed over. Rows and bytes are both limits of one Arrow batch.

    Bytes are those of the keys, values and headers that are among `columns`: what is left out is
    not copied. `selection` is what is asked of keys. `record_batch_bytes_max` is the most that one
    compressed record batch may become.
    """

    columns: tuple[str, ...] = USUAL
    batch_rows: int = 32_768
    batch_bytes: int = 4 * 1024 * 1024
    record_batch_bytes_max: int = 128 * 1024 * 1024
    selection: Selection = field(default_factory=Selection)


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one fetch brought for a topic-partition, in the reader's reused buffer.

    `batches` is the scan of `data`; `next_offset` is where the next fetch has to start.
    """

    data: Bytes
    batches: np.ndarray[Any, Any]
    next_offset: int

    def below(self, end: int) -> Chunk | None:
        """The batches before the first that reaches beyond an offset; None where there are none.

        A broker notes the high watermark before it reads, so that while it is written to an answer
        may hold a little more. And no CRC covers the base offset: one that does not exist yet would
        be taken for the end of a compacted gap, and what lies before it skipped.
        """
        if self.next_offset <= end:
            return self
        # The scan has checked that offsets rise.
        count = int(np.searchsorted(self.batches["last_offset"], end))
        if not count:
            return None
        last = self.batches[count - 1]
        data = self.data[: int(last["records_end"])]
        return Chunk(data, self.batches[:count], int(last["last_offset"]) + 1)


def scan_chunk(
    data: Bytes,
    topic: str,
    partition: int,
    from_offset: int,
    aborted: Sequence[AbortedTransaction] = (),
) -> Chunk:
    """Scan what was fetched at `from_offset`, before anything of it is decoded.

    Split from decoding so that the next request can leave as soon as its offset is known.
    """
    table = record_batches.scan(data, topic, partition, from_offset)
    record_batches.leave_out_aborted(table, data, aborted, topic, partition)
    next_offset = int(table[-1]["last_offset"]) + 1 if len(table) else from_offset
    return Chunk(data, table, next_offset)


class Workspace:
    """The buffers of decoding, for one chunk at a time: kept from chunk to chunk."""

    def __init__(self, settings: DecodeSettings) -> None:
        self.scratch = Scratch(settings.record_batch_bytes_max)
        self.records = np.empty(settings.batch_rows, record_kernels.RECORD)
        self.selected = SelectedRoom(settings.batch_rows)


class Decoder:
    """Decodes chunks of one topic-partition, in a workspace that others may use in between."""

    def __init__(
        self,
        topic: str,
        partition: int,
        settings: DecodeSettings,
        workspace: Workspace | None = None,
        placement: Placement | None = None,
        delivery: Delivery | None = None,
    ) -> None:
        workspace = workspace or Workspace(settings)
        self._writer = ColumnWriter(topic, partition, settings.columns)
        self.schema = self._writer.schema
        self._counted = _counted(settings.columns)
        self._settings = settings
        self._topic = topic
        self._partition = partition
        self._scratch = workspace.scratch
        self._records = workspace.records
        self._selector: Selector | None = None
        selection = settings.selection
        hashes = selection.keys is not None or "keyHash" in settings.columns
        if placement is not None or delivery is not None or hashes:
            self._selector = Selector(selection, placement, workspace.selected, delivery)

    def decode(self, chunk: Chunk, from_offset: int, until_offset: int) -> Iterator[pa.RecordBatch]:
        """The records of the chunk in [from_offset, until_offset), as batches of at least one row.

        With a placement: those of all its readers, each reader's together.
        """
        for batch, _ in self.decode_placed(chunk, from_offset, until_offset):
            yield batch

    def decode_placed(
        self, chunk: Chunk, from_offset: int, until_offset: int
    ) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """As `decode`; with each batch where its readers' rows start, and where the last ends.

        Raises CorruptError with the offset where a batch or record is damaged; no row of that batch
        has been handed over then.
        """
        table = chunk.batches
        wanted = table["keep"].astype(bool)
        wanted &= (table["last_offset"] >= from_offset) & (table["base_offset"] < until_offset)
        if self._selector is not None:
            wanted &= self._selector.may_keep(table["base_offset"], table["last_offset"])
        table = table[wanted]
        compressed = (table["attributes"] & 7) != 0
        # As Python's numbers at once: numpy takes microseconds for those of one batch.
        heads = table[_HEAD].tolist() if compressed.any() else []
        start = 0
        while start < len(table):
            if compressed[start]:
                end = self._decompress(chunk.data, table, heads, start)
                region = self._scratch.region
            else:
                rest = np.flatnonzero(compressed[start:])
                end = start + int(rest[0]) if len(rest) else len(table)
                region = chunk.data
            yield from self._columns(region, table[start:end], from_offset, until_offset)
            start = end

    def _decompress(self, data: Bytes, table: Any, heads: list[tuple[int, ...]], start: int) -> int:
        """Fill the scratch region with batches from row `start` on; returns the row behind them."""
        scratch = self._scratch
        scratch.clear()
        ends = []
        for attributes, records_at, records_end, offset, records in islice(heads, start, None):
            codec = attributes & 7
            if codec == 0 or scratch.filled >= self._settings.batch_bytes:
                break
            count = scratch.append(codec, data[records_at:records_end], self._where(offset))
            if records > count // record_kernels.RECORD_BYTES_MIN:
                raise self._fault(record_kernels.BAD_RECORD, offset)
            ends.append(scratch.filled)
        end = start + len(ends)
        table["records_at"][start:end] = [0, *ends[:-1]]
        table["records_end"][start:end] = ends
        return end

    def _columns(
        self, region: Bytes, table: Any, from_offset: int, until_offset: int
    ) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        cursor = record_batches.new_cursor()
        state, records = cursor[0], self._records
        size, counted = self._settings.batch_bytes, self._counted
        while state["batch"] < len(table):
            for name in ("rows", "key_bytes", "value_bytes", "header_count", "header_bytes"):
                state[name] = 0
            status = record_kernels.index_records(
                region, table, len(table), cursor, records, from_offset, until_offset, size, counted
            )
            if status != record_kernels.OK:
                raise self._fault(status, int(state["failed_offset"]))
            if state["rows"]:
                yield from self._write(region, cursor)

    def _write(self, region: Bytes, cursor: Any) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
        """What is wanted of the records that were indexed: one batch, or none."""
        state, records, hashes, starts = cursor[0], self._records, None, None
        if self._selector is not None:
            records, hashes, starts = self._selector.select(region, records, cursor)
        rows = int(state["rows"])
        if not rows:
            return
        batch = self._writer.write(region, records, state, hashes)
        if batch is None:
            raise self._fault(record_kernels.BAD_RECORD, int(state["failed_offset"]))
        yield batch, (0, rows) if starts is None else starts.tolist()

    def _where(self, offset: int) -> dict[str, Any]:
        return {"topic": self._topic, "partition": self._partition, "offset": offset}

    def _fault(self, status: int, offset: int) -> KeyrangeError:
        if status == record_kernels.BAD_TIMESTAMP:
            return error(
                "KAFKA_MALFORMED_RECORD_TIMESTAMP",
                "the record's timestamp does not fit into microseconds",
                **self._where(offset),
            )
        return error(
            "CORRUPT_BATCH",
            "a record contradicts its batch or its own length",
            **self._where(offset),
        )


def _counted(columns: Sequence[str]) -> int:
    """What an Arrow batch of these columns holds, for the index pass."""
    held = {
        "key": record_kernels.COUNT_KEYS,
        "value": record_kernels.COUNT_VALUES,
        "headers": record_kernels.COUNT_HEADERS,
    }
    return sum(bit for name, bit in held.items() if name in columns)
