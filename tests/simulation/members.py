"""The membership of a simulated process in its Kafka group: the member as it is, at the model of a
coordinator, moved on by whoever simulates in the place of a thread."""

from __future__ import annotations

from typing import Any

from brokers.group_coordinator import CoordinatorModel
from keyrange.consumer.member import GroupMembership
from keyrange.errors import KeyrangeError
from keyrange.members.model.group_member import Assignor, GroupMember, MemberSettings
from keyrange.members.model.group_member_states import ENDS, GroupState
from keyrange.members.model.group_messages import (
    Answer,
    Coordinator,
    FindCoordinator,
    Heartbeat,
    Join,
    Request,
    Sync,
)
from simulation.clock import Clock


class SimulatedMember:
    """As `keyrange.consumer.member.MemberThread`."""

    # Who joins next, and where.
    clock: Clock
    group: CoordinatorModel

    def __init__(self, settings: MemberSettings, _: Any, assignor: Assignor) -> None:
        self._member = GroupMember(settings, assignor)
        self._leads = assignor
        self._inbox: list[tuple[Request, Answer]] = []
        self._under_way: Request | None = None
        self._gives_up_at_ms = 0
        self._failure = ""
        self._member.working(True, self.now_ms())
        self.polled()

    @property
    def seen(self) -> GroupMembership:
        member = self._member
        return GroupMembership(
            member.state,
            member.generation,
            member.is_leader,
            member.assignment if member.state is GroupState.STABLE else b"",
            member.failure or self._failure,
            bool(self._failure) or member.state in ENDS,
        )

    @property
    def is_leading(self) -> bool:
        """Whether one thread of its process is at the assignment, and another one would wait."""
        leader: Any = self._leads
        return bool(leader._lock.locked())

    def polled(self) -> None:
        self._polled_ms = self.now_ms()

    def rejoin(self) -> None:
        self._member.rejoin(self.now_ms())

    def introduce(self, metadata: bytes) -> None:
        self._member.metadata = metadata

    def close(self) -> None:
        self._member.close(self.now_ms())
        self.step()

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def step(self) -> None:
        """What the thread would do now: take answers, and send what is due."""
        member, now_ms = self._member, self.now_ms()
        if self._failure or self.is_leading:
            return
        inbox, self._inbox = self._inbox, []
        for request, answer in inbox:
            member.answered(request, answer, now_ms)
            if request is self._under_way:
                self._under_way = None
        if self._under_way is not None and now_ms >= self._gives_up_at_ms:
            member.failed(self._under_way, now_ms)
            self._under_way = None
        member.progressed(self._polled_ms)
        if member.state in ENDS:
            return
        try:
            request = member.next_request(now_ms)
        except KeyrangeError as failure:
            if not failure.retriable:
                self._failure = str(failure)
            return
        if request is not None:
            self._under_way = request
            self._gives_up_at_ms = now_ms + member.answer_within_ms(request)
            self._send(request)

    def _send(self, request: Request) -> None:
        def reply(answer: Answer) -> None:
            self._inbox.append((request, answer))

        if isinstance(request, FindCoordinator):
            reply(Answer("NONE", coordinator=Coordinator(1, "b1", 9092)))
        elif isinstance(request, Join):
            self.group.join(request, reply)
        elif isinstance(request, Sync):
            self.group.sync(request, reply)
        elif isinstance(request, Heartbeat):
            self.group.heartbeat(request, reply)
        else:
            self.group.leave(request, reply)
