"""The coordinator of a Kafka group in memory: the classic protocol as brokers keep it, for static
and dynamic members, with sessions, rebalances, and what is left of a group when it moves.

Written from the broker's behaviour, not from the client's: nothing of keyrange but its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

from keyrange.members.model.group_messages import (
    Answer,
    Heartbeat,
    Join,
    Leave,
    Peer,
    Sync,
)

Reply = Callable[[Answer], None]
EMPTY, PREPARING, COMPLETING, STABLE = "EMPTY", "PREPARING", "COMPLETING", "STABLE"
# How long the first members of a group wait for others.
INITIAL_DELAY_MS = 3_000


@dataclass
class Kept:
    """A member, as the group keeps it."""

    member_id: str
    instance_id: str | None
    metadata: bytes
    session_ms: int
    rebalance_ms: int
    seen_ms: int
    assignment: bytes = b""


@dataclass
class Group:
    """What is written to the group's log when a generation is complete, or a name taken over."""

    state: str = EMPTY
    generation: int = 0
    leader: str = ""
    members: dict[str, Kept] = field(default_factory=dict)

    def holder(self, instance_id: str) -> str | None:
        return next(
            (k.member_id for k in self.members.values() if k.instance_id == instance_id), None
        )


class CoordinatorModel:
    """One group. `removed_ms` says when which member id lost its place, and how: "session" or
    "replaced" or "left" or "rebalance"; `generations` counts what was completed."""

    def __init__(self) -> None:
        self.group = Group()
        self.logged = Group()
        self.removed: dict[str, tuple[int, str]] = {}
        self.now_ms = 0
        self._ids = 0
        self._pending: set[str] = set()
        self._joins: dict[str, Reply] = {}
        self._syncs: dict[str, Reply] = {}
        self._until_ms = 0

    def moves(self) -> None:
        """To another broker: what was logged is loaded, and all sessions begin anew."""
        for reply in [*self._joins.values()]:
            reply(Answer("NOT_COORDINATOR"))
        for reply in [*self._syncs.values()]:
            reply(Answer("NOT_COORDINATOR"))
        self._joins.clear()
        self._syncs.clear()
        self._pending.clear()
        for lost in self.group.members.keys() - self.logged.members.keys():
            self.removed[lost] = (self.now_ms, "moved")
        self.group = deepcopy(self.logged)
        for kept in self.group.members.values():
            kept.seen_ms = self.now_ms
            self.removed.pop(kept.member_id, None)

    def passes(self, now_ms: int) -> None:
        """Let time pass: sessions end, rebalances come to their end."""
        self.now_ms = now_ms
        for kept in list(self.group.members.values()):
            waits = kept.member_id in self._joins or kept.member_id in self._syncs
            if not waits and now_ms - kept.seen_ms > kept.session_ms:
                self._remove(kept.member_id, "session")
        if self.group.state == PREPARING and now_ms >= self._until_ms:
            self._complete()
        elif self.group.state == COMPLETING and now_ms >= self._until_ms:
            for member_id in self.group.members.keys() - self._syncs.keys():
                self._remove(member_id, "rebalance")

    def join(self, request: Join, reply: Reply) -> None:
        known = request.instance_id and self.group.holder(request.instance_id)
        if request.member_id:
            self._join_again(request, known or None, reply)
        elif known:
            self._take_over(request, known, reply)
        elif request.instance_id is not None:
            self._add(self._new_id(request.instance_id), request, reply)
        else:
            member_id = self._new_id("dynamic")
            self._pending.add(member_id)
            reply(Answer("MEMBER_ID_REQUIRED", member_id))

    def sync(self, request: Sync, reply: Reply) -> None:
        wrong = self._wrong(request.member_id, request.instance_id, request.generation)
        if wrong or self.group.state == PREPARING:
            reply(Answer(wrong or "REBALANCE_IN_PROGRESS"))
        elif self.group.state == STABLE:
            self.group.members[request.member_id].seen_ms = self.now_ms
            reply(Answer("NONE", assignment=self.group.members[request.member_id].assignment))
        else:
            self._syncs[request.member_id] = reply
            if request.member_id == self.group.leader:
                self._assign(request)

    def heartbeat(self, request: Heartbeat, reply: Reply) -> None:
        wrong = self._wrong(request.member_id, request.instance_id, request.generation)
        if not wrong:
            self.group.members[request.member_id].seen_ms = self.now_ms
        rebalancing = self.group.state == PREPARING
        reply(Answer(wrong or ("REBALANCE_IN_PROGRESS" if rebalancing else "NONE")))

    def leave(self, request: Leave, reply: Reply) -> None:
        if request.member_id not in self.group.members:
            reply(Answer("UNKNOWN_MEMBER_ID"))
            return
        self._remove(request.member_id, "left")
        reply(Answer("NONE"))

    def _new_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}#{self._ids}"

    def _wrong(self, member_id: str, instance_id: str | None, generation: int | None) -> str:
        if instance_id is not None:
            holder = self.group.holder(instance_id)
            if holder is not None and holder != member_id:
                return "FENCED_INSTANCE_ID"
        if member_id not in self.group.members:
            return "UNKNOWN_MEMBER_ID"
        if generation is not None and generation != self.group.generation:
            return "ILLEGAL_GENERATION"
        return ""

    def _join_again(self, request: Join, known: str | None, reply: Reply) -> None:
        if request.member_id in self._pending:
            self._pending.discard(request.member_id)
            self._add(request.member_id, request, reply)
            return
        wrong = self._wrong(request.member_id, request.instance_id, None)
        if wrong:
            reply(Answer(wrong))
            return
        kept = self.group.members[request.member_id]
        kept.seen_ms = self.now_ms
        changed = kept.metadata != request.metadata
        kept.metadata = request.metadata
        state, leads = self.group.state, request.member_id == self.group.leader
        if state == PREPARING or changed or (state == STABLE and leads):
            self._park(request.member_id, reply)
        else:
            reply(self._joined(request.member_id))

    def _take_over(self, request: Join, old_id: str, reply: Reply) -> None:
        """A known name without an id: who had it is replaced, and a stable group stays stable. The
        answer names the leader from before, who may be the one that was replaced."""
        leader = self.group.leader
        kept = self.group.members.pop(old_id)
        for replies in (self._joins, self._syncs):
            if old_id in replies:
                replies.pop(old_id)(Answer("FENCED_INSTANCE_ID"))
        self.removed[old_id] = (self.now_ms, "replaced")
        kept.member_id = self._new_id(request.instance_id or "")
        kept.seen_ms = self.now_ms
        kept.metadata = request.metadata
        self.group.members[kept.member_id] = kept
        if leader == old_id:
            self.group.leader = kept.member_id
        if self.group.state == STABLE:
            self._log()
            reply(Answer("NONE", kept.member_id, self.group.generation, leader))
        else:
            self._park(kept.member_id, reply)

    def _add(self, member_id: str, request: Join, reply: Reply) -> None:
        self.group.members[member_id] = Kept(
            member_id,
            request.instance_id,
            request.metadata,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            self.now_ms,
        )
        self._park(member_id, reply)

    def _park(self, member_id: str, reply: Reply) -> None:
        self._prepare()
        self._joins[member_id] = reply
        if self.group.generation or self.now_ms >= self._until_ms:
            self._maybe_complete()

    def _prepare(self) -> None:
        """Begin a rebalance, unless one is going on."""
        if self.group.state == PREPARING:
            return
        first = self.group.state == EMPTY
        for reply in self._syncs.values():
            reply(Answer("REBALANCE_IN_PROGRESS"))
        self._syncs.clear()
        self.group.state = PREPARING
        longest = max((kept.rebalance_ms for kept in self.group.members.values()), default=0)
        self._until_ms = self.now_ms + (INITIAL_DELAY_MS if first else longest)

    def _maybe_complete(self) -> None:
        if self.group.state == PREPARING and self.group.members.keys() <= self._joins.keys():
            self._complete()

    def _complete(self) -> None:
        """Everybody is there, or time is up: static members that are not stay in nevertheless."""
        for kept in list(self.group.members.values()):
            if kept.member_id not in self._joins and kept.instance_id is None:
                self.removed[kept.member_id] = (self.now_ms, "rebalance")
                del self.group.members[kept.member_id]
        if not self._joins:
            self.group.state = PREPARING if self.group.members else EMPTY
            self._until_ms = self.now_ms + 1_000
            if not self.group.members:
                self._log()
            return
        self.group.generation += 1
        if self.group.leader not in self._joins:
            self.group.leader = min(self._joins)
        self.group.state = COMPLETING
        longest = max(kept.rebalance_ms for kept in self.group.members.values())
        self._until_ms = self.now_ms + longest
        joins, self._joins = self._joins, {}
        for member_id, reply in joins.items():
            self.group.members[member_id].seen_ms = self.now_ms
            reply(self._joined(member_id))

    def _joined(self, member_id: str) -> Answer:
        peers = tuple(
            Peer(kept.member_id, kept.instance_id, kept.metadata)
            for kept in self.group.members.values()
        )
        leads = member_id == self.group.leader
        return Answer(
            "NONE", member_id, self.group.generation, self.group.leader, peers if leads else ()
        )

    def _assign(self, request: Sync) -> None:
        for kept in self.group.members.values():
            kept.assignment = request.assignments.get(kept.member_id, b"")
        self.group.state = STABLE
        self._log()
        syncs, self._syncs = self._syncs, {}
        for member_id, reply in syncs.items():
            self.group.members[member_id].seen_ms = self.now_ms
            reply(Answer("NONE", assignment=self.group.members[member_id].assignment))

    def _remove(self, member_id: str, why: str) -> None:
        self.group.members.pop(member_id, None)
        self.removed[member_id] = (self.now_ms, why)
        for replies in (self._joins, self._syncs):
            if member_id in replies:
                replies.pop(member_id)(Answer("UNKNOWN_MEMBER_ID"))
        if not self.group.members:
            self.group.state = EMPTY
            self._log()
        elif self.group.state == PREPARING:
            self._maybe_complete()
        else:
            self._prepare()

    def _log(self) -> None:
        self.logged = deepcopy(self.group)
