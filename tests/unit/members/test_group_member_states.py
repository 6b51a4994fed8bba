"""Where the life of a group's member ends."""

from __future__ import annotations

from keyrange.members.model.group_member_states import ENDS, TRANSITIONS, GroupState


def test_nothing_leads_out_of_an_end_and_everything_to_one() -> None:
    sources = {source for source, _ in TRANSITIONS}
    assert sources == set(GroupState) - ENDS
    for state in sources:
        nexts = {to for (source, _), to in TRANSITIONS.items() if source is state}
        assert GroupState.CLOSED in nexts, state
