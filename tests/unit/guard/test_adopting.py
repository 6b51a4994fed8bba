"""What an earlier life of a guard has held, in the hands of one that does not remember why."""

from __future__ import annotations

import pytest

from guards.guard_run import ALICE, FLOOR, Run, begun
from keyrange.guard.model.enforcement import EnforcementState, Stop, next_look_ms, step
from keyrange.guard.model.enforcement_states import GuardState


@pytest.fixture
def run() -> Run:
    return begun()


def test_what_another_life_held_is_not_let_go_before_all_have_recovered(run: Run) -> None:
    """Who was born between limit and recovery does not remember that a volume was full."""
    was = dict(run.store.quotas)
    run.goes(20)
    run.state = EnforcementState()
    run.factor, run.has_recovered = 1.0, False
    run.goes(300)
    assert run.state.stage is GuardState.TAKING
    assert run.rate(ALICE) == 50_000
    assert next_look_ms(run.settings, run.state) > 5_000
    run.has_recovered = True
    run.until(GuardState.OPEN)
    assert dict(run.store.quotas) == was


def test_what_another_life_held_falls_on_when_a_volume_is_full(run: Run) -> None:
    """And from then on it is this life that holds: the factor alone says when to let go."""
    run.goes(20)
    run.state = EnforcementState()
    run.factor, run.has_recovered = 1.0, False
    run.goes(100)
    run.factor = 0.0
    run.until(GuardState.FLOOR)
    assert run.rate(ALICE) == FLOOR
    run.factor = 1.0
    run.until(GuardState.OPEN)


def test_a_guard_that_was_adopting_lets_go_when_it_is_stopped(run: Run) -> None:
    was = dict(run.store.quotas)
    run.goes(20)
    run.state = EnforcementState()
    run.factor, run.has_recovered = 1.0, False
    run.goes(100)
    run.state, _ = step(run.settings, run.state, Stop(), run.now_ms)
    run.goes(2)
    assert dict(run.store.quotas) == was
