"""One member of a Kafka group, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.members.model.group_member import GroupMember, GroupState, MemberSettings, nothing
from keyrange.members.model.group_member_states import ENDS, TRANSITIONS, Event
from keyrange.members.model.group_messages import (
    Answer,
    Coordinator,
    FindCoordinator,
    Heartbeat,
    Join,
    Leave,
    Peer,
    Request,
    Sync,
)

HERE, THERE = Coordinator(1, "one", 9092), Coordinator(2, "two", 9092)
SESSION_MS, BEAT_MS, POLL_MS = 45_000, 3_000, 300_000


def settings(instance_id: str | None = "q-0", **changes: Any) -> MemberSettings:
    its: dict[str, Any] = {
        "group": "q.members",
        "instance_id": instance_id,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": BEAT_MS,
        "max_poll_interval_ms": POLL_MS,
        "metadata": b"here",
    }
    return MemberSettings(**(its | changes))


class Talk:
    """A member, its clock and who answers it."""

    def __init__(self, instance_id: str | None = "q-0", **changes: Any) -> None:
        self.member = GroupMember(settings(instance_id, **changes))
        self.now_ms = 1_000

    def ask(self) -> Request:
        """The next request, as soon as the member has one."""
        wake_at_ms = self.member.wake_at_ms
        assert wake_at_ms is not None
        self.now_ms = max(self.now_ms, wake_at_ms)
        request = self.member.next_request(self.now_ms)
        assert request is not None
        assert self.member.next_request(self.now_ms) is None, "one at a time"
        return request

    def hear(self, answer: Answer) -> Request:
        """Answer the next request, which is given back."""
        request = self.ask()
        self.member.answered(request, answer, self.now_ms)
        return request

    def lose(self) -> Request:
        request = self.ask()
        self.member.failed(request, self.now_ms)
        return request

    def joins(self, member_id: str = "q-0#1", generation: int = 5, leader: str = "x") -> None:
        self.hear(Answer("NONE", coordinator=HERE))
        self.hear(Answer("NONE", member_id, generation, leader))
        self.hear(Answer("NONE", assignment=b"yours"))
        assert self.member.state is GroupState.STABLE


def test_a_static_member_joins_and_beats() -> None:
    talk = Talk()
    assert talk.hear(Answer("NONE", coordinator=HERE)) == FindCoordinator("q.members")
    join = Join("q.members", "", "q-0", SESSION_MS, SESSION_MS, "keyrange", b"here")
    assert talk.hear(Answer("NONE", "q-0#1", 5, "x")) == join
    assert talk.member.state is GroupState.SYNCING
    assert talk.hear(Answer("NONE", assignment=b"yours")) == Sync(
        "q.members", "q-0#1", "q-0", 5, "keyrange", {}
    )
    member = talk.member
    assert (member.state, member.assignment, member.generation) == (GroupState.STABLE, b"yours", 5)
    assert not member.is_leader
    assert member.wake_at_ms == talk.now_ms + BEAT_MS
    assert member.next_request(talk.now_ms + BEAT_MS - 1) is None
    assert talk.hear(Answer("NONE")) == Heartbeat("q.members", "q-0#1", "q-0", 5)
    assert member.wake_at_ms == talk.now_ms + BEAT_MS


def test_a_dynamic_member_joins_with_the_id_that_it_is_given_first() -> None:
    talk = Talk(None)
    talk.hear(Answer("NONE", coordinator=HERE))
    assert talk.hear(Answer("MEMBER_ID_REQUIRED", "made-up")).member_id == ""
    now_ms = talk.now_ms
    request = talk.hear(Answer("NONE", "made-up", 1, "made-up", (Peer("made-up", None, b"here"),)))
    assert isinstance(request, Join)
    assert (request.member_id, request.instance_id, talk.now_ms) == ("made-up", None, now_ms)


def test_the_leader_assigns() -> None:
    peers = (Peer("a#1", "a", b"1"), Peer("b#1", "b", b"2"))
    told = []

    def assignor(members: Any) -> dict[str, bytes]:
        told.append(tuple(members))
        return {"a#1": b"half"}

    talk = Talk("a")
    talk.member = GroupMember(settings("a"), assignor)
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("NONE", "a#1", 2, "a#1", peers))
    assert (talk.member.is_leader, talk.member.members) == (True, peers)
    request = talk.hear(Answer("NONE"))
    assert isinstance(request, Sync)
    assert request.assignments == {"a#1": b"half", "b#1": b""}
    assert told == [peers]
    assert nothing(peers) == {"a#1": b"", "b#1": b""}


def test_a_static_member_that_is_given_the_old_leaders_id_leads_nobody() -> None:
    talk = Talk("a")
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("NONE", "a#2", 2, "a#1"))
    request = talk.hear(Answer("NONE", assignment=b"as before"))
    assert isinstance(request, Sync)
    assert request.assignments == {}
    assert talk.member.assignment == b"as before"


@pytest.mark.parametrize("error", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION"])
def test_a_rebalance_is_joined_at_once_with_the_same_id(error: str) -> None:
    talk = Talk()
    talk.joins()
    talk.hear(Answer(error))
    now_ms = talk.now_ms
    request = talk.hear(Answer("NONE", "q-0#1", 6, "x"))
    assert isinstance(request, Join)
    assert (request.member_id, talk.now_ms) == ("q-0#1", now_ms)
    assert talk.member.generation == 6


def test_a_group_waits_for_a_member_as_long_as_for_its_session() -> None:
    talk = Talk()
    talk.joins()
    talk.member.rejoin(talk.now_ms)
    request = talk.hear(Answer("NONE", "q-0#1", 6, "x"))
    assert isinstance(request, Join)
    assert request.rebalance_timeout_ms == talk.member.settings.session_timeout_ms
    assert talk.member.answer_within_ms(request) == request.rebalance_timeout_ms + 5_000


def test_an_unknown_id_is_forgotten() -> None:
    talk = Talk()
    talk.joins()
    talk.hear(Answer("UNKNOWN_MEMBER_ID"))
    assert (talk.member.held_until_ms, talk.member.assignment) == (None, b"")
    request = talk.ask()
    assert isinstance(request, Join)
    assert (request.member_id, request.instance_id) == ("", "q-0")


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", None])
def test_a_lost_coordinator_costs_neither_id_nor_generation(error: str | None) -> None:
    talk = Talk()
    talk.joins()
    if error is None:
        talk.lose()
    else:
        talk.hear(Answer(error))
    assert (talk.member.state, talk.member.coordinator) == (GroupState.FINDING, None)
    talk.hear(Answer("COORDINATOR_NOT_AVAILABLE"))
    talk.hear(Answer("NONE", coordinator=THERE))
    assert talk.member.coordinator == THERE
    assert talk.hear(Answer("NONE")) == Heartbeat("q.members", "q-0#1", "q-0", 5)


def test_a_lost_answer_to_sync_is_asked_for_again() -> None:
    """Joining again with a known id would cost a generation where it is the leader's."""
    talk = Talk()
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("NONE", "q-0#1", 5, "q-0#1", (Peer("q-0#1", "q-0", b""),)))
    first = talk.lose()
    talk.hear(Answer("NONE", coordinator=HERE))
    assert talk.hear(Answer("NONE")) == first
    assert talk.member.state is GroupState.STABLE


def test_pauses_grow_and_end_with_the_first_good_answer() -> None:
    talk = Talk()
    pauses = []
    for _ in range(6):
        before_ms = talk.now_ms
        talk.hear(Answer("COORDINATOR_NOT_AVAILABLE"))
        pauses.append(talk.now_ms - before_ms)
    assert pauses == [0, 100, 200, 400, 800, 1_000]
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("COORDINATOR_LOAD_IN_PROGRESS"))
    assert talk.member.wake_at_ms == talk.now_ms + 100
    assert isinstance(talk.ask(), Join)


def test_a_member_that_is_fenced_sends_nothing_any_more() -> None:
    talk = Talk()
    talk.joins()
    talk.hear(Answer("FENCED_INSTANCE_ID"))
    member = talk.member
    assert member.state is GroupState.FENCED
    assert "[DUPLICATE_STATIC_MEMBER] FENCED_INSTANCE_ID" in (member.failure or "")
    assert "instance_id=q-0" in (member.failure or "")
    assert (member.wake_at_ms, member.held_until_ms) == (None, None)
    assert member.next_request(talk.now_ms + 10**9) is None
    member.close(talk.now_ms)
    member.working(False, talk.now_ms)
    assert member.state is GroupState.FENCED


def test_a_name_that_was_never_confirmed_is_tried_once_more() -> None:
    """A coordinator that moved before it wrote the new id down knows the name under the old one."""
    talk = Talk()
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("NONE", "q-0#2", 5, "x"))
    talk.hear(Answer("FENCED_INSTANCE_ID"))
    assert talk.member.state is GroupState.JOINING
    request = talk.hear(Answer("NONE", "q-0#3", 5, "x"))
    assert isinstance(request, Join)
    assert request.member_id == ""
    talk.hear(Answer("FENCED_INSTANCE_ID"))
    assert talk.member.state is GroupState.FENCED


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        ("INVALID_SESSION_TIMEOUT", "SESSION_TIMEOUT_REFUSED"),
        ("GROUP_AUTHORIZATION_FAILED", "AUTHORIZATION_FAILED"),
        ("UNSUPPORTED_VERSION", "UNSUPPORTED_BROKER"),
        ("INCONSISTENT_GROUP_PROTOCOL", "MEMBER_REFUSED"),
        ("GROUP_MAX_SIZE_REACHED", "MEMBER_REFUSED"),
    ],
)
def test_what_does_not_pass_ends_it_with_a_name(error: str, condition: str) -> None:
    talk = Talk()
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer(error))
    assert talk.member.state is GroupState.FAILED
    assert f"[{condition}] {error}" in (talk.member.failure or "")


def test_a_refusal_to_find_the_coordinator_ends_it_too() -> None:
    talk = Talk()
    talk.hear(Answer("GROUP_AUTHORIZATION_FAILED"))
    assert talk.member.state is GroupState.FAILED


@pytest.mark.parametrize("name", ["", "  "])
def test_a_static_member_has_a_name(name: str) -> None:
    with pytest.raises(KeyrangeError, match=r"\[NO_STATIC_MEMBER_INFO_SET\]"):
        Talk(name)


def test_only_running_work_that_yields_nothing_stalls() -> None:
    """An idle topic is no stall, and progress begins the time anew."""
    talk = Talk()
    talk.joins()
    member = talk.member
    for _ in range(200):
        talk.hear(Answer("NONE"))
    assert member.state is GroupState.STABLE
    member.working(True, talk.now_ms)
    began_ms = talk.now_ms
    member.progressed(began_ms + 1_000)
    while talk.now_ms + BEAT_MS < began_ms + 1_000 + POLL_MS:
        talk.hear(Answer("NONE"))
    assert member.state is GroupState.STABLE
    assert member.wake_at_ms == began_ms + 1_000 + POLL_MS
    assert member.next_request(member.wake_at_ms) is None
    assert member.state is GroupState.IDLE_GIVEN_UP
    assert "[MEMBER_STALLED] running tasks have yielded nothing for 300000 ms" in (
        member.failure or ""
    )
    assert (member.wake_at_ms, member.next_request(talk.now_ms + 10**9)) == (None, None)


@pytest.mark.parametrize("how", ["progress", "end"])
def test_a_static_member_resumes_in_its_generation(how: str) -> None:
    """No LeaveGroup was sent: within the session the group has not noticed."""
    talk = Talk()
    talk.joins()
    talk.member.working(True, talk.now_ms)
    talk.now_ms += POLL_MS
    assert talk.member.next_request(talk.now_ms) is None
    talk.member.progressed(talk.now_ms - POLL_MS)
    assert talk.member.state is GroupState.IDLE_GIVEN_UP
    if how == "progress":
        talk.member.progressed(talk.now_ms)
    else:
        talk.member.working(False, talk.now_ms)
    talk.hear(Answer("NONE", coordinator=HERE))
    assert talk.hear(Answer("NONE")) == Heartbeat("q.members", "q-0#1", "q-0", 5)
    assert talk.member.failure is None


def test_a_static_member_that_resumes_too_late_joins_anew() -> None:
    talk = Talk()
    talk.joins()
    talk.member.working(True, talk.now_ms)
    talk.now_ms += POLL_MS
    assert talk.member.next_request(talk.now_ms) is None
    talk.member.working(False, talk.now_ms)
    talk.hear(Answer("NONE", coordinator=HERE))
    talk.hear(Answer("UNKNOWN_MEMBER_ID"))
    assert isinstance(talk.hear(Answer("NONE", "q-0#2", 7, "x")), Join)


def test_a_dynamic_member_leaves_when_it_stalls_and_joins_when_it_resumes() -> None:
    talk = Talk(None)
    talk.joins("made-up")
    talk.member.working(True, talk.now_ms)
    talk.now_ms += POLL_MS
    leave = talk.member.next_request(talk.now_ms)
    assert leave == Leave("q.members", "made-up")
    assert talk.member.state is GroupState.LEAVING
    talk.member.working(False, talk.now_ms)
    talk.member.answered(leave, Answer("NONE"), talk.now_ms)
    assert (talk.member.state, talk.member.member_id) == (GroupState.FINDING, "")
    talk.hear(Answer("NONE", coordinator=HERE))
    assert isinstance(talk.ask(), Join)


def test_work_may_take_as_long_as_the_session_at_least() -> None:
    talk = Talk(max_poll_interval_ms=10)
    talk.joins()
    talk.member.working(True, talk.now_ms)
    assert talk.member.settings.stall_ms == SESSION_MS


def test_closing() -> None:
    for instance_id in ("q-0", None):
        talk = Talk(instance_id)
        talk.joins("id")
        talk.member.close(talk.now_ms)
        if instance_id is None:
            assert talk.lose() == Leave("q.members", "id")
        assert talk.member.state is GroupState.CLOSED
        assert talk.member.next_request(talk.now_ms) is None
    talk = Talk(None)
    talk.member.close(0)
    assert talk.member.state is GroupState.CLOSED


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    """As that of a heartbeat under an id that was given up: no member is fenced by itself."""
    talk = Talk()
    talk.joins()
    heartbeat = talk.ask()
    talk.member.failed(heartbeat, talk.now_ms)
    talk.member.answered(heartbeat, Answer("FENCED_INSTANCE_ID"), talk.now_ms)
    talk.member.failed(heartbeat, talk.now_ms)
    assert talk.member.state is GroupState.FINDING
    find = talk.ask()
    talk.member.answered(heartbeat, Answer("FENCED_INSTANCE_ID"), talk.now_ms)
    assert talk.member.state is GroupState.FINDING
    talk.member.answered(find, Answer("NONE", coordinator=HERE), talk.now_ms)
    assert talk.member.state is GroupState.STABLE


def test_a_name_is_held_for_a_session_after_the_last_request_that_was_answered_well() -> None:
    talk = Talk()
    talk.joins()
    sent_ms = talk.now_ms
    assert talk.member.held_until_ms == sent_ms + SESSION_MS
    beat = talk.ask()
    sent_ms = talk.now_ms
    talk.member.answered(beat, Answer("NONE"), sent_ms + 40_000)
    assert talk.member.held_until_ms == sent_ms + SESSION_MS
    talk.now_ms += 40_000
    talk.lose()
    assert talk.member.held_until_ms == sent_ms + SESSION_MS


def test_every_state_has_a_way_for_what_can_happen_in_contact() -> None:
    for state in (GroupState.JOINING, GroupState.SYNCING, GroupState.STABLE):
        for event in (Event.LOST, Event.REJOIN, Event.FENCED, Event.REFUSED, Event.CLOSE):
            assert (state, event) in TRANSITIONS
    assert not [state for state, _ in TRANSITIONS if state in ENDS]
