"""Record batches for a topic from Arrow columns: the way of `keyrange.wire.chunk_decoder` back.

Measure the records, choose a partition for each, sort the rows by partition, write the batches of
each partition, compress them. No Python object is made per record.

Memory: one region of about the bytes of the columns, which the batches are parts of.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.wire import produced_kernels as kernels
from keyrange.wire import produced_partitions
from keyrange.wire.compressing import CODECS
from keyrange.wire.produced_columns import Columns
from keyrange.wire.record_kernels import crc32c
from keyrange.wire.topic_limits import BatchSettings

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
Faults = np.ndarray[Any, np.dtype[np.int8]]

_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_FROM: Final = 21
_ATTRIBUTES: Final = struct.Struct(">h")
_ATTRIBUTES_AT: Final = 21
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43
_TRANSACTIONAL: Final = 0x10


@dataclass(frozen=True, slots=True, eq=False)
class ProducedBatch:
    """A record batch of a partition, to be sealed before it is sent.

    `rows` are those of the columns that its records are from, in their order.
    """

    partition: int
    rows: Numbers
    data: Bytes


def seal(data: Bytes, producer_id: int, epoch: int, sequence: int) -> None:
    """Write into a batch who sends it, and its checksum. `sequence` is that of its first record."""
    _PRODUCER.pack_into(data.data, _PRODUCER_AT, producer_id, epoch, sequence)
    _CRC.pack_into(data.data, _CRC_AT, crc32c(data, _CRC_FROM, len(data)))


def stored_checksum(topic: str, partition: int, records: int, data: Bytes) -> int:
    """Of a batch that waits in a file, with where it goes: of what it is sealed with later, nobody
    could tell that it is not what was written."""
    place = zlib.crc32(f"{partition} {records} {topic}".encode())
    return place ^ int(crc32c(data, 0, len(data)))


def measured(columns: Columns, request_bytes: int) -> tuple[int, Numbers, Faults]:
    """The bytes of all records, of each row's, and why a row becomes none, as `measure_records`
    has them."""
    rows = len(columns.timestamps_ms)
    sizes, faults = np.empty(rows, np.int64), np.empty(rows, np.int8)
    total = kernels.measure_records(
        *(columns.key.sizes, columns.value.sizes),
        *(columns.header_starts, columns.header_counts),
        *(columns.header_names.sizes, columns.header_values.sizes),
        *(columns.timestamps_ms, request_bytes, sizes, faults),
    )
    return int(total), sizes, faults


def told(fault: int, size: int, request_bytes: int) -> tuple[str, str]:
    """The condition of a fault that `measured` has found, and its text, without a value."""
    if fault == kernels.TOO_LARGE:
        what = f"a record of about {size} bytes, and max.request.size is {request_bytes}"
        return "MESSAGE_TOO_LARGE", what
    if fault == kernels.HEADER_WITHOUT_NAME:
        return "INVALID_RECORD", "a header has no name"
    return "INVALID_RECORD", "timestamp is before 1970"


class RecordWriter:
    """Makes batches for one topic, which has `partitions`.

    `sticky`: the partition that rows without key and partition begin with. They go to the next one
    each time that `batch_bytes` have gone to one.
    """

    def __init__(
        self, topic: str, partitions: int, settings: BatchSettings, sticky: int = 0
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._settings = settings
        self._sticky = np.array([sticky % partitions, 0], np.int64)

    def write(self, batch: pa.RecordBatch, now_ms: int) -> list[ProducedBatch]:
        """The record batches of some rows, those of one partition in the order in which they have
        to be sent.

        Columns: `value`; perhaps `key`, `headers`, `timestamp` and `partition`. A row without
        timestamp has `now_ms`. Raises INVALID_TOPIC_COLUMNS, and INVALID_RECORD or
        MESSAGE_TOO_LARGE for the first row that cannot become a record.
        """
        rows = batch.num_rows
        if not rows:
            return []
        columns = Columns.of(batch, now_ms)
        total, sizes, faults = measured(columns, self._settings.request_bytes)
        targets = np.empty(rows, np.int64)
        produced_partitions.choose_partitions(
            *(columns.partitions, columns.key.at, columns.key.sizes, columns.key.data, sizes),
            *(self._partitions, self._settings.batch_bytes, self._sticky, targets, faults),
        )
        for row in np.flatnonzero(faults).tolist():
            raise self._fault(columns, row, int(sizes[row]), int(faults[row]))
        order, ends = np.empty(rows, np.int64), np.empty(self._partitions + 1, np.int64)
        produced_partitions.sort_by_partition(targets, order, ends)
        return list(self._written(columns, sizes, total, order, ends))

    def _written(
        self, columns: Columns, sizes: Numbers, total: int, order: Numbers, ends: Numbers
    ) -> Iterator[ProducedBatch]:
        used = np.flatnonzero(np.diff(ends)).tolist()
        limit = min(self._settings.batch_bytes, self._settings.request_bytes)
        record_bytes = total + kernels.MORE_BYTES_MAX * len(order)
        # Two batches that follow each other hold more than the limit, or one would do.
        pairs = record_bytes // max(limit - kernels.HEADER_BYTES, 1)
        batches_max = min(len(order), 2 * pairs + len(used))
        table = np.empty(batches_max, kernels.WRITTEN)
        region = _region(record_bytes + kernels.HEADER_BYTES * batches_max)
        at = 0
        for partition in used:
            count, at = kernels.write_batches(
                *(order, ends[partition], ends[partition + 1]),
                *(columns.key.arrays, columns.value.arrays),
                *(columns.header_starts, columns.header_counts),
                *(columns.header_names.arrays, columns.header_values.arrays),
                *(columns.timestamps_ms, sizes, limit),
                *(_TRANSACTIONAL, table, region, at),
            )
            for begin, end, first, records in table[:count].tolist():
                data = self._compressed(region[begin:end])
                yield ProducedBatch(partition, order[first : first + records], data)

    def _compressed(self, data: Bytes) -> Bytes:
        """The batch with its records compressed, or as it is where that would not make it smaller:
        so the limits hold for what is sent."""
        if self._settings.compression == "none":
            return data
        codec, compress, usual_level = CODECS[self._settings.compression]
        level = self._settings.compression_level
        records = data[kernels.HEADER_BYTES :].data
        packed = compress(records, usual_level if level is None else level)
        if len(packed) >= len(records):
            return data
        made = np.empty(kernels.HEADER_BYTES + len(packed), np.uint8)
        made[: kernels.HEADER_BYTES] = data[: kernels.HEADER_BYTES]
        made[kernels.HEADER_BYTES :] = np.frombuffer(packed, np.uint8)
        (attributes,) = _ATTRIBUTES.unpack_from(made.data, _ATTRIBUTES_AT)
        _ATTRIBUTES.pack_into(made.data, _ATTRIBUTES_AT, attributes | codec)
        _LENGTH.pack_into(made.data, _LENGTH_AT, len(made) - _LENGTH_AT - _LENGTH.size)
        return made

    def _fault(self, columns: Columns, row: int, size: int, fault: int) -> KeyrangeError:
        condition, what = told(fault, size, self._settings.request_bytes)
        if fault == kernels.NO_SUCH_PARTITION:
            number = int(columns.partitions[row])
            what = f"partition is {number}, and the topic has {self._partitions}"
        return error(condition, what, topic=self._topic, row=row)


def _region(size: int) -> Bytes:
    """Memory of Arrow's own pool, which keeps what was freed: no page faults batch after batch."""
    return np.frombuffer(pa.allocate_buffer(max(size, 1)), np.uint8)
