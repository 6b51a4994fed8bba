"""A member's loop, and questions about a group, against a scripted coordinator."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer.group import JoinGroupRequest, SyncGroupRequest

from keyrange.errors import DeniedError, InvalidError, KeyrangeError, error
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import groups
from keyrange.kafka.retry_deadline import Deadline
from keyrange.members.coordinator_client import (
    GroupView,
    check_session_timeout,
    describe_members,
    remove_member,
    run_member,
)
from keyrange.members.model.group_member import GroupMember, GroupState, MemberSettings
from keyrange.members.model.group_messages import Peer
from keyrange.options.kafka_properties import ClientSettings

FENCED, UNKNOWN, REBALANCE, NOT_COORDINATOR, DENIED = 82, 25, 27, 16, 30
SETTINGS = MemberSettings("g.members", "g-0", 6_000, 1_000, 300_000, b"{}")
DYNAMIC = MemberSettings("g.members", None, 6_000, 1_000, 300_000, b"{}")


def joined(code: int = 0, **values: Any) -> Any:
    usual = {"member_id": "m-1", "generation_id": 3, "leader": "m-1", "members": []}
    return SimpleNamespace(error_code=code, **(usual | values))


def synced(data: bytes = b"", code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, assignment=data)


def said(code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, members=[])


def found(code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, node_id=1, host="c", port=9)


class Coordinator:
    """Stands for a cluster and the one connection to it: answers as scripted, in virtual time.

    An exception in the script is raised in place of an answer; SILENCE never answers.
    """

    settings = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=1)
    SILENCE = object()

    def __init__(self, *script: Any, finds: tuple[Any, ...] = ()) -> None:
        self.script, self.finds = list(script), list(finds)
        self.asked: list[tuple[str, Any]] = []
        self.now, self.closed = 0, 0
        self.answer_in_s: list[float] = []
        self.troubles: list[str] = []
        self.states: list[str] = []
        self.at: Callable[[GroupMember], None] = lambda member: None

    def deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline(5_000 if timeout_ms is None else timeout_ms, self.settings)

    def call_any_broker(self, request: Any, by: Deadline) -> Any:
        assert request.name == "FindCoordinatorRequest"
        return self._next(self.finds) if self.finds else found()

    def connection(self, host: str, port: int, timeout_ms: float | None = None) -> Any:
        assert (host, port) == ("c", 9)
        return self

    def call(self, host: str, port: int, request: Any, by: Deadline) -> Any:
        self.asked.append((request.name, request))
        return self._next(self.script)

    def ask(self, request: Any) -> None:
        self.asked.append((request.name, request))

    def answer(self, by: float) -> Any:
        self.answer_in_s.append(by - time.monotonic())
        return self._next(self.script)

    def fileno(self) -> int:
        return 7

    def set_timeout(self, timeout_ms: float) -> None: ...

    def close(self) -> None:
        self.closed += 1
        if self.script and self.script[0] is self.SILENCE:
            self.script.pop(0)

    def _next(self, script: list[Any]) -> Any:
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def now_ms(self) -> int:
        return self.now

    def look(self, member: GroupMember) -> None:
        if not self.script and member.state is not GroupState.LEAVING:
            member.close(self.now)
        self.at(member)

    def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
        assert timeout_ms >= 0
        if answer_from >= 0 and self.script and self.script[0] is not self.SILENCE:
            self.now += 1
            return True
        self.now += min(max(int(timeout_ms), 1), 1_000)
        return False

    def told(self, member: GroupMember, trouble: str) -> None:
        self.states.append(str(member.state))
        if trouble:
            self.troubles.append(trouble)

    @property
    def requests(self) -> list[str]:
        return [name.removesuffix("Request") for name, _ in self.asked]


def run(coordinator: Any, settings: MemberSettings = SETTINGS) -> GroupMember:
    member = GroupMember(settings)
    run_member(member, coordinator, coordinator)
    return member


def test_a_static_member_joins_beats_and_never_leaves() -> None:
    coordinator = Coordinator(joined(), synced(), said(), said())
    member = run(coordinator)
    assert coordinator.requests == ["JoinGroup", "SyncGroup", "Heartbeat", "Heartbeat"]
    assert member.state is GroupState.CLOSED
    join = coordinator.asked[0][1]
    assert isinstance(join, JoinGroupRequest)
    assert (join.group_instance_id, join.session_timeout_ms) == ("g-0", 6_000)
    beat = coordinator.asked[2][1]
    assert (beat.member_id, beat.generation_id, beat.group_instance_id) == ("m-1", 3, "g-0")


def test_a_dynamic_member_leaves_with_its_id() -> None:
    coordinator = Coordinator(joined(79, member_id="m-9"), joined(member_id="m-9"), synced())
    coordinator.look = leave_after(coordinator, said())  # type: ignore[method-assign]
    run(coordinator, DYNAMIC)
    assert coordinator.requests == ["JoinGroup", "JoinGroup", "SyncGroup", "LeaveGroup"]
    assert coordinator.asked[1][1].member_id == "m-9"
    [leaving] = coordinator.asked[-1][1].members
    assert (leaving.member_id, leaving.group_instance_id) == ("m-9", None)
    assert coordinator.troubles == []


def leave_after(coordinator: Coordinator, answer: Any) -> Callable[[GroupMember], None]:
    """Close the member when the script is over, and answer what it sends then."""
    plain = coordinator.look

    def look(member: GroupMember) -> None:
        over = not coordinator.script and member.state not in (
            GroupState.LEAVING,
            GroupState.CLOSED,
        )
        plain(member)
        if over and member.state is GroupState.LEAVING:
            coordinator.script.append(answer)

    return look


def test_what_the_leader_is_told_and_says_is_unwrapped_and_wrapped() -> None:
    wrapped = join_of(b'{"v":1}').protocols[0].metadata
    members = [
        SimpleNamespace(member_id="m-1", group_instance_id="g-0", metadata=wrapped),
        SimpleNamespace(member_id="m-2", group_instance_id=None, metadata=b"\0\1foreign"),
    ]
    coordinator: Any = Coordinator(joined(members=members), synced(wrapped), said())
    seen: list[Peer] = []

    def assign(peers: Any) -> dict[str, bytes]:
        seen.extend(peers)
        return {"m-2": b"all"}

    member = GroupMember(SETTINGS, assign)
    coordinator.at = lambda each: assignments.add(each.assignment)
    assignments: set[bytes] = set()
    run_member(member, coordinator, coordinator)
    assert seen == [Peer("m-1", "g-0", b'{"v":1}'), Peer("m-2", None, b"")]
    assert b'{"v":1}' in assignments
    sync = coordinator.asked[1][1]
    assert isinstance(sync, SyncGroupRequest)
    given = {each.member_id: each.assignment for each in sync.assignments}
    assert {name: groups.unwrapped(data) for name, data in given.items()} == {
        "m-1": b"",
        "m-2": b"all",
    }


def test_an_assignor_that_fails_with_what_passes_is_asked_again() -> None:
    coordinator: Any = Coordinator(joined(), synced(), said())
    failures = [error("BROKER_UNREACHABLE", "nobody answers")]

    def assign(peers: Any) -> dict[str, bytes]:
        if failures:
            raise failures.pop()
        return {each.member_id: b"" for each in peers}

    run_member(GroupMember(SETTINGS, assign), coordinator, coordinator)
    assert coordinator.requests == ["JoinGroup", "SyncGroup", "Heartbeat"]
    [trouble] = coordinator.troubles
    assert "nobody answers" in trouble
    failures.append(error("ASSIGNMENT_DAMAGED", "a row is cut"))
    other: Any = Coordinator(joined(), synced())
    with pytest.raises(KeyrangeError, match="ASSIGNMENT_DAMAGED"):
        run_member(GroupMember(SETTINGS, assign), other, other)


def join_of(metadata: bytes) -> Any:
    return groups.join_group("g", "", "g-0", "keyrange", metadata, 1, 1)
    return groups.join_group("g", "", "g-0", "keyrange", metadata, 1, 1)


def test_a_heartbeat_tells_that_the_name_was_taken() -> None:
    coordinator = Coordinator(joined(), synced(), said(FENCED), said())
    member = run(coordinator)
    assert member.state is GroupState.FENCED
    assert "FENCED_INSTANCE_ID" in (member.failure or "")
    assert coordinator.troubles == ["Heartbeat: FENCED_INSTANCE_ID"]


def test_an_answer_has_to_be_whole_when_its_request_is_over() -> None:
    """One that begins to come at the last moment, and then trickles, wins no time."""

    class Late(Coordinator):
        def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
            if answer_from >= 0 and self.script:
                self.now += int(timeout_ms) - 30
                return True
            return super().wait(timeout_ms, answer_from)

    coordinator = Late(joined(), synced(), said())
    run(coordinator)
    assert len(coordinator.answer_in_s) >= 3
    assert all(left_s <= 0.03 for left_s in coordinator.answer_in_s)


def test_what_is_usual_in_a_group_is_no_trouble() -> None:
    coordinator = Coordinator(joined(), synced(), said(REBALANCE), joined(), synced())
    run(coordinator)
    assert coordinator.requests[2:] == ["Heartbeat", "JoinGroup", "SyncGroup"]
    assert coordinator.troubles == []


def test_a_member_that_was_dropped_joins_anew_and_says_so() -> None:
    coordinator = Coordinator(joined(), synced(), said(UNKNOWN), joined(), synced())
    run(coordinator)
    assert coordinator.asked[3][1].member_id == ""
    assert coordinator.troubles == ["Heartbeat: UNKNOWN_MEMBER_ID"]


@pytest.mark.parametrize(
    "lost", [ConnectionLost("cut"), error("BROKER_UNREACHABLE", "no"), said(NOT_COORDINATOR)]
)
def test_a_lost_coordinator_is_found_again_with_the_same_generation(lost: Any) -> None:
    coordinator = Coordinator(joined(), synced(), lost, said(), finds=(found(), found(15), found()))
    member = run(coordinator)
    assert coordinator.requests == ["JoinGroup", "SyncGroup", "Heartbeat", "Heartbeat"]
    assert coordinator.asked[3][1].generation_id == 3
    assert member.state is GroupState.CLOSED
    assert len(coordinator.troubles) == 2


def test_what_a_member_comes_to_by_itself_is_told() -> None:
    """Giving up for want of progress is no answer of anybody's."""
    coordinator = Coordinator(joined(), synced(), *[said() for _ in range(400)])
    coordinator.at = lambda member: member.working(True, 0)
    settings = replace(SETTINGS, max_poll_interval_ms=9_000)
    member = GroupMember(settings)
    plain = coordinator.wait

    def wait(timeout_ms: float, answer_from: int = -1) -> bool:
        if member.state is GroupState.IDLE_GIVEN_UP:
            assert coordinator.states[-1] == "IDLE_GIVEN_UP"
            member.close(coordinator.now)
        return plain(timeout_ms, answer_from)

    coordinator.wait = wait  # type: ignore[method-assign]
    run_member(member, coordinator, coordinator)  # type: ignore[arg-type]
    assert coordinator.states[-2:] == ["STABLE", "IDLE_GIVEN_UP"]


def test_a_silent_coordinator_is_given_up_in_time() -> None:
    coordinator = Coordinator(joined(), synced(), Coordinator.SILENCE, said())
    run(coordinator)
    assert coordinator.requests == ["JoinGroup", "SyncGroup", "Heartbeat", "Heartbeat"]
    assert coordinator.closed == 1
    assert "no answer in time" in coordinator.troubles[0]
    assert coordinator.now < 2 * SETTINGS.session_timeout_ms


def test_nobody_waits_for_an_answer_once_it_is_closed() -> None:
    coordinator = Coordinator(Coordinator.SILENCE)
    coordinator.at = lambda member: member.close(0) if coordinator.asked else None
    member = run(coordinator)
    assert member.state is GroupState.CLOSED
    assert coordinator.closed == 1
    assert coordinator.now <= 1_000


def test_what_does_not_pass_is_raised_before_the_first_answer_only() -> None:
    denied = error("SASL_AUTHENTICATION_FAILED", "wrong")
    with pytest.raises(DeniedError, match="SASL_AUTHENTICATION_FAILED"):
        run(Coordinator(joined(), finds=(denied,)))
    coordinator = Coordinator(joined(), synced(), denied, said())
    assert run(coordinator).state is GroupState.CLOSED
    assert "SASL_AUTHENTICATION_FAILED" in coordinator.troubles[0]


def group(code: int = 0, *members: Any) -> Any:
    described = SimpleNamespace(error_code=code, group_state="Stable", members=list(members))
    return SimpleNamespace(groups=[described])


def test_members_are_described() -> None:
    wrapped = join_of(b"{}").protocols[0].metadata
    member = SimpleNamespace(
        member_id="m-1", group_instance_id="g-0", client_host="/10.0.0.7", member_metadata=wrapped
    )
    coordinator: Any = Coordinator(group(NOT_COORDINATOR), group(0, member))
    view = GroupView("Stable", (Peer("m-1", "g-0", b"{}", "10.0.0.7"),))
    assert describe_members(coordinator, "g") == view
    coordinator = Coordinator(group(69))
    assert describe_members(coordinator, "g") == GroupView("Dead")


def removed(code: int = 0, each: int = 0) -> Any:
    return SimpleNamespace(error_code=code, members=[SimpleNamespace(error_code=each)])


def test_a_member_is_removed_by_its_name() -> None:
    coordinator: Any = Coordinator(removed(NOT_COORDINATOR), removed())
    assert remove_member(coordinator, "g", "g-0")
    [leaving] = coordinator.asked[-1][1].members
    assert (leaving.member_id, leaving.group_instance_id) == ("", "g-0")
    assert not remove_member(Coordinator(removed(0, UNKNOWN)), "g", "g-1")  # type: ignore[arg-type]


QUESTIONS = [
    (describe_members, group),
    (lambda cluster, name: remove_member(cluster, name, "g-0"), removed),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=["describe", "remove"])
def test_a_refusal_names_the_group(question: tuple[Callable[..., Any], Any]) -> None:
    ask, answer = question
    with pytest.raises(DeniedError, match=r"AUTHORIZATION_FAILED.*'g'"):
        ask(Coordinator(answer(DENIED)), "g")
    with pytest.raises(KeyrangeError, match=r"BROKER_ERROR.*INVALID_GROUP_ID"):
        ask(Coordinator(answer(24)), "g")


def configs(least: str | None, most: str | None, code: int = 0) -> Any:
    values = {"group.min.session.timeout.ms": least, "group.max.session.timeout.ms": most}
    rows = [SimpleNamespace(name=name, value=value) for name, value in values.items()]
    return SimpleNamespace(results=[SimpleNamespace(error_code=code, configs=rows)])


@pytest.mark.parametrize(
    "said", [configs("6000", "1800000"), configs(None, None), configs("1", "2", 31), OSError]
)
def test_a_session_that_may_be_taken_is_tried(said: Any) -> None:
    script = ConnectionLost("cut") if said is OSError else said
    check_session_timeout(Coordinator(script), "g", 6_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_out_of_bounds_is_named_with_them(session_ms: int) -> None:
    coordinator: Any = Coordinator(configs("6000", "1800000"))
    with pytest.raises(InvalidError, match=r"SESSION_TIMEOUT_REFUSED.*6000.*1800000"):
        check_session_timeout(coordinator, "g", session_ms)


FOREIGN = [b"", bytes(7), bytes(9)]
FOREIGN += [struct.pack(">hii", *head) + b"{}" for head in ((1, 0, 2), (0, 1, 2), (0, 0, 3))]


@pytest.mark.parametrize("data", FOREIGN)
def test_what_is_not_wrapped_is_foreign(data: bytes) -> None:
    assert groups.unwrapped(data) == b""
