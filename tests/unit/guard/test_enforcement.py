"""A guard that enforces, step by step: ramp, floor, recovery, release, and what comes between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokers.quota_store import Store, without_reserved
from guards.guard_run import ALICE, BOB, FLOOR, SECOND, SETTINGS, Run, begun
from keyrange.guard.model.enforcement import (
    EnforcementState,
    Refused,
    Report,
    Stop,
    step,
)
from keyrange.guard.model.enforcement_states import IDLE, GuardState
from keyrange.guard.model.lease import REMOVED, Lease, is_held, read_lease
from keyrange.guard.model.quota_entities import (
    EVERY_CLIENT,
    Alteration,
    QuotaEntity,
    read_holds,
)


@pytest.fixture
def run() -> Run:
    return begun()


def before(run: Run) -> dict[QuotaEntity, dict[str, float]]:
    return without_reserved(run.store.quotas)


def test_nothing_is_written_while_nothing_is_wrong(run: Run) -> None:
    run.factor = 1.0
    run.goes(600)

    assert run.requests == 0
    assert run.state.stage is GuardState.OPEN


def test_the_ramp_halves_once_a_window_down_to_the_floor(run: Run) -> None:
    rates: dict[QuotaEntity, list[tuple[int, float | None]]] = {ALICE: [], EVERY_CLIENT: []}
    for second in range(60):
        run.goes(1)
        for entity, seen in rates.items():
            if not seen or seen[-1][1] != run.rate(entity):
                seen.append((second, run.rate(entity)))
    taken = 1
    assert rates[ALICE] == [
        (0, 100_000),
        (taken + 11, 50_000),
        (taken + 22, 25_000),
        (taken + 33, 20_000),
    ]
    assert rates[EVERY_CLIENT] == [
        (0, None),
        (taken + 11, 80_000),
        (taken + 22, 40_000),
        (taken + 33, 20_000),
    ]
    assert run.rate(BOB) == 10_000
    assert run.state.stage is GuardState.FLOOR


def test_what_is_held_says_what_was_before(run: Run) -> None:
    run.until(GuardState.FLOOR)

    holds = read_holds(run.store.quotas)
    assert {entity: hold.prior for entity, hold in holds.items()} == {
        ALICE: 100_000,
        EVERY_CLIENT: None,
    }
    assert all(hold.is_ours for hold in holds.values())


def test_at_the_floor_only_the_lease_is_written(run: Run) -> None:
    run.until(GuardState.FLOOR)
    written = [each.entity for _ in range(60) for command in self_driven(run) for each in command]

    assert 4 <= len(written) / 2 <= 6
    assert {each.is_reserved for each in written} == {True}


def self_driven(run: Run) -> list[tuple[Alteration, ...]]:
    sent = []
    for command in run.look():
        run.send(command)
        sent.append(command.alterations)
    run.now_ms += SECOND
    return sent


def test_recovery_rises_by_steps_and_restores_exactly(run: Run) -> None:
    was = before(run)
    run.until(GuardState.FLOOR)
    run.factor = 1.0
    run.goes(1)
    assert run.state.stage is GuardState.RECOVERING
    rates = set()
    while run.state.stage is GuardState.RECOVERING:
        run.goes(1)
        rates.add(run.rate(ALICE))
    run.until(GuardState.OPEN)

    assert rates == {20_000, 80_000, 100_000}
    assert dict(run.store.quotas) == was


def test_recovery_takes_no_longer_than_the_release_time(run: Run) -> None:
    run.settings = replace(SETTINGS, base=2**30)
    run.set(ALICE, float(2**40))
    was = before(run)
    run.until(GuardState.FLOOR)
    run.factor = 1.0
    began_ms = run.now_ms
    run.until(GuardState.OPEN)

    assert run.now_ms - began_ms <= 63 * SECOND
    assert dict(run.store.quotas) == was


def test_full_again_during_recovery(run: Run) -> None:
    was = before(run)
    run.until(GuardState.FLOOR)
    run.factor = 1.0
    run.goes(15)
    risen = run.rate(EVERY_CLIENT)
    assert risen == 80_000
    run.factor = 0.0
    run.until(GuardState.FLOOR, 40)
    run.factor = 1.0
    run.until(GuardState.OPEN)

    assert dict(run.store.quotas) == was


def test_a_part_of_the_quotas(run: Run) -> None:
    run.factor = 0.5
    run.until(GuardState.FLOOR)

    assert (run.rate(ALICE), run.rate(EVERY_CLIENT)) == (50_000, 80_000)
    run.factor = 0.0
    run.until(GuardState.FLOOR)
    assert run.rate(ALICE) == FLOOR
    run.factor = 0.5
    run.until(GuardState.FLOOR)
    assert (run.rate(ALICE), run.rate(EVERY_CLIENT)) == (50_000, 80_000)


def test_nothing_is_begun_before_the_volumes_are_known(run: Run) -> None:
    run.factor = None
    run.goes(100)

    assert run.requests == 0
    assert run.state.stage is GuardState.UNKNOWN


def test_what_another_life_held_is_taken_over_at_its_level(run: Run) -> None:
    was = before(run)
    run.goes(20)
    assert run.rate(ALICE) == 50_000
    run.state = EnforcementState()
    run.factor = None
    run.goes(60)
    assert run.state.stage is GuardState.STANDBY
    run.goes(100)
    assert run.state.stage is GuardState.TAKING
    assert run.rate(ALICE) == 50_000
    run.factor = 0.0
    run.until(GuardState.FLOOR)
    assert run.rate(ALICE) == FLOOR
    run.factor = 1.0
    run.until(GuardState.OPEN)

    assert dict(run.store.quotas) == was


@pytest.mark.parametrize("rate", [5_000.0, 90_000.0, 2.0**40, None])
def test_what_a_person_says_holds(run: Run, rate: float | None) -> None:
    run.goes(20)
    run.set(ALICE, rate)
    run.goes(1)
    assert run.state.yielded == () or run.state.yielded == (ALICE,)
    run.until(GuardState.FLOOR)
    assert run.state.yielded == (ALICE,)
    assert run.rate(ALICE) == rate

    # Also in the eyes of another guard.
    run.state = EnforcementState()
    run.goes(200)
    assert run.rate(ALICE) == rate
    run.factor = 1.0
    run.until(GuardState.OPEN)
    assert run.rate(ALICE) == rate
    assert not is_held(run.store.quotas)


@pytest.mark.parametrize("second", range(13, 36))
def test_what_a_person_says_holds_whenever_it_is_said(run: Run, second: int) -> None:
    run.goes(second)
    run.set(ALICE, 77_777.0)
    run.goes(40)

    assert run.rate(ALICE) == 77_777
    assert read_holds(run.store.quotas)[ALICE].written is None


def test_a_window_begins_when_it_is_known_that_a_rate_was_lowered(run: Run) -> None:
    run.goes(12)
    (slow,) = run.look()
    run.now_ms += 6 * SECOND
    run.send(slow)
    assert run.rate(ALICE) == 50_000

    run.goes(11)
    assert run.rate(ALICE) == 50_000
    run.goes(1)
    assert run.rate(ALICE) == 25_000


@pytest.mark.parametrize("seen", [1, 2])
def test_a_broker_that_lags_behind_is_not_acted_upon(run: Run, seen: int) -> None:
    """It shows the quotas of some requests ago, long after a window."""
    run.goes(30)
    run.now_ms += 11 * SECOND
    before, fresh = len(run.store.versions), run.store
    run.store = Store(versions=fresh.versions[: before - seen])
    commands = run.look()

    assert [each for command in commands for each in command.changes] == []
    assert run.state.stage is GuardState.RAMPING


def test_a_guard_that_hears_nothing_gives_up_and_lets_others(run: Run) -> None:
    run.goes(20)
    silent_ms = run.now_ms
    while run.state.stage not in IDLE:
        for command in run.look():
            run.state, _ = step(run.settings, run.state, Refused(command), run.now_ms)
        run.now_ms += SECOND
    assert run.now_ms - silent_ms <= 32 * SECOND

    run.until(GuardState.TAKING, 70)
    assert run.state.epoch > 0


def test_no_request_is_to_be_sent_late(run: Run) -> None:
    for _ in range(100):
        for command in run.look():
            assert run.now_ms < command.until_ms <= run.now_ms + 12 * SECOND
            run.send(command)
        run.now_ms += SECOND


def test_a_stopped_guard_lets_all_go_at_once(run: Run) -> None:
    was = before(run)
    run.until(GuardState.FLOOR)
    run.state, none = step(run.settings, run.state, Stop(), run.now_ms)
    assert none == ()
    run.goes(2)

    assert run.state.stage is GuardState.OPEN
    assert dict(run.store.quotas) == was
    run.goes(100)
    assert dict(run.store.quotas) == was


def test_an_excluded_user_without_a_quota_keeps_everything_open(run: Run) -> None:
    run.settings = replace(SETTINGS, excluded=frozenset({"tool", "alice"}))
    run.goes(100)
    assert run.state.exposed == ("tool",)
    assert run.requests == 0

    run.set(QuotaEntity("tool", ""), 2.0**40)
    run.until(GuardState.FLOOR)
    assert run.state.exposed == ()
    assert run.rate(ALICE) == 100_000

    run.set(QuotaEntity("tool", ""), None)
    run.until(GuardState.OPEN)
    assert not is_held(run.store.quotas)


def test_who_is_excluded_later_is_let_go(run: Run) -> None:
    run.until(GuardState.FLOOR)
    run.settings = replace(SETTINGS, excluded=frozenset({"alice"}))
    run.goes(2)

    assert run.rate(ALICE) == 100_000
    assert ALICE not in read_holds(run.store.quotas)


def test_of_two_guards_one_throttles(run: Run) -> None:
    other = Run(run.store, replace(SETTINGS, chance=9))
    first, second = run.look(), other.look()
    for command in first:
        run.send(command)
    for command in second:
        other.send(command)
    for _ in range(60):
        run.goes(1)
        other.goes(1)

    assert (run.state.stage, other.state.stage) == (GuardState.STANDBY, GuardState.FLOOR)
    assert read_holds(run.store.quotas)[ALICE].prior == 100_000


def test_a_guard_that_was_paused_sends_nothing_and_stands_by(run: Run) -> None:
    """Its request was made, then the process stood still; another guard has taken over."""
    run.goes(12)
    (late,) = run.look()
    assert late.changes
    other = Run(run.store, replace(SETTINGS, chance=9), now_ms=run.now_ms)
    other.until(GuardState.FLOOR)
    run.now_ms = other.now_ms
    assert run.now_ms > late.until_ms
    run.state, _ = step(run.settings, run.state, Refused(late), run.now_ms)

    assert run.look() == ()
    assert run.state.stage is GuardState.STANDBY
    assert other.state.stage is GuardState.FLOOR


def test_a_late_write_of_an_older_epoch_is_written_over(run: Run) -> None:
    run.goes(30)
    late = Lease(run.state.epoch - 1, 5).alterations()
    run.store.alter(late)
    run.goes(1)

    lease = read_lease(run.store.quotas)
    assert lease is not None
    assert lease.epoch == run.state.epoch


def test_a_lease_that_somebody_took_away_is_lost(run: Run) -> None:
    run.goes(30)
    run.store.alter(REMOVED)
    run.goes(1)

    assert run.state.stage is GuardState.STANDBY


def test_a_dry_run_sends_nothing_and_says_everything(run: Run) -> None:
    run.settings = replace(SETTINGS, dry_run=True)
    was, rates = dict(run.store.quotas), list[float | None]()
    for _ in range(400):
        run.factor = 0.0 if run.now_ms < 200 * SECOND else 1.0
        for command in run.look():
            assert isinstance(command, Report)
            rates += [each.value for each in command.changes if each.entity == ALICE]
        run.now_ms += SECOND

    assert dict(run.store.quotas) == was
    assert rates == [50_000, 25_000, 20_000, 80_000, 100_000, 100_000]
    assert run.state.stage is GuardState.OPEN


def test_a_dry_run_sees_what_people_do(run: Run) -> None:
    run.settings = replace(SETTINGS, dry_run=True)
    for _ in range(100):
        run.look()
        run.now_ms += SECOND
    assert run.state.stage is GuardState.FLOOR
    run.set(ALICE, 70_000.0)
    run.look()
    assert run.state.yielded == (ALICE,)

    run.store.alter(Lease(1, 1).alterations())
    assert run.look() == ()
    assert run.state.stage is GuardState.STANDBY
