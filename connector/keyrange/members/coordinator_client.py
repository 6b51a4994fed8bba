"""A member of a Kafka group at its coordinator, and what the coordinator says of all members.

What a member does next is decided by `members/model/group_member.py`; this sends it and tells it
what came of it. Nothing else goes over the member's connections, so a rebalance or a slow broker
holds up nobody else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.groups import ask_coordinator, passing
from keyrange.kafka.messages import groups, protocol
from keyrange.kafka.messages.admin import Resource, describe_configs
from keyrange.kafka.messages.protocol import Code
from keyrange.members.model.group_member import GroupMember
from keyrange.members.model.group_member_states import ENDS, GroupState
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
    ToCoordinator,
)
from keyrange.members.model.join_metadata import MemberMetadata, read_metadata
from keyrange.members.model.reassignment_timing import Present

_log = logging.getLogger(__name__)

# Who looks for a broker sees nothing else meanwhile: neither a signal nor the end of its executor.
_SEARCH_MS: Final = 4_000
# What is said in a group's usual course.
_USUAL: Final = frozenset(("NONE", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS"))
# After how long a leader asks its assignor again.
_AGAIN_MS: Final = 500
# Where nothing else is due, how long a member may be left alone.
_REST_MS: Final = 60_000

# What makes the message of a request's fields.
_MESSAGES: Final[Mapping[type, Callable[..., Any]]] = {
    Join: groups.join_group,
    Sync: groups.sync_group,
    Heartbeat: groups.heartbeat,
    Leave: groups.leave_group,
}

_REBALANCING: Final = frozenset(("PreparingRebalance", "CompletingRebalance"))
SESSION_LEAST: Final = "group.min.session.timeout.ms"
SESSION_MOST: Final = "group.max.session.timeout.ms"


class Surroundings(Protocol):
    """The clock of a member, and all that happens beside its group."""

    def now_ms(self) -> int: ...

    def look(self, member: GroupMember) -> None:
        """Tell the member what has happened: work that runs, or that it is to close."""

    def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
        """Wait for so long, or until something has happened that `look` tells of; True as soon as
        the descriptor `answer_from` can be read."""

    def told(self, member: GroupMember, trouble: str) -> None:
        """How the member stands, whenever that may have changed; `trouble` is what went wrong."""


def run_member(member: GroupMember, cluster: Cluster, around: Surroundings) -> None:
    """A member's life, until it is closed, fenced or refused.

    What passes by itself (a coordinator that moves, brokers that restart) is tried again for ever.
    Before the first answer of a coordinator what does not pass is raised: a wrong address has to be
    named while somebody is looking.
    """
    heard = False
    while member.state not in ENDS:
        around.look(member)
        if member.state in ENDS:
            break
        try:
            request = member.next_request(around.now_ms())
        except KeyrangeError as failure:
            # A leader could not say who gets what: the others wait for it as long as it may take.
            if not failure.retriable:
                raise
            around.told(member, str(failure))
            around.wait(_AGAIN_MS)
            continue
        if request is None:
            around.told(member, "")
            wake_at_ms = member.wake_at_ms
            rest_ms = _REST_MS if wake_at_ms is None else wake_at_ms - around.now_ms()
            around.wait(max(rest_ms, 0))
            continue
        trouble = ""
        try:
            answer = _ask(member, cluster, around, request)
        except (KeyrangeError, ConnectionLost) as failure:
            if isinstance(failure, KeyrangeError) and not failure.retriable and not heard:
                raise
            trouble = f"{type(request).__name__}: {failure}"
            member.failed(request, around.now_ms())
        else:
            heard = heard or not isinstance(request, FindCoordinator)
            if answer.error not in _USUAL:
                trouble = f"{type(request).__name__}: {answer.error}"
            member.answered(request, answer, around.now_ms())
        around.told(member, trouble)


def _ask(member: GroupMember, cluster: Cluster, around: Surroundings, request: Request) -> Answer:
    """The coordinator's answer; raises ConnectionLost where there is none, or nobody waits for it
    any longer, and as `Cluster.connection` does."""
    if isinstance(request, FindCoordinator):
        find = protocol.find_coordinator(request.group_id)
        by = cluster.deadline(_SEARCH_MS)
        return _found(cluster.call_any_broker(find, by))
    place = member.coordinator
    if place is None:
        raise ConnectionLost("no coordinator is known")
    connection = cluster.connection(place.host, place.port, _SEARCH_MS)
    message = _MESSAGES[type(request)]
    values = {each.name: getattr(request, each.name) for each in fields(request)}
    connection.ask(message(**values))
    limit_ms = member.answer_within_ms(request)
    until_ms = around.now_ms() + limit_ms
    while not around.wait(max(until_ms - around.now_ms(), 0), connection.fileno()):
        around.look(member)
        closed = member.state in ENDS or (member.state is GroupState.LEAVING) != isinstance(
            request, Leave
        )
        if closed or around.now_ms() >= until_ms:
            connection.close()
            raise ConnectionLost("nobody waits for the answer" if closed else "no answer in time")
    # What has begun to come has to be whole as soon.
    whole_by = time.monotonic() + max(until_ms - around.now_ms(), 0) / 1000
    return _answer(request, connection.answer(whole_by))


def _answer(request: ToCoordinator, answer: Any) -> Answer:
    name = protocol.error_name(answer.error_code)
    match request:
        case Join():
            members = tuple(
                Peer(each.member_id, each.group_instance_id, groups.unwrapped(each.metadata))
                for each in answer.members
            )
            return Answer(name, answer.member_id, answer.generation_id, answer.leader, members)
        case Sync():
            return Answer(name, assignment=groups.unwrapped(answer.assignment))
        case Leave():
            said = [each.error_code for each in answer.members if each.error_code]
            return Answer(protocol.error_name(said[0]) if said and not answer.error_code else name)
        case Heartbeat():
            return Answer(name)


def _found(answer: Any) -> Answer:
    if answer.error_code:
        return Answer(protocol.error_name(answer.error_code))
    place = Coordinator(answer.node_id, answer.host, answer.port)
    return Answer("NONE", coordinator=place)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as its coordinator has it. `state` is Kafka's word: Stable, Empty, Dead (there is no
    such group), PreparingRebalance, CompletingRebalance. Kafka tells the generation to members
    alone."""

    state: str
    members: tuple[Peer, ...] = ()

    @property
    def is_rebalancing(self) -> bool:
        """Then nobody's metadata are told, and some members may not have joined yet."""
        return self.state in _REBALANCING


def describe_members(cluster: Cluster, group: str) -> GroupView:
    """Who is in a group.

    Raises AUTHORIZATION_FAILED, GROUP_COORDINATOR_UNAVAILABLE, BROKER_UNREACHABLE.
    """
    view = GroupView("Dead")

    def read(answer: Any) -> str:
        nonlocal view
        [described] = answer.groups
        if described.error_code == Code.GROUP_ID_NOT_FOUND:
            return ""
        if described.error_code:
            return passing(group, described.error_code, _not_described)
        members = tuple(
            Peer(
                each.member_id,
                each.group_instance_id,
                groups.unwrapped(each.member_metadata),
                each.client_host.lstrip("/"),
            )
            for each in described.members
        )
        view = GroupView(described.group_state, members)
        return ""

    request = groups.describe_group(group)
    ask_coordinator(cluster, group, lambda: request, read, _not_described)
    return view


def remove_member(cluster: Cluster, group: str, instance_id: str) -> bool:
    """Put a static member out of its group; False where the group has none of that name.

    A member that lives is fenced by it, and ends. Raises as `describe_members` does.
    """
    removed = False

    def read(answer: Any) -> str:
        nonlocal removed
        codes = [answer.error_code, *(each.error_code for each in answer.members)]
        code = next((each for each in codes if each), Code.NONE)
        if code == Code.UNKNOWN_MEMBER_ID:
            return ""
        if code:
            return passing(group, code, _not_removed)
        removed = True
        return ""

    request = groups.leave_group(group, "", instance_id)
    ask_coordinator(cluster, group, lambda: request, read, _not_removed)
    return removed


def check_session_timeout(cluster: Cluster, group: str, session_timeout_ms: int) -> None:
    """Ask the group's coordinator which session timeouts it takes, where it lets us ask.

    Raises SESSION_TIMEOUT_REFUSED that names the broker's two properties and their values. Where
    they may not be read, or nobody answers, joining will tell.
    """
    by = cluster.deadline(_SEARCH_MS)
    find = protocol.find_coordinator(group)
    names = (SESSION_LEAST, SESSION_MOST)
    try:
        found = cluster.call_any_broker(find, by)
        # The first group of a cluster has its brokers make the topic of all groups first.
        while protocol.is_retriable(found.error_code) and not by.passed:
            by.pause()
            found = cluster.call_any_broker(find, by)
        if found.error_code:
            return
        request = describe_configs(Resource.BROKER, [str(found.node_id)], names)
        answer = cluster.call(found.host, found.port, request, by)
    except (KeyrangeError, ConnectionLost) as failure:
        _log.info("the broker's session timeouts cannot be read: %s", failure)
        return
    values = {
        each.name: int(each.value)
        for result in answer.results
        if not result.error_code
        for each in result.configs
        if each.value and each.value.isdigit()
    }
    least, most = values.get(SESSION_LEAST, 0), values.get(SESSION_MOST, 2**31 - 1)
    if not least <= session_timeout_ms <= most:
        raise error(
            "SESSION_TIMEOUT_REFUSED",
            "the broker would refuse session.timeout.ms with INVALID_SESSION_TIMEOUT",
            **{"session.timeout.ms": session_timeout_ms, SESSION_LEAST: least, SESSION_MOST: most},
        )


def _failed(group: str, code: int, what: str) -> KeyrangeError:
    is_denied = code == Code.GROUP_AUTHORIZATION_FAILED
    condition = "AUTHORIZATION_FAILED" if is_denied else "BROKER_ERROR"
    return error(condition, f"group '{group}' {what}: {protocol.error_name(code)}")


_not_described: Final = partial(_failed, what="cannot be described")
_not_removed: Final = partial(_failed, what="does not let go of its member")


def read_members(group: GroupView) -> tuple[list[Present], dict[str, MemberMetadata]]:
    """Who in a group says that it is one of keyrange's members, and what each says, by slot."""
    present: dict[str, Present] = {}
    said: dict[str, MemberMetadata] = {}
    for each in group.members:
        told = read_metadata(each.metadata)
        if told is None:
            _log.warning("a member of the group is none of keyrange's: %s", each.client_host)
        else:
            present[told.slot] = Present(told.slot, each.instance_id is not None, told.cores)
            said[told.slot] = told
    return [present[slot] for slot in sorted(present)], said
