"""Which offsets were mentioned, as bits: what a job said nothing of is found without a list of what
it did say.

A block is 65,536 offsets of one partition, and its bits are the bytes of `numpy.packbits`. A
million records are some 15 blocks, wherever they are; what leaves an executor is these, and offsets
that are pending records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyrange.formats.schema_document import schema_of_ddl
from keyrange.model.offsets import TopicPartition
from keyrange.work.record_stretches import Numbers, runs_of

_SHIFT: Final = 16
BLOCK: Final = 1 << _SHIFT

BLOCKS_DDL: Final = "topic string, partition int, block bigint, delivered boolean, bits binary"
BLOCKS: Final = schema_of_ddl(BLOCKS_DDL)
OFFSETS_DDL: Final = "topic string, partition int, offset bigint"


class Blocks:
    """The offsets of one task, as blocks."""

    def __init__(self) -> None:
        self._bits: dict[TopicPartition, dict[int, NDArray[np.bool_]]] = {}

    def add(self, partition: TopicPartition, offsets: Numbers) -> None:
        found = self._bits.setdefault(partition, {})
        numbers = offsets >> _SHIFT
        # Mostly all are of one block, or of a few in a row.
        for start, end in runs_of(numbers):
            number = int(numbers[start])
            bits = found.get(number)
            if bits is None:
                bits = found[number] = np.zeros(BLOCK, np.bool_)
            bits[offsets[start:end] & (BLOCK - 1)] = True

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Columns topic, partition and offset in any order of rows."""
        topics = batch.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        indices = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        partitions = batch.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        runs = list(runs_of(partitions, indices))
        if len(runs) > 1:
            order = np.lexsort((offsets, partitions, indices))
            indices, partitions, offsets = indices[order], partitions[order], offsets[order]
            runs = list(runs_of(partitions, indices))
        for start, end in runs:
            partition = TopicPartition(names[indices[start]], int(partitions[start]))
            self.add(partition, offsets[start:end])

    def __iter__(self) -> Iterator[tuple[TopicPartition, int, bytes]]:
        for partition, found in sorted(self._bits.items()):
            for number, bits in sorted(found.items()):
                yield partition, number, np.packbits(bits).tobytes()

    def to_batch(self, delivered: bool) -> pa.RecordBatch:
        rows = [
            {**partition._asdict(), "block": number, "delivered": delivered, "bits": bits}
            for partition, number, bits in self
        ]
        return pa.RecordBatch.from_pylist(rows, BLOCKS)


def blocks_of(
    delivered: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: offsets to blocks."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks = Blocks()
        for batch in batches:
            blocks.add_batch(batch)
        yield blocks.to_batch(delivered)

    return work


def subtract_blocks(rows: pa.Table) -> pa.Table:
    """The offsets of one block that were delivered and not mentioned; for applyInArrow."""
    delivered = np.zeros(BLOCK // 8, np.uint8)
    mentioned = np.zeros(BLOCK // 8, np.uint8)
    sides = rows.column("delivered").to_pylist()
    for side, bits in zip(sides, rows.column("bits").to_pylist(), strict=True):
        into = delivered if side else mentioned
        into |= np.frombuffer(bits, np.uint8)
    left = np.flatnonzero(np.unpackbits(delivered & ~mentioned))
    first = rows.column("block")[0].as_py() << _SHIFT
    places = rows.select(["topic", "partition"]).take(pa.array(np.zeros(len(left), np.int64)))
    return places.append_column("offset", pa.array(left.astype(np.int64) + first))


def rows_at(
    wanted: Mapping[TopicPartition, Iterable[int]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For mapInArrow: the rows that stand at some offsets of some partitions."""
    sets = {partition: np.array(sorted(each), np.int64) for partition, each in wanted.items()}

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            partitions = batch.column("partition").to_numpy(zero_copy_only=False)
            topics = np.asarray(batch.column("topic").to_pylist(), object)
            keep = np.zeros(batch.num_rows, np.bool_)
            for partition, some in sets.items():
                of_partition = (partitions == partition.partition) & (topics == partition.topic)
                keep |= of_partition & np.isin(offsets, some)
            if keep.any():
                yield batch.filter(pa.array(keep))

    return work
