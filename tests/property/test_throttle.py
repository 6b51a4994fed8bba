"""The throttle factor beside a naive one that goes through the whole history at every question,
and a seeded cluster whose volumes fill and empty, whose brokers come and go, and whose checks fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.guard.model.throttle_factor import Throttle
from keyrange.guard.model.volume_readings import VolumeReading
from keyrange.model.volumes import Limit, Policy, Recovery
from project.forms import by_form
from samples.volume_samples import reading, volume

SECOND = 1_000
LIMIT = Limit(min_available_bytes=100)
RECOVERY = Recovery(readings=2, dwell_ms=22 * SECOND)

Check = tuple[int, VolumeReading | None]


@dataclass
class Naive:
    """What the text of the specification and of the hysteresis says, word by word."""

    checks: Sequence[Check]
    validity_ms: int
    fallback: float

    def usable(self, now_ms: int) -> list[int]:
        last: dict[tuple[int, str], tuple[int, int]] = {}
        for at_ms, each in self.checks:
            if at_ms <= now_ms and each is not None:
                for found in each.volumes:
                    last[found.broker, found.log_dir] = at_ms, found.usable_bytes
        return [usable for at_ms, usable in last.values() if now_ms - at_ms <= self.validity_ms]

    def counts(self, check: Check) -> bool:
        at_ms, each = check
        if each is None:
            return False
        is_whole = not each.failure and self.full(at_ms) <= each.brokers
        return is_whole or any(found.usable_bytes <= 100 for found in each.volumes)

    def full(self, now_ms: int) -> set[int]:
        """The brokers that were at the limit when they last answered."""
        last: dict[int, bool] = {}
        for at_ms, each in self.checks:
            if at_ms <= now_ms and each is not None:
                for answer in each.answers:
                    last[answer.broker] = any(v.usable_bytes <= 100 for v in answer.volumes)
        return {broker for broker, is_full in last.items() if is_full}

    def factor(self, now_ms: int) -> float:
        value, valid_ms, since_ms, row = 1.0, 0, 0, 0
        in_fallback, was_held = True, False
        times = [check for check in self.checks if check[0] <= now_ms and self.counts(check)]
        for at_ms, _ in times:
            if at_ms - valid_ms > self.validity_ms:
                in_fallback = True
                was_held = value == 0.0
            free = self.usable(at_ms)
            before = self.fallback if in_fallback else value
            if min(free) <= 100:
                row, after = 0, 0.0
            elif min(free) < 150:
                row, after = 0, 0.0 if (was_held if in_fallback else value == 0.0) else 1.0
            else:
                row += 1
                free_again = row >= 2 and at_ms - since_ms >= RECOVERY.dwell_ms
                after = 1.0 if in_fallback or value == 1.0 or free_again else 0.0
            if (before, in_fallback) != (after, False):
                since_ms = at_ms
            value, valid_ms, in_fallback = after, at_ms, False
        is_old = in_fallback or now_ms - valid_ms > self.validity_ms
        return self.fallback if is_old else value


usables = st.sampled_from([0, 99, 100, 101, 149, 150, 151, 900])
readings = st.builds(
    lambda sizes, silent: reading(
        *(volume(usable, broker) for broker, usable in sizes.items()), silent=silent
    ),
    st.dictionaries(st.integers(1, 3), usables, min_size=1),
    st.sampled_from([(), (), (), (4,)]),
)
checks = st.lists(
    st.tuples(st.sampled_from([1, 10, 30, 60, 61, 120, 121]), st.none() | readings), max_size=30
)


@given(checks, st.sampled_from([60, 120]), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 200))
def test_the_factor_is_the_naive_one(
    steps: list[tuple[int, VolumeReading | None]], validity: int, fallback: float, after: int
) -> None:
    throttle = Throttle(Policy(LIMIT, fallback, validity * SECOND, 60 * SECOND, RECOVERY), 0)
    now_ms, history = 0, list[Check]()
    for seconds, found in steps:
        now_ms += seconds * SECOND
        history.append((now_ms, found))
        if found is None:
            throttle.failed("timed out", now_ms)
        else:
            throttle.observe(found, now_ms)
        naive = Naive(history, validity * SECOND, fallback)
        assert throttle.factor(now_ms).value == naive.factor(now_ms)
    later_ms = now_ms + after * SECOND
    naive = Naive(history, validity * SECOND, fallback)
    assert throttle.factor(later_ms).value == naive.factor(later_ms)


@given(checks, st.lists(st.integers(0, 130)))
def test_when_the_factor_is_asked_changes_nothing(
    steps: list[tuple[int, VolumeReading | None]], questions: list[int]
) -> None:
    policy = Policy(LIMIT, 0.5, 60 * SECOND, 60 * SECOND, RECOVERY)
    quiet, asked = Throttle(policy, 0), Throttle(policy, 0)
    now_ms = 0
    for seconds, found in steps:
        for question in sorted(each for each in questions if each < seconds):
            asked.factor(now_ms + question * SECOND)
        now_ms += seconds * SECOND
        for each in (quiet, asked):
            if found is None:
                each.failed("timed out", now_ms)
            else:
                each.observe(found, now_ms)
    assert quiet.factor(now_ms).value == asked.factor(now_ms).value
    assert quiet.fallback_applied == asked.fallback_applied


@given(st.lists(st.integers(101, 149), min_size=1), st.booleans())
def test_within_the_band_there_is_one_change_at_the_most(free: list[int], full: bool) -> None:
    throttle = Throttle(Policy(LIMIT, recovery=RECOVERY), 0)
    values = [1.0]
    for minute, usable in enumerate([100, *free] if full else free):
        throttle.observe(reading(volume(usable)), minute * 60 * SECOND)
        values.append(throttle.factor(minute * 60 * SECOND).value)
    assert sum(before != after for before, after in pairwise(values)) == full


@dataclass
class Cluster:
    """Volumes of 1,000 bytes that fill and empty, checked once a minute or so."""

    random: Random
    now_ms: int = 0
    free: dict[int, int] = field(default_factory=lambda: {1: 900, 2: 500, 3: 700})
    down: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    # When each volume was told to be at the limit last; when a check was whole last.
    told_full_ms: dict[int, int] = field(default_factory=dict)
    # Who was at the limit when it last answered.
    full: set[int] = field(default_factory=set)
    counted_ms: int | None = None
    whole_ms: int = 0
    said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fallback = self.random.choice([0.0, 0.5, 1.0])
        policy = Policy(LIMIT, self.fallback, 300 * SECOND, 60 * SECOND, RECOVERY)
        self.throttle = Throttle(policy, 0)

    def step(self) -> None:
        random = self.random
        for broker in self.free:
            moved = random.choice([-60, -30, 0, 20, 30])
            if self.free[broker] < 120 and random.random() < 0.2:
                moved = random.choice([60, 400])
            self.free[broker] = min(max(self.free[broker] + moved, 0), 1_000)
        if random.random() < 0.1:
            self.down ^= {random.choice(list(self.free))}
        if random.random() < 0.1:
            self.silent ^= {random.choice(list(self.free))}
        self.now_ms += (
            random.choice([1, 55, 60, 65, 400 if random.random() < 0.05 else 60]) * SECOND
        )
        self.check()
        self.holds()

    def check(self) -> None:
        told = self.free.keys() - self.down - self.silent
        named = self.free.keys() - self.down
        if self.random.random() < 0.15 or not told:
            self.throttle.failed("timed out", self.now_ms)
            return
        volumes = [volume(self.free[broker], broker) for broker in sorted(told)]
        self.throttle.observe(reading(*volumes, silent=tuple(named - told)), self.now_ms)
        full = {each.broker for each in volumes if each.usable_bytes <= 100}
        self.told_full_ms |= dict.fromkeys(full, self.now_ms)
        self.full = (self.full - told) | full
        is_whole = named == told and self.full <= named
        self.counted_ms = self.now_ms if full or is_whole else self.counted_ms
        self.whole_ms = self.now_ms if is_whole else self.whole_ms

    def holds(self) -> None:
        factor = self.throttle.factor(self.now_ms)
        self.said.add(str(factor.standing))
        is_old = self.counted_ms is None or self.now_ms - self.counted_ms > 300 * SECOND
        assert factor.is_fallback == is_old
        assert factor.since_ms <= self.now_ms
        if is_old:
            assert factor.value == self.fallback
        elif self.now_ms in self.told_full_ms.values():
            assert factor.value == 0.0
        elif factor.value == 1.0:
            # It was let through by a whole check, which knew nothing full, nor heard so since.
            assert max(self.told_full_ms.values(), default=-1) < self.whole_ms


@pytest.mark.parametrize("seed", range(by_form(5, 20, 20)))
def test_volumes_fill_and_brokers_come_and_go(seed: int) -> None:
    cluster = Cluster(Random(seed))
    for _ in range(500):
        cluster.step()
    assert {"OPEN", "HELD"} <= cluster.said


def test_the_simulation_goes_everywhere() -> None:
    said: set[str] = set()
    for seed in range(100, 110):
        cluster = Cluster(Random(seed))
        for _ in range(500):
            cluster.step()
        said |= cluster.said
    assert said >= {"OPEN", "HELD", "RECOVERING", "FALLBACK", "FALLBACK_HELD"}
