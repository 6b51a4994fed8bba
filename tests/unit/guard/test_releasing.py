"""Letting go of what a guard has throttled: after any of its requests, by reapers and by people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokers.quota_store import Store
from guards.guard_run import SECOND, SETTINGS, Run, begun
from keyrange.guard.model import quota_requests
from keyrange.guard.model.enforcement import Stop, step
from keyrange.guard.model.enforcement_states import GuardState
from keyrange.guard.model.lease import LeaseWatch, read_lease
from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity
from keyrange.guard.model.quota_requests import RECORDS_MAX
from project.forms import everyday


@pytest.fixture
def run() -> Run:
    return begun()


@pytest.mark.parametrize("lives", everyday(*range(6, -1, -1)))
def test_many_entities_take_several_requests_and_any_may_be_the_last(lives: int) -> None:
    """3,100 users: 9,300 records to begin with. The guard dies after each request in turn."""
    store = Store()
    store.alter(Alteration(QuotaEntity(f"u{n}", None), RATE, 50_000.0) for n in range(3_100))
    was = dict(store.quotas)
    run = Run(store, replace(SETTINGS, base=2**20))
    while run.requests < lives:
        for command in run.look():
            assert len(command.alterations) <= RECORDS_MAX
            run.send(command)
            if run.requests == lives:
                break
        run.now_ms += 5 * SECOND
    watch, now_ms = LeaseWatch(), 0
    for _ in range(20):
        watch, commands = quota_requests.reap(watch, store.quotas, now_ms)
        for command in commands[:1]:
            store.alter(command.alterations)
        now_ms += 10 * SECOND

    assert dict(store.quotas) == was


def test_a_reaper_lets_a_living_guard_be(run: Run) -> None:
    watch = LeaseWatch()
    for _ in range(30):
        run.goes(5)
        watch, commands = quota_requests.reap(watch, run.store.quotas, run.now_ms)
        assert commands == ()


def test_what_people_release_needs_no_waiting(run: Run) -> None:
    was = dict(run.store.quotas)
    run.until(GuardState.FLOOR)
    for command in quota_requests.release(run.store.quotas, 0):
        run.store.alter(command.alterations)

    assert dict(run.store.quotas) == was
    assert quota_requests.release(run.store.quotas, 0) == ()


def test_the_lease_goes_with_the_last_request() -> None:
    """A guard that dies in between leaves what says that it held."""
    run = Run(settings=replace(SETTINGS, records_max=10))
    for number in range(8):
        run.set(QuotaEntity(f"u{number}", None), 50_000.0)
    was = dict(run.store.quotas)
    run.until(GuardState.FLOOR)
    run.state, _ = step(run.settings, run.state, Stop(), run.now_ms)
    commands = run.look()
    assert len(commands) > 2
    for command in commands:
        assert len(command.alterations) <= 10
        assert read_lease(run.store.quotas) is not None
        run.send(command)

    assert dict(run.store.quotas) == was
