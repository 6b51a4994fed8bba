"""What the tables of the volume guard lead to."""

from __future__ import annotations

import pytest

from keyrange.guard.model import enforcement_states, throttle_factor
from keyrange.guard.model.enforcement_states import IDLE, GuardState
from keyrange.guard.model.throttle_factor import ThrottleEvent, ThrottleState


def test_every_sign_leads_somewhere_from_every_standing() -> None:
    assert throttle_factor.TRANSITIONS.keys() == {
        (each, sign) for each in ThrottleState for sign in ThrottleEvent
    }
    assert {*throttle_factor.TRANSITIONS.values()} == set(ThrottleState) - {ThrottleState.UNKNOWN}


@pytest.mark.parametrize("standing", ThrottleState)
def test_a_violation_holds_and_recovery_opens(standing: ThrottleState) -> None:
    assert throttle_factor.TRANSITIONS[standing, ThrottleEvent.VIOLATED] is ThrottleState.HELD
    assert throttle_factor.TRANSITIONS[standing, ThrottleEvent.RECOVERED] is ThrottleState.OPEN


def test_every_stage_is_reached_and_only_release_ends_a_hold_well() -> None:
    assert {*enforcement_states.TRANSITIONS.values()} == set(GuardState)
    idle = {
        (source, sign)
        for (source, sign), target in enforcement_states.TRANSITIONS.items()
        if source not in IDLE and target in IDLE
    }
    lost = {(stage, enforcement_states.GuardEvent.LOST) for stage in set(GuardState) - IDLE}
    assert idle == {*lost, (GuardState.RELEASING, enforcement_states.GuardEvent.DONE)}
