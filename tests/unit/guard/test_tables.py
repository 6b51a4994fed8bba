"""What the tables of the volume guard lead to."""

from __future__ import annotations

import pytest

from keyrange.guard.model import stages, standings
from keyrange.guard.model.stages import IDLE, Stage
from keyrange.guard.model.standings import Sign, Standing


def test_every_sign_leads_somewhere_from_every_standing() -> None:
    assert standings.TRANSITIONS.keys() == {(each, sign) for each in Standing for sign in Sign}
    assert {*standings.TRANSITIONS.values()} == set(Standing) - {Standing.UNKNOWN}


@pytest.mark.parametrize("standing", Standing)
def test_a_violation_holds_and_recovery_opens(standing: Standing) -> None:
    assert standings.TRANSITIONS[standing, Sign.VIOLATED] is Standing.HELD
    assert standings.TRANSITIONS[standing, Sign.RECOVERED] is Standing.OPEN


def test_every_stage_is_reached_and_only_release_ends_a_hold_well() -> None:
    assert {*stages.TRANSITIONS.values()} == set(Stage)
    idle = {
        (source, sign)
        for (source, sign), target in stages.TRANSITIONS.items()
        if source not in IDLE and target in IDLE
    }
    lost = {(stage, stages.Sign.LOST) for stage in set(Stage) - IDLE}
    assert idle == {*lost, (Stage.RELEASING, stages.Sign.DONE)}
