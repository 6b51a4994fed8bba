"""What a task is handed, cut into stretches of one partition, and checked for their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.errors import error
from keyrange.model.offsets import TopicPartition
from keyrange.model.value_forms import raw_column

if TYPE_CHECKING:
    from keyrange.values.reading import ValueReader

Numbers = NDArray[np.int64]
_NONE: Final[Mapping[int, str]] = {}


@dataclass(frozen=True, slots=True)
class RecordStretch:
    """Rows of one partition. `batch` is what a function sees of them: with formats of keys and
    values what these hold, elsewhere `raw`, as they were read. `unreadable` says of rows that could
    not be read why, by their numbers. `has_key` None stands for a key in every row."""

    batch: pa.RecordBatch
    raw: pa.RecordBatch
    unreadable: Mapping[int, str]
    partition: TopicPartition
    offsets: Numbers
    key_hashes: Numbers
    has_key: NDArray[np.bool_] | None

    def row_has_key(self, at: int) -> bool:
        return self.has_key is None or bool(self.has_key[at])

    def tombstones(self, rows: Numbers) -> int:
        """How many of these rows have no value in Kafka; with `raw` without values none."""
        at = raw_column("value", self.raw.schema.names)
        if at not in self.raw.schema.names or not self.raw.column(at).null_count:
            return 0
        found: int = self.raw.column(at).take(pa.array(rows, pa.int64())).null_count
        return found

    def at(self, rows: Numbers) -> RecordStretch:
        """These rows."""
        unreadable = self.unreadable
        if unreadable:
            unreadable = {
                at: unreadable[row] for at, row in enumerate(rows.tolist()) if row in unreadable
            }
        return RecordStretch(
            rows_at(self.batch, rows),
            rows_at(self.raw, rows),
            unreadable,
            self.partition,
            self.offsets[rows],
            self.key_hashes[rows],
            None if self.has_key is None else self.has_key[rows],
        )

    def cells(self, bounds: Numbers, rows: Any = slice(None)) -> Iterator[tuple[int, int]]:
        """Each cell that the rows lie in, with the lowest offset in it."""
        if len(self.key_hashes[rows]):
            cells, first = np.unique(cell_numbers(bounds, self.key_hashes[rows]), return_index=True)
            lowest = self.offsets[rows][first]
            yield from zip(cells.tolist(), lowest.tolist(), strict=True)


def rows_at(batch: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
    """These rows; without a copy where they lie side by side."""
    if not len(rows):
        return batch.slice(0, 0)
    first, count = int(rows[0]), len(rows)
    if int(rows[-1]) - first + 1 == count:
        return batch.slice(first, count)
    return batch.take(pa.array(rows))


def runs_of(*columns: Numbers) -> Iterator[tuple[int, int]]:
    """Where each run of rows begins and ends that have the same value in each of some columns."""
    if len(columns[0]):
        is_new = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
        bounds = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(columns[0])]
        yield from itertools.pairwise(bounds)


def cut(
    batch: pa.RecordBatch, nulls_first: bool, reader: ValueReader | None = None
) -> Iterator[RecordStretch]:
    """The stretches of a batch, whose keys and values `reader` reads.

    With `nulls_first` place 0 stands for no key where the key is not among the columns; elsewhere
    records without a key have places of their own."""
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    topics = batch.column("topic").dictionary_encode()
    names = topics.dictionary.to_pylist()
    indices = topics.indices.to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    if "keyHash" in batch.schema.names:
        key_hashes = batch.column("keyHash").to_numpy(zero_copy_only=False)
    else:
        # Nobody asks where no key waits.
        key_hashes = np.zeros(batch.num_rows, np.int64)
    has_key = _has_key(batch, key_hashes, nulls_first)
    read, unreadable = (batch, _NONE) if reader is None else reader.read(batch)
    for start, end in runs_of(partitions, indices):
        yield RecordStretch(
            read.slice(start, end - start),
            batch.slice(start, end - start),
            unreadable
            and {row - start: why for row, why in unreadable.items() if start <= row < end},
            TopicPartition(names[indices[start]], int(partitions[start])),
            offsets[start:end],
            key_hashes[start:end],
            None if has_key is None else has_key[start:end],
        )


def _has_key(
    batch: pa.RecordBatch, key_hashes: Numbers, nulls_first: bool
) -> NDArray[np.bool_] | None:
    at = raw_column("key", batch.schema.names)
    # What a key is read into may be null where the key is not.
    if at in batch.schema.names and pa.types.is_binary(batch.schema.field(at).type):
        key = batch.column(at)
        return np.asarray(pc.is_valid(key)) if key.null_count else None
    return key_hashes != 0 if nulls_first else None


def cell_numbers(bounds: Numbers, key_hashes: Numbers) -> Numbers:
    """Which cell each place lies in; `bounds` are the cells' lower ends."""
    return np.searchsorted(bounds, key_hashes, side="right") - 1


class OrderCheck:
    """Refuses records that come out of order: only in a row can a failed one hold others back.

    Within a key range offsets ascend; across ranges they need not, as what is delivered again comes
    before what a range catches up with.
    """

    def __init__(self, bounds: Mapping[TopicPartition, Numbers]) -> None:
        self._bounds = bounds
        self._last: dict[TopicPartition, Numbers] = {}

    def cells(self) -> Iterator[tuple[TopicPartition, int, int]]:
        """The cells of which there were records, those side by side together: the first and the
        last of them."""
        for partition, last in sorted(self._last.items()):
            edges = np.flatnonzero(np.diff(np.r_[-1, last, -1] >= 0))
            for first, until in edges.reshape(-1, 2).tolist():
                yield partition, first, until - 1

    def check(self, stretch: RecordStretch) -> None:
        bounds = self._bounds[stretch.partition]
        last = self._last.get(stretch.partition)
        if last is None:
            last = self._last[stretch.partition] = np.full(len(bounds), -1, np.int64)
        offsets = stretch.offsets
        cells = cell_numbers(bounds, stretch.key_hashes)
        # Stable, so that the rows of a cell stay as they came.
        by_cell = np.argsort(cells, kind="stable")
        sorted_cells, sorted_offsets = cells[by_cell], offsets[by_cell]
        begins = np.flatnonzero(np.r_[True, np.diff(sorted_cells) != 0])
        before = np.r_[np.int64(-1), sorted_offsets[:-1]]
        before[begins] = last[sorted_cells[begins]]
        wrong = np.flatnonzero(sorted_offsets <= before)
        if len(wrong):
            raise error(
                "RECORDS_OUT_OF_ORDER",
                "records of one key range do not come in the order of their offsets",
                partition=stretch.partition,
                offset=int(sorted_offsets[wrong[0]]),
                after=int(before[wrong[0]]),
            )
        ends = np.r_[begins[1:], len(sorted_offsets)] - 1
        last[sorted_cells[ends]] = sorted_offsets[ends]
