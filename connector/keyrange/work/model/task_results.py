"""What a task decides while a user's function works on its records.

Rule of this file: no clock, no signal and no column. Time comes in as a number of milliseconds of
any clock that does not go back; who is interrupted says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange


@dataclass(frozen=True, slots=True)
class TaskPartition:
    """What a task knows of a partition before it begins.

    `cells` cover the hash space once, in order. Records of the keys at the places `held` are not
    worked on. `deliveries`: how often redelivered records were worked on before, by offset.
    """

    cells: tuple[KeyRange, ...]
    held: frozenset[int] = frozenset()
    deliveries: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """How records are worked on. Durations are in ms, 0 for no limit."""

    keeps_order: bool = True
    deliveries_max: int = 5
    record_timeout_ms: int = 0
    budget_ms: int = 0

    @property
    def has_limits(self) -> bool:
        return bool(self.record_timeout_ms or self.budget_ms)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How long a call may take, None for any time; `by_budget` where the task's time is nearer
    than the record's."""

    timeout_ms: float | None
    by_budget: bool = False


ANY_TIME = Allowance(None)


class Interruption(Enum):
    """What an interrupted call means for the records that it had."""

    TIMED_OUT = "timed out"
    BISECT = "bisect"
    HAND_BACK = "hand back"


class TaskState:
    """What one task has decided so far."""

    def __init__(self, terms: WorkSettings) -> None:
        self._terms = terms
        self._usual = Allowance(terms.record_timeout_ms or None)
        self._works: dict[TopicPartition, TaskPartition] = {}
        self._blocked: dict[TopicPartition, set[int]] = {}
        self._deadline_ms: float | None = None
        # Whether the function has come to an end with any record.
        self._settled = False
        # The time for the batch is up: nothing more is worked on.
        self.spent = False
        self.handed_back: dict[TopicPartition, dict[int, int]] = {}

    def begin(self, works: Mapping[TopicPartition, TaskPartition]) -> None:
        """Records of some partitions come, of one that was named before with other keys."""
        for partition, work in works.items():
            known = self._works.get(partition)
            deliveries = {**known.deliveries, **work.deliveries} if known else work.deliveries
            self._works[partition] = replace(work, deliveries=deliveries)
            self._blocked.setdefault(partition, set()).update(work.held)

    @property
    def cells(self) -> dict[TopicPartition, tuple[KeyRange, ...]]:
        return {partition: work.cells for partition, work in self._works.items()}

    def work_of(self, partition: TopicPartition) -> TaskPartition:
        return self._works[partition]

    def blocked(self, partition: TopicPartition) -> set[int]:
        """Places of keys that have to wait; records without a key never do."""
        return self._blocked[partition]

    def allowance(self, now_ms: float) -> Allowance:
        """How long the next call may take; sets `spent` where there is no time left."""
        terms, record_ms = self._terms, self._usual.timeout_ms
        if not terms.budget_ms:
            return self._usual
        # It does not end while the culprit among several is looked for.
        over = self._deadline_ms is not None and self._deadline_ms <= now_ms
        if self._deadline_ms is None or (over and not self._settled):
            self._deadline_ms = now_ms + terms.budget_ms
        left_ms = self._deadline_ms - now_ms
        if left_ms <= 0:
            self.spent = True
        if record_ms is not None and record_ms <= left_ms:
            return self._usual
        return Allowance(left_ms, by_budget=True)

    def settled(self) -> None:
        """The function has come to an end with some records."""
        self._settled = True

    def failed(self, partition: TopicPartition, key_hash: int, comes_again: bool) -> bool:
        """A record is not done. What comes of its key waits for it if it `comes_again`, as one with
        a key that is not given up; whether it does."""
        self._settled = True
        waits = self._terms.keeps_order and comes_again
        if waits:
            self._blocked[partition].add(key_hash)
        return waits

    def is_last_delivery(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record that fails is given up."""
        before = self._works[partition].deliveries.get(offset, 0)
        return before + 1 >= self._terms.deliveries_max

    def interrupted(self, allowance: Allowance, count: int, now_ms: float) -> Interruption:
        """What it means that a call with `count` records was interrupted.

        The end of the batch's time is nobody's fault, unless a record had all of it: then it would
        have it again next time. Of several records that had all of it together the culprit is
        looked for, in half of them with as much time again.
        """
        if allowance.by_budget and self._settled:
            self.spent = True
            return Interruption.HAND_BACK
        if allowance.by_budget:
            self._deadline_ms = now_ms + self._terms.budget_ms
            self.spent = count == 1
        return Interruption.TIMED_OUT if count == 1 else Interruption.BISECT

    def hand_back_cell(self, partition: TopicPartition, cell: int, offset: int) -> None:
        """A record was not worked on, and nothing behind it in its key range is."""
        back = self.handed_back.setdefault(partition, {})
        back[cell] = min(back.get(cell, offset), offset)
