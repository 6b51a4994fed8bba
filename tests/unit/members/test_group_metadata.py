"""A member that says something else of itself than when it joined."""

from __future__ import annotations

import pytest

from keyrange.members.model.group_member import GroupMember, GroupState, MemberSettings
from keyrange.members.model.group_messages import (
    Answer,
    Coordinator,
    Heartbeat,
    Join,
    Request,
)

NOW_MS, BEAT_MS = 1_000, 3_000


def asked(member: GroupMember, now_ms: int = NOW_MS) -> Request:
    request = member.next_request(now_ms)
    assert request is not None
    return request


def told(member: GroupMember, answer: Answer) -> Request:
    """Answer the next request, which is given back."""
    request = asked(member)
    member.answered(request, answer, NOW_MS)
    return request


@pytest.mark.parametrize("while_joining", [False, True])
def test_it_joins_once_more(while_joining: bool) -> None:
    """Also where a join with what was said before is under way."""
    member = GroupMember(MemberSettings("g", "a", 45_000, BEAT_MS, 300_000, b"here"))
    told(member, Answer("NONE", coordinator=Coordinator(1, "h", 1)))
    request = asked(member)
    if while_joining:
        member.metadata = b"there"
    member.answered(request, Answer("NONE", "a#1", 5, "x"), NOW_MS)
    told(member, Answer("NONE", assignment=b"yours"))
    assert member.state is GroupState.STABLE
    member.metadata = b"there"
    request = told(member, Answer("NONE", "a#1", 6, "x"))
    assert isinstance(request, Join)
    assert (request.metadata, request.member_id) == (b"there", "a#1")
    told(member, Answer("NONE", assignment=b"yours"))
    assert member.next_request(NOW_MS) is None
    assert isinstance(asked(member, NOW_MS + BEAT_MS), Heartbeat)
