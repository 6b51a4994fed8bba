"""The map over the hash space against a plain list of records, each done or not.

The log has few places and the cuts lie at or beside them, so one hash for each stretch between two
cuts stands for the whole space.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.individual_commits.model.delivery_splits import PartitionDelivery
from keyrange.individual_commits.model.partition_progress import (
    PartitionState,
    PendingRecord,
    cut_at,
    fresh,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.model.checkpoint import NEVER_DUE
from keyrange.model.commit_settings import DeliveryLimits, RedeliveryPolicy
from keyrange.model.key_ranges import HASH_MAX, KeyRange
from keyrange.model.offsets import OFFSET_MAX, TopicPartition
from keyrange.work.model.outcome import Cause, RecordOutcome
from project.forms import by_form, everyday
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from tables.commit_model import apply_verdict, plan_delivery

PLACES = [0, 1, 2, 1000, 2**53, 2**62 - 1, 2**62, HASH_MAX - 1, HASH_MAX]
BORDERS = sorted({at + step for at in PLACES for step in (0, 1)} - {0, HASH_MAX + 1})
POINTS = sorted({0, HASH_MAX, *(b + step for b in BORDERS for step in (-1, 0))})
BASES = [0, 2**31 - 40, 2**53 - 40, OFFSET_MAX - 400]
POLICY = RedeliveryPolicy(deliveries_max=4, backoff_ms=10, backoff_max_ms=35)
CAUSES = list(Cause)
TP = TopicPartition("t", 0)
# Others each time in the long form, which has random ones.
_FIRST = by_form(0, 0, Random().randrange(10**9))
_SEEDS_PER_BASE = by_form(20, 40, 2_000)
seeds = st.integers(0, 2**32)


class Partition:
    """A log, the state under test, and what is true: which records are done, how often each was
    worked on, and how far the keys at each point were scanned."""

    def __init__(self, random: Random, base: int) -> None:
        self.random = random
        self.now_ms = 1_000
        offsets = sorted(random.sample(range(120), 70))
        self.log = {base + at: random.choice(PLACES) for at in offsets}
        self.end = base + 120
        self.keeps_order = random.random() < 0.5
        self.limits = DeliveryLimits(random.choice([1, 2, 3, 8, 10_000]))
        self.state = fresh("id", base)
        self.scanned = dict.fromkeys(POINTS, base)
        self.settled: set[int] = set()
        self.open: dict[int, tuple[int, int]] = {}

    def cut(self) -> list[KeyRange]:
        borders = self.random.sample(BORDERS, self.random.choice([0, 0, 1, 2, 5]))
        return [KeyRange(a, b) for a, b in pairwise([0, *sorted(borders), HASH_MAX + 1])]

    def batch(self, fails: float, end: int) -> None:
        due_ms = self.random.choice([NEVER_DUE, self.now_ms, self.now_ms])
        delivery = plan_delivery(self.state, self.cut(), end, due_ms, self.limits, self.keeps_order)
        out = self.handed_out(delivery, due_ms)
        verdict = self.verdict(out, fails)
        before = self.state
        judged = apply_verdict(self.state, delivery, verdict, POLICY, self.now_ms)
        self.state = judged.state
        self.take_in(delivery, verdict, out, {record.offset: record for record in judged.dead})
        assert self.state.committed >= before.committed
        assert self.state.position == end
        self.compare()

    def handed_out(self, delivery: PartitionDelivery, due_ms: int) -> dict[int, int]:
        """Offset to place; checks the delivery on the way."""
        out = {record.offset: record.key_hash for record in delivery.redelivered}
        waiting = {at: due for at, (due, _) in self.open.items() if at not in out}
        assert out.keys() <= self.open.keys()
        if self.keeps_order:
            firsts = {self.log[at]: self.open[at][0] for at in sorted(self.open, reverse=True)}
            assert {key_hash for key_hash, due in firsts.items() if due <= due_ms} == set(
                out.values()
            )
            assert delivery.held == {self.log[at] for at in waiting}
            assert not delivery.held & set(out.values())
        else:
            assert all(due > due_ms for due in waiting.values())
            assert delivery.held == frozenset()
        for at, key_hash in self.log.items():
            cells = [cell for cell in delivery.cells if cell.span.contains(key_hash)]
            assert len(cells) == 1
            if cells[0].from_offset <= at < cells[0].until_offset:
                assert at not in out
                out[at] = key_hash
        assert not out.keys() & self.settled
        for point in POINTS:
            (cell,) = (cell for cell in delivery.cells if cell.span.contains(point))
            assert cell.from_offset == self.scanned[point] <= cell.until_offset <= delivery.end
            pending, bound = len(self.state.piece_of(point).pending), self.limits.pending_max
            if 2 * pending < bound:
                assert cell.until_offset == delivery.end
            else:
                assert cell.until_offset - cell.from_offset <= max(bound - pending, 0)
        return out

    def verdict(self, out: dict[int, int], fails: float) -> PartitionVerdict:
        backs = [
            (span, self.random.choice(sorted(out)))
            for span in self.cut()
            if out and self.random.random() < fails / 3
        ]
        not_done = [
            RecordOutcome(at, key_hash, self.random.choice(CAUSES))
            for at, key_hash in out.items()
            if not self.is_back(backs, at, key_hash) and self.random.random() < fails
        ]
        self.random.shuffle(not_done)
        return PartitionVerdict(tuple(not_done), tuple(backs))

    @staticmethod
    def is_back(backs: list[tuple[KeyRange, int]], at: int, key_hash: int) -> bool:
        return any(span.contains(key_hash) and at >= since for span, since in backs)

    def take_in(
        self,
        delivery: PartitionDelivery,
        verdict: PartitionVerdict,
        out: dict[int, int],
        dead: dict[int, PendingRecord],
    ) -> None:
        backs = list(verdict.handed_back)
        said = {each.offset: each.cause for each in verdict.not_done}
        gone: set[int] = set()
        for at, key_hash in out.items():
            if self.is_back(backs, at, key_hash):
                continue
            due_ms, deliveries = self.open.pop(at, (0, 0))
            cause = said.get(at)
            if cause is not None and cause.was_worked_on:
                deliveries += 1
                due_ms = self.now_ms + {1: 10, 2: 20}.get(deliveries, 35)
            elif cause is Cause.AWAITS_TIMER:
                due_ms = self.now_ms + 10
            given_up = (cause is not None and cause.is_final) or deliveries >= POLICY.deliveries_max
            if cause is None or given_up:
                self.settled.add(at)
                gone |= {at} if cause is not None else set()
            else:
                self.open[at] = (due_ms, deliveries)
        assert dead.keys() == gone
        for point in POINTS:
            (cell,) = (cell for cell in delivery.cells if cell.span.contains(point))
            back = min((at for span, at in backs if span.contains(point)), default=delivery.end)
            self.scanned[point] = max(self.scanned[point], min(back, cell.until_offset))

    def compare(self) -> None:
        state = self.state
        found = {h.offset: (h.due_ms, h.deliveries) for h in state.pending}
        assert found == self.open
        assert {h.offset: h.key_hash for h in state.pending} == {
            at: self.log[at] for at in self.open
        }
        assert {point: state.piece_of(point).scanned for point in POINTS} == self.scanned
        assert state.committed == min([*self.scanned.values(), *self.open])
        assert state.scanned == min(self.scanned.values())
        dues = {self.log[at]: self.open[at][0] for at in sorted(self.open, reverse=True)}
        first = dues.values() if self.keeps_order else [due for due, _ in self.open.values()]
        each_ms = columns_of({TP: state}).due_ms(self.keeps_order).tolist()
        assert min(each_ms, default=None) == min(first, default=None)
        for point in POINTS:
            piece = state.piece_of(point)
            done = {
                at for each in piece.done() for at in range(each.from_offset, each.until_offset)
            }
            above = set(range(piece.committed, piece.scanned))
            assert done == above - {record.offset for record in piece.pending}


def run(random: Random, base: int) -> None:
    world = Partition(random, base)
    position = base
    while position < world.end:
        position = min(position + random.choice([0, 1, 5, 30]), world.end)
        world.now_ms += random.choice([0, 1, 10, 40])
        world.batch(random.choice([0.0, 0.1, 0.5, 1.0]), position)
    for _ in range(1_000):
        world.now_ms += 100
        world.batch(0.0, world.end)
        if world.settled == world.log.keys() and world.state.committed == world.end:
            break
    assert world.settled == world.log.keys()
    assert world.state.merged() == fresh("id", world.end)


@pytest.mark.parametrize("base", everyday(*BASES[::-1]))
def test_the_map_is_the_set_of_records_that_are_done(base: int) -> None:
    for seed in range(_FIRST, _FIRST + _SEEDS_PER_BASE):
        run(Random(seed), base)


@given(seeds)
def test_cutting_and_joining_changes_nothing(seed: int) -> None:
    random = Random(seed)
    world = Partition(random, 0)
    for end in (20, 50, 60):
        world.batch(0.6, end)
    state = world.state
    spans = world.cut()
    for other in (state.refined(spans), state.merged(), state.refined(spans).merged()):
        assert other.pending == state.pending
        assert other.committed == state.committed
        assert all(other.piece_of(p).scanned == state.piece_of(p).scanned for p in POINTS)
    cut = cut_at(state.pieces, [b for span in spans for b in (span.from_hash, span.until_hash)])
    assert PartitionState("id", 60, tuple(cut)) == state.refined(spans)


@given(seeds)
def test_cuts_that_change_with_every_batch_do_not_add_up(seed: int) -> None:
    random = Random(seed)
    world = Partition(random, 0)
    world.limits = DeliveryLimits()
    for end in range(0, 120, 5):
        borders = sorted(random.sample(BORDERS, 3))
        spans = [KeyRange(a, b) for a, b in pairwise([0, *borders, HASH_MAX + 1])]
        delivery = plan_delivery(world.state, spans, end, NEVER_DUE, world.limits)
        failed = [
            RecordOutcome(at, world.log[at], Cause.REJECTED)
            for at in range(end - 5, end)
            if at in world.log
        ]
        world.state = apply_verdict(
            world.state, delivery, PartitionVerdict(tuple(failed)), POLICY, 0
        ).state
        assert len(world.state.pieces) <= len(spans)
    assert len(world.state.pending) > 30
