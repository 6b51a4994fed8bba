"""Batches that slots read in portions, worked on record by record until nothing is left: what tasks
say of them is true of every key, wherever the portions were cut and whoever reads which."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries, spans_of
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.members.model.assignment import Owned
from keyrange.members.model.pinned_plan import Shape, WorkUnit, plan_pinned_deliveries, portion_cuts
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import RedeliveryPolicy
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.work.model.outcome import Cause, RecordOutcome
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.task_context import Job
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from samples.working import OUTPUT, Sent, VirtualAlarm, batches_of, run
from tables.commit_model import apply_verdict
from tables.delivered import delivered

PARTITION = TopicPartition("t", 0)
SLOTS = ("a", "b")
POLICY = RedeliveryPolicy(deliveries_max=3, backoff_ms=10, backoff_max_ms=10)
OPTIONS = parse_options(
    {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "splitBy": "keyRange",
        "keyRangesPerPartition": "3",
        "commitMode": "individual",
        "commitTable": "/c",
        "commitGroup": "g",
    }
)


@dataclass
class Query:
    """A query over one partition: its log, and what it has brought about so far."""

    chance: random.Random
    log: list[int]
    budget_ms: int
    state: PartitionState = field(default_factory=lambda: fresh("", 0))
    now_ms: int = 0
    output: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)

    def batch(self, until: int) -> None:
        """One batch up to an offset, by an assignment of its own."""
        owners, shape = self._owners(), Shape({"a": 2 * self.chance.choice([1, 2])}, 2)
        mark = CommitMark("s", 0, self.now_ms, {PARTITION: 3}, cuts=portion_cuts(owners, shape))
        start = Checkpoint({PARTITION: self.state.position})
        end = Checkpoint({PARTITION: until}, commits=mark)
        [delivery] = plan_batch_deliveries(
            Snapshot(states=columns_of({PARTITION: self.state})), start, end, OPTIONS
        ).values()
        spans = {PARTITION: spans_of(PARTITION, mark, OPTIONS)}
        portions = plan_pinned_deliveries(
            {PARTITION: delivery}, spans, owners, {PARTITION: 1e6}, lambda _: [], shape, _naming
        )
        assert portions is not None
        work = TaskPartition(
            tuple(cell.span for cell in delivery.cells),
            delivery.held,
            {
                pending_record.offset: pending_record.deliveries
                for pending_record in delivery.redelivered
            },
        )
        not_done: list[RecordOutcome] = []
        handed_back: list[tuple[KeyRange, int]] = []
        for records in self._tasks(portions):
            told = run(self._job(work), batches_of(records, 3), VirtualAlarm(self._cost_ms))
            self.output += told.output
            handed_back += told.handed_back.items()
            not_done += [
                RecordOutcome(at, self.log[at], Cause(code)) for at, code in told.causes.items()
            ]
        kept = [
            each
            for each in not_done
            if not any(s.contains(each.key_hash) and each.offset >= at for s, at in handed_back)
        ]
        verdict = PartitionVerdict(tuple(kept), tuple(handed_back))
        judged = apply_verdict(self.state, delivery, verdict, POLICY, self.now_ms)
        self.state = judged.state
        self.dead += [pending_record.offset for pending_record in judged.dead]
        self.now_ms += 20

    def _owners(self) -> dict[TopicPartition, tuple[Owned, ...]]:
        inside = sorted(self.chance.randrange(1, HASH_MAX) for _ in range(self.chance.randrange(3)))
        spans = [KeyRange(a, b) for a, b in pairwise([0, *inside, HASH_MAX + 1]) if a < b]
        first = self.chance.randrange(2)
        return {PARTITION: tuple(Owned(s, SLOTS[(first + n) % 2]) for n, s in enumerate(spans))}

    def _tasks(self, portions: list[WorkUnit]) -> list[list[Sent]]:
        """The records of each task: portions come to tasks in any order."""
        shuffled = self.chance.sample(portions, len(portions))
        tasks: list[list[Sent]] = [[] for _ in range(self.chance.choice([1, 1, 2]))]
        for portion in shuffled:
            tasks[self.chance.randrange(len(tasks))] += [
                Sent(at, self.log[at])
                for split in portion.splits
                for at in delivered(split, self.log)
            ]
        return tasks

    def _job(self, work: TaskPartition) -> Job:
        def one(record: Any) -> dict[str, Any]:
            if self.chance.random() < 0.1:
                raise ValueError("now and then")
            return {"offset": record.offset, "text": ""}

        terms = WorkSettings(True, POLICY.deliveries_max, budget_ms=self.budget_ms)
        return Job({PARTITION: work}, terms, "record", OUTPUT, one)

    def _cost_ms(self, record: Any) -> float:
        return self.chance.choice([0.0, 1.0, 4.0])


def _naming() -> Any:
    return lambda partition: ""


@pytest.mark.ordinary
@given(seed=st.integers(0, 2**32), budget_ms=st.sampled_from([0, 10, 60]))
def test_each_record_is_worked_on_once_and_each_key_in_order(seed: int, budget_ms: int) -> None:
    chance = random.Random(seed)
    keys = [chance.randrange(HASH_MAX) for _ in range(12)]
    query = Query(chance, [chance.choice(keys) for _ in range(120)], budget_ms)

    for number in count(1):
        query.batch(min(40 * number, len(query.log)))
        if number > 3 and query.state.committed == len(query.log):
            break
        assert number < 400

    settled = Counter(query.output + query.dead)
    assert settled == Counter(range(len(query.log)))
    for key in keys:
        done = [at for at in query.output if query.log[at] == key]
        assert done == sorted(done)
