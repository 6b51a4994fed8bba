"""Functions with state outside of a query: what they make of records, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from keyrange.keyed_state.expiry import alive, with_state
from keyrange.keyed_state.sorted_blocks import (
    Blocks,
    ChangedRows,
    Keys,
    LoadedBlocks,
    blocks_of,
    look_up,
    merged,
    sorted_by_hash,
    within,
)
from keyrange.keyed_state.variables import StateForm
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.work.outcome_rows import HIDDEN

Below = Callable[[TopicPartition, KeyRange], Sequence[Blocks]]


class FoldedState:
    """State that lies in memory, above what there was `below`: its runs, the newest first.

    `time_ms`: the time of the batch, in ms since 1970.
    """

    def __init__(self, form: StateForm, below: Below = lambda *_: (), time_ms: int = 0) -> None:
        self.form = form
        self.time_ms = time_ms
        self._below = below
        self._changes: defaultdict[TopicPartition, ChangedRows] = defaultdict(ChangedRows)

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        runs = [*self._changes[partition].runs(), *self._below(partition, SPACE)]
        found = look_up(runs, wanted, self.form)
        return alive(found, self.form, self.time_ms)

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        self._changes[partition].add(sorted_by_hash(rows))

    def rows(self, partition: TopicPartition, span: KeyRange = SPACE) -> Iterator[pa.RecordBatch]:
        """The keys that have any state, in blocks."""
        changes, runs = self._changes[partition], [*self._below(partition, span)]
        if changes:
            runs.insert(0, LoadedBlocks(list(blocks_of(within(changes.joined(), span)))))
        yield from merged(runs, self.form, lambda rows: with_state(rows, self.form, self.time_ms))


def outcomes_in(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The outcomes of records that are not done, among the rows of a task."""
    for each in batch.column(HIDDEN).to_pylist():
        if each is not None and each["outcome"]:
            yield each["outcome"]
