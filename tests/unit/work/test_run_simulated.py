"""Tasks with functions that fail and sleep at random, beside what a plain list says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.task_context import Job
from project.forms import by_form
from samples.working import OUTPUT, PLACE, Sent, VirtualAlarm, batches_of, run

pytestmark = pytest.mark.ordinary

STEP = 2**60
SEEDS = by_form(30, 30, 600)


@dataclass
class Case:
    """A task: its records in the order in which they come, and how the function treats each."""

    records: list[Sent]
    cells: list[KeyRange]
    held: set[int]
    deliveries: dict[int, int]
    fails: set[int]
    cost_ms: dict[int, float]
    terms: WorkSettings
    rows: int

    def job(self, mode: str) -> Job:
        def one(record: Any) -> dict[str, Any]:
            if record.offset in self.fails:
                raise ValueError(f"no {record.offset}")
            return {"offset": record.offset, "text": "x"}

        def many(batch: pa.RecordBatch) -> pa.RecordBatch:
            offsets = batch.column("offset")
            if self.fails & set(offsets.to_pylist()):
                raise ValueError("some")
            return pa.record_batch([offsets, pa.array(["x"] * len(offsets))], schema=OUTPUT)

        work = TaskPartition(tuple(self.cells), frozenset(self.held), self.deliveries)
        function = one if mode == "record" else many
        return Job({PLACE: work}, self.terms, mode, OUTPUT, function)

    def alarm(self) -> VirtualAlarm:
        def cost_ms(argument: Any) -> float:
            if isinstance(argument, RecordStretch):
                return sum(self.cost_ms[at] for at in argument.offsets.tolist())
            return self.cost_ms[argument.offset]

        return VirtualAlarm(cost_ms)


def make_case(seed: int, limits: bool) -> Case:
    chance = random.Random(seed)
    cells = split_evenly(SPACE, chance.choice([1, 2, 5]))
    keys = [chance.randrange(8) * STEP for _ in range(chance.choice([2, 6, 20]))]
    count = chance.randrange(1, 60)
    scanned = 100
    records: list[Sent] = []
    for offset in sorted(chance.sample(range(scanned, 400), count)):
        null = chance.random() < 0.1
        key_hash = chance.randrange(2**63) if null else chance.choice(keys)
        records.append(Sent(offset, key_hash, None if null else b"k"))
    # Pending records of earlier batches come first; the keys of some others are held.
    again = [
        Sent(offset, chance.choice(keys))
        for offset in sorted(chance.sample(range(scanned), chance.randrange(6)))
    ]
    held = {key_hash for key_hash in keys if chance.random() < 0.2} - {
        each.key_hash for each in again
    }
    terms = WorkSettings(
        keeps_order=chance.random() < 0.7,
        deliveries_max=chance.choice([1, 2, 5]),
        record_timeout_ms=chance.choice([0, 20]) if limits else 0,
        budget_ms=chance.choice([0, 30, 100]) if limits else 0,
    )
    everything = [*again, *records]
    return Case(
        everything,
        cells,
        held if terms.keeps_order else set(),
        {each.offset: chance.randrange(1, 4) for each in again},
        {each.offset for each in everything if chance.random() < 0.15},
        {each.offset: chance.choice([0, 0, 1, 5, 25, 500]) for each in everything},
        terms,
        chance.choice([1, 7, 1000]),
    )


@dataclass
class Expected:
    done: list[int] = field(default_factory=list)
    causes: dict[int, Cause] = field(default_factory=dict)
    handed_back: dict[KeyRange, int] = field(default_factory=dict)


def expect(case: Case) -> Expected:
    """One record after the other, in the plainest words."""
    expected, waiting = Expected(), set(case.held)
    clock_ms, begun_ms, worked, over = 0.0, None, False, False
    timeout_ms = case.terms.record_timeout_ms or float("inf")
    for each in case.records:
        if over or (
            begun_ms is not None
            and case.terms.budget_ms
            and clock_ms - begun_ms >= case.terms.budget_ms
            and not (each.key is not None and each.key_hash in waiting)
        ):
            over = True
        if over:
            [cell] = [cell for cell in case.cells if cell.contains(each.key_hash)]
            expected.handed_back.setdefault(cell, each.offset)
            continue
        if each.key is not None and each.key_hash in waiting:
            expected.causes[each.offset] = Cause.HELD_BACK
            continue
        begun_ms = clock_ms if begun_ms is None else begun_ms
        left_ms = float("inf")
        if case.terms.budget_ms:
            left_ms = begun_ms + case.terms.budget_ms - clock_ms
        cost_ms = case.cost_ms[each.offset]
        cause = Cause.REJECTED if each.offset in case.fails else None
        if cost_ms > min(timeout_ms, left_ms):
            cause = Cause.TIMED_OUT
            if left_ms < timeout_ms:
                over = True
                if worked:
                    [cell] = [cell for cell in case.cells if cell.contains(each.key_hash)]
                    expected.handed_back.setdefault(cell, each.offset)
                    continue
        clock_ms += min(cost_ms, timeout_ms, left_ms)
        worked = True
        if cause is None:
            expected.done.append(each.offset)
            continue
        expected.causes[each.offset] = cause
        last = case.deliveries.get(each.offset, 0) + 1 >= case.terms.deliveries_max
        if case.terms.keeps_order and each.key is not None and not last:
            waiting.add(each.key_hash)
    return expected


@pytest.mark.parametrize("limits", [False, True])
def test_records_one_by_one_are_treated_as_the_plain_list_says(limits: bool) -> None:
    for seed in range(SEEDS):
        case = make_case(seed, limits)
        told = run(case.job("record"), batches_of(case.records, case.rows), case.alarm())
        expected = expect(case)
        assert told.output == expected.done, seed
        assert told.causes == expected.causes, seed
        assert told.handed_back == expected.handed_back, seed
        assert told.done == len(expected.done)


def test_batches_of_one_record_are_treated_as_records_are() -> None:
    for seed in range(SEEDS):
        case = make_case(seed, limits=seed % 2 == 0)
        case.rows = 1
        told = run(case.job("arrow"), batches_of(case.records, case.rows), case.alarm())
        expected = expect(case)
        assert (told.output, told.causes) == (expected.done, expected.causes), seed


def test_only_the_culprits_of_a_batch_are_rejected() -> None:
    for seed in range(SEEDS):
        case = make_case(seed, limits=False)
        told = run(case.job("arrow"), batches_of(case.records, case.rows), case.alarm())
        rejected = {at for at, cause in told.causes.items() if cause is Cause.REJECTED}
        waiting = {at for at, cause in told.causes.items() if cause is Cause.HELD_BACK}
        assert rejected == case.fails - waiting, seed


@pytest.mark.parametrize("limits", [False, True])
def test_batches_leave_no_record_out_and_keep_the_order_of_keys(limits: bool) -> None:
    for seed in range(SEEDS):
        case = make_case(seed, limits)
        told = run(case.job("arrow"), batches_of(case.records, case.rows), case.alarm())
        failed: set[int] = set()
        for each in case.records:
            [cell] = [cell for cell in case.cells if cell.contains(each.key_hash)]
            back = told.handed_back.get(cell)
            if back is not None and each.offset >= back:
                assert each.offset not in told.output, seed
                continue
            ways = (each.offset in told.output) + (each.offset in told.causes)
            assert ways == 1, (seed, each)
            cause = told.causes.get(each.offset)
            if each.key is not None and case.terms.keeps_order:
                assert (cause is Cause.HELD_BACK) == (each.key_hash in failed | case.held), seed
            last = case.deliveries.get(each.offset, 0) + 1 >= case.terms.deliveries_max
            if cause in (Cause.REJECTED, Cause.TIMED_OUT) and each.key is not None and not last:
                failed.add(each.key_hash)


def test_a_task_always_gets_on() -> None:
    """However little time there is, something is done or counts as a delivery."""
    for mode in ("record", "arrow"):
        for seed in range(SEEDS):
            case = make_case(seed, limits=True)
            told = run(case.job(mode), batches_of(case.records, case.rows), case.alarm())
            assert told.output or told.causes, (mode, seed)
