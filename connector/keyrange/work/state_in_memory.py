"""Functions with state outside of a query: what they make of records, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.due_timers import due_rows, next_timer
from keyrange.keyed_state.expiry import alive, with_state
from keyrange.keyed_state.model.figures import StateFigures
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
from keyrange.keyed_state.states_of_task import Firing
from keyrange.keyed_state.variables import StateForm
from keyrange.model.key_ranges import SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import Retries, SeenTimers
from keyrange.model.watermarks import PartitionClock
from keyrange.work.outcome_rows import HIDDEN

Below = Callable[[TopicPartition, KeyRange], Sequence[Blocks]]


class FoldedState:
    """State that lies in memory, above what there was `below`: its runs, the newest first.

    `time_ms`: the time of the batch, in ms since 1970. `scope`: which partitions share a state.
    """

    def __init__(
        self,
        form: StateForm,
        below: Below = lambda *_: (),
        time_ms: int = 0,
        scope: StateScope = OWN_STATE,
    ) -> None:
        self.form = form
        self.time_ms = time_ms
        self.figures = StateFigures()
        self._home = scope.home
        self._below = below
        self._changes: defaultdict[TopicPartition, ChangedRows] = defaultdict(ChangedRows)
        # What the timers of partitions go by; those that are to fire.
        self.clocks: dict[TopicPartition, PartitionClock] = {}
        self.fires: list[TopicPartition] = []

    @property
    def retries(self) -> Retries:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        return Retries(self.time_ms, self.time_ms)

    def clock(self, partition: TopicPartition) -> PartitionClock:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        return self.clocks.get(partition, PartitionClock())

    def firing(self, _: Callable[[TopicPartition], Collection[int]]) -> Iterator[Firing]:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`, of the partitions in `fires`."""
        while self.fires:
            partition = self.fires.pop(0)
            for span, clock_us in self.clock(partition).within(SPACE):
                due_ms = self.retries.due_ms
                rows = due_rows(self._runs(partition), span, clock_us, due_ms, self.form)
                yield Firing(partition, clock_us, rows)

    def timers(
        self, waiting: Mapping[TopicPartition, Collection[int]]
    ) -> Iterator[tuple[TopicPartition, SeenTimers]]:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`, of all that there is."""
        if self.form.has_timers:
            for partition in self._changes:
                hashes = np.fromiter(waiting.get(partition, ()), np.int64)
                for span, clock_us in self.clock(partition).within(SPACE):
                    seen = next_timer(self._runs(partition), span, hashes, clock_us)
                    yield partition, SeenTimers(seen, is_exact=True)

    def _runs(self, partition: TopicPartition) -> list[Blocks]:
        home = self._home(partition)
        return [*self._changes[home].runs(), *self._below(home, SPACE)]

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        found = look_up(self._runs(partition), wanted, self.form)
        return alive(found, self.form, self.time_ms)

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """As of `keyrange.keyed_state.states_of_task.TaskStates`."""
        self._changes[self._home(partition)].add(sorted_by_hash(rows))

    def rows(self, partition: TopicPartition, span: KeyRange = SPACE) -> Iterator[pa.RecordBatch]:
        """The keys that have any state, in blocks."""
        home = self._home(partition)
        changes, runs = self._changes[home], [*self._below(home, span)]
        if changes:
            runs.insert(0, LoadedBlocks(list(blocks_of(within(changes.joined(), span)))))
        yield from merged(runs, self.form, lambda rows: with_state(rows, self.form, self.time_ms))


def told_in(batch: pa.RecordBatch, member: str) -> Iterator[dict[str, Any]]:
    """What rows of a task say of one kind."""
    for each in batch.column(HIDDEN).to_pylist():
        if each is not None and each[member]:
            yield each[member]
