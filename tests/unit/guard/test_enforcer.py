"""The guard's loop, and reapers, with quotas in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.guard import enforcer as enforcer_module
from keyrange.guard.enforcer import Enforcer, QuotaStore, described
from keyrange.guard.model.enforcement import Settings
from keyrange.guard.model.enforcement_states import GuardState
from keyrange.guard.model.quota_entities import CANARY, RATE, Alteration, QuotaEntity
from keyrange.guard.model.quota_requests import Alter
from keyrange.guard.model.throttle_factor import Factor, ThrottleState
from keyrange.guard.reaper import reap_dead, release_all

ALICE, BOB = QuotaEntity("alice", None), QuotaEntity("bob", None)
FLOOR, BASE = 100_000, 10_000_000


class MemoryStore(QuotaStore):
    """Quotas as a broker keeps them; `fails` are raised by the next requests, in their order."""

    def __init__(self, quotas: dict[QuotaEntity, dict[str, float]]) -> None:
        self.quotas = {entity: dict(values) for entity, values in quotas.items()}
        self.fails: list[KeyrangeError | None] = []
        self.asked: list[bool] = []

    def read(self) -> dict[QuotaEntity, dict[str, float]]:
        return {entity: dict(values) for entity, values in self.quotas.items()}

    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        self.asked.append(validate_only)
        failure = self.fails.pop(0) if self.fails else None
        if failure is not None:
            raise failure
        if not validate_only:
            for each in alterations:
                self._apply(self.quotas, each)

    @staticmethod
    def _apply(quotas: dict[QuotaEntity, dict[str, float]], each: Alteration) -> None:
        values = quotas.setdefault(each.entity, {})
        values.pop(each.key, None)
        if each.value is not None:
            values[each.key] = each.value
        if not values:
            del quotas[each.entity]


class RacedStore(MemoryStore):
    """The next request that changes alice's quota goes to `meanwhile`, once."""

    meanwhile: Callable[[Iterable[Alteration]], None] | None = None

    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        request, meanwhile = tuple(alterations), self.meanwhile
        if validate_only or meanwhile is None or all(each.entity != ALICE for each in request):
            super().alter(request, validate_only)
            return
        self.meanwhile = None
        meanwhile(request)

    def apply(self, alterations: Iterable[Alteration]) -> None:
        for each in alterations:
            self._apply(self.quotas, each)


class LaggingStore(MemoryStore):
    """Shows for `lag` looks what was there before the last change."""

    lag = 0
    before: dict[QuotaEntity, dict[str, float]] | None = None

    def read(self) -> dict[QuotaEntity, dict[str, float]]:
        if self.before is not None and self.lag:
            self.lag -= 1
            return self.before
        return super().read()

    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        self.before = super().read() if self.lag else None
        super().alter(alterations, validate_only)


class Guard:
    """A guard in a time that a test moves."""

    def __init__(self, store: MemoryStore, dry_run: bool = False, chance: int = 7) -> None:
        self.store, self.now_ms = store, 1_000
        self.value = 0.0
        self.said: list[tuple[str, dict[str, Any]]] = []
        settings = Settings(
            floor=FLOOR, base=BASE, stamp=1_700_000_000, chance=chance, dry_run=dry_run
        )
        self.enforcer = Enforcer(
            settings,
            store,
            self._factor,
            lambda what, details: self.said.append((what, details)),
            lambda: self.now_ms,
        )

    def _factor(self) -> Factor:
        standing = ThrottleState.HELD if self.value < 1 else ThrottleState.OPEN
        return Factor(self.value, "", 0, False, (), None, standing)

    def stops(self, monkeypatch: pytest.MonkeyPatch) -> bool:
        """As on SIGTERM; the guard's time passes while it sleeps."""
        slept = SimpleNamespace(sleep=lambda _: setattr(self, "now_ms", self.now_ms + 500))
        monkeypatch.setattr(enforcer_module, "time", slept)
        stop = threading.Event()
        stop.set()
        return self.enforcer.run(stop)

    def looks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.enforcer.look()
            self.now_ms += 1_000

    def what(self) -> set[str]:
        return {what for what, _ in self.said}


PRIOR = {ALICE: {RATE: 4_000_000.0}, BOB: {"consumer_byte_rate": 1_000.0}}


def rate(store: MemoryStore, entity: QuotaEntity) -> float:
    return store.read()[entity][RATE]


def test_rates_fall_to_the_floor_and_come_back_exactly() -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    guard.looks(30)
    assert FLOOR < rate(store, ALICE) < 4_000_000
    guard.looks(120)
    assert rate(store, ALICE) == FLOOR
    assert store.quotas[BOB] == PRIOR[BOB]
    guard.value = 1.0
    guard.looks(200)
    assert store.quotas == PRIOR
    assert guard.enforcer.state.stage is GuardState.OPEN
    # Each request was validated before.
    assert store.asked[::2] == [True] * (len(store.asked) // 2)
    assert store.asked[1::2] == [False] * (len(store.asked) // 2)


def test_a_dry_run_says_all_and_writes_nothing() -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store, dry_run=True)
    guard.looks(150)
    guard.value = 1.0
    guard.looks(200)
    assert store.asked == []
    assert store.quotas == PRIOR
    told = [quota for what, said in guard.said if what == "would alter" for quota in said["quotas"]]
    rates = [quota["value"] for quota in told if quota["entity"] == "user alice"]
    assert rates[0] == 2_000_000
    assert FLOOR in rates
    assert rates[-1] == 4_000_000


def test_what_fails_is_said_once_and_tried_again() -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    store.fails = [error("QUOTAS_UNAVAILABLE", "no controller")] * 3
    guard.looks(60)
    assert sum(what == "trouble" for what, _ in guard.said) == 1
    assert rate(store, ALICE) < 4_000_000


def test_a_guard_that_is_stopped_releases_all(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    guard.looks(60)
    assert rate(store, ALICE) < 4_000_000
    assert guard.stops(monkeypatch)
    assert store.quotas == PRIOR


@pytest.mark.parametrize("is_over", [False, True])
def test_a_guard_says_that_it_could_not_release(
    is_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writes are refused, still or just long enough that its lease was lost."""
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    guard.looks(60)
    store.fails = [error("QUOTAS_UNAVAILABLE", "no controller")] * 1_000
    if is_over:
        guard.looks(32)
        assert guard.enforcer.state.stage is GuardState.STANDBY
        store.fails = []
    assert not guard.stops(monkeypatch)
    assert rate(store, ALICE) < 4_000_000


def test_what_another_guard_holds_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(PRIOR)
    guard, other = Guard(store), Guard(store, chance=8)
    guard.looks(60)
    store.fails = [error("QUOTAS_UNAVAILABLE", "no controller")] * 1_000
    guard.looks(32)
    store.fails = []
    other.looks(90)
    assert other.enforcer.state.epoch
    assert guard.stops(monkeypatch)


def test_a_write_that_arrives_after_a_release_is_restored_too() -> None:
    store = RacedStore(PRIOR)
    guard = Guard(store)
    guard.looks(13)
    time = Time()

    def release(alterations: Iterable[Alteration]) -> None:
        assert release_all(store, 60_000, lambda *_: None, time, time.sleep)
        assert store.quotas == PRIOR
        store.apply(alterations)

    store.meanwhile = release
    guard.looks(40)
    assert store.meanwhile is None
    assert rate(store, ALICE) < 4_000_000
    guard.value = 1.0
    guard.looks(200)
    assert store.quotas == PRIOR


def test_a_write_that_arrives_after_a_person_has_the_quota_mutes_nobody() -> None:
    """Kafka has no compare-and-set: the person's edit is lost, and what was before comes back."""
    store = RacedStore(PRIOR)
    guard = Guard(store)
    guard.looks(30)
    late: list[Alteration] = []

    def delay(alterations: Iterable[Alteration]) -> None:
        late.extend(alterations)
        raise error("QUOTAS_UNAVAILABLE", "no answer in time")

    store.meanwhile = delay
    guard.looks(20)
    assert late
    store.quotas[ALICE][RATE] = 50_000_000.0
    guard.looks(2)
    assert guard.enforcer.state.yielded == (ALICE,)
    store.apply(late)
    guard.value = 1.0
    guard.looks(200)
    assert store.quotas == PRIOR


class Time:
    """For a reaper: passes while it sleeps."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.on_sleep = lambda: None

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)
        self.on_sleep()


def reaped(store: MemoryStore, time: Time) -> tuple[bool, list[str]]:
    said: list[str] = []
    done = reap_dead(store, 60_000, lambda what, _: said.append(what), time, time.sleep)
    return done, said


def test_a_reaper_releases_what_a_dead_guard_holds() -> None:
    store = MemoryStore(PRIOR)
    Guard(store).looks(60)
    time = Time()
    assert reaped(store, time) == (True, ["released"])
    assert store.quotas == PRIOR
    assert 60_000 <= time.now_ms <= 120_000
    assert reaped(store, Time()) == (True, ["nothing is held"])


def test_a_reaper_leaves_alone_what_a_living_guard_holds() -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    guard.looks(60)
    held = rate(store, ALICE)
    time = Time()
    time.on_sleep = lambda: guard.looks(20)
    assert reaped(store, time) == (False, ["a guard lives"])
    assert rate(store, ALICE) <= held


def test_a_reaper_waits_until_the_brokers_have_heard_of_it() -> None:
    store = LaggingStore(PRIOR)
    Guard(store).looks(60)
    time = Time()
    store.lag = 3
    assert reaped(store, time) == (True, ["released"])
    assert store.quotas == PRIOR


def test_a_reaper_that_stood_still_looks_again() -> None:
    """What it has read is over: somebody has set a quota meanwhile."""
    store = MemoryStore(PRIOR)
    Guard(store).looks(60)
    time, alter = Time(), store.alter

    def slow(alterations: Iterable[Alteration], validate_only: bool) -> None:
        if validate_only and time.now_ms < 3_600_000:
            time.now_ms += 3_600_000
            store.quotas[ALICE][RATE] = 50_000_000.0
        alter(alterations, validate_only)

    store.alter = slow  # type: ignore[method-assign]
    assert reaped(store, time) == (True, ["trouble", "released"])
    assert store.quotas == PRIOR | {ALICE: {RATE: 50_000_000.0}}


def test_people_release_whatever_is_held() -> None:
    store = MemoryStore(PRIOR)
    Guard(store).looks(60)
    said, time = list[str](), Time()
    assert release_all(store, 60_000, lambda what, _: said.append(what), time, time.sleep)
    assert (store.quotas, said) == (PRIOR, ["released"])
    assert time.now_ms > 11_000
    again = Time()
    assert release_all(store, 60_000, lambda what, _: said.append(what), again, again.sleep)
    assert said == ["released", "nothing is held"]


def test_that_a_living_guard_throttles_again_is_said() -> None:
    store = MemoryStore(PRIOR)
    guard = Guard(store)
    guard.looks(60)
    said, time = list[str](), Time()
    time.on_sleep = lambda: guard.looks(1)
    assert not release_all(store, 60_000, lambda what, _: said.append(what), time, time.sleep)
    assert said == ["released", "a guard lives"]


def test_what_a_dead_guard_was_trying_out_is_removed() -> None:
    """It died while it tried whether quotas count, and held nothing yet."""
    canaries = {QuotaEntity(user, CANARY): {RATE: 1_024.0} for user in (None, "", "guard")}
    store = MemoryStore({**PRIOR, **canaries})
    assert reaped(store, Time()) == (True, ["released"])
    assert store.quotas == PRIOR


def test_markers_are_not_told_of() -> None:
    own = QuotaEntity(None, "__volume_guard.lease")
    found = described(Alter((Alteration(own, RATE, 1.0), Alteration(ALICE, RATE, None)), 0))
    assert found == {"quotas": [{"entity": "user alice", "key": RATE, "value": None}]}
