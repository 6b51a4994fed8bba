"""A consumer's membership in its Kafka group, in a thread of its own: heartbeats go on while the
user works, and stop where that takes longer than max.poll.interval.ms."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from keyrange.kafka.cluster import Cluster
from keyrange.members.coordinator_client import run_member
from keyrange.members.model.group_member import Assignor, GroupMember, MemberSettings
from keyrange.members.model.group_member_states import ENDS, GroupState

_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """What the thread saw last. `assignment` is empty where the member has none, `ended` says that
    it is over for good."""

    state: GroupState = GroupState.UNJOINED
    generation: int = -1
    is_leader: bool = False
    assignment: bytes = b""
    failure: str = ""
    ended: bool = False


class MemberThread:
    """Runs one member; `cluster` is its own. Everything else may be called from another thread."""

    def __init__(self, settings: MemberSettings, cluster: Cluster, assignor: Assignor) -> None:
        self._cluster = cluster
        self._member = GroupMember(settings, assignor)
        self._wake_from, self._wake_to = os.pipe()
        os.set_blocking(self._wake_from, False)
        os.set_blocking(self._wake_to, False)
        self._lock = threading.Lock()
        self._asked: list[Callable[[int], None]] = []
        self._polled_ms = self.now_ms()
        self._seen = GroupMembership()
        self._thread = threading.Thread(target=self._run, name="keyrange-member", daemon=True)
        self._asked.append(lambda now_ms: self._member.working(True, now_ms))
        self._thread.start()

    @property
    def seen(self) -> GroupMembership:
        return self._seen

    def polled(self) -> None:
        """The user is there. It has to be said more often than max.poll.interval.ms."""
        self._polled_ms = self.now_ms()
        if self._seen.state is GroupState.IDLE_GIVEN_UP:
            self._wake()

    def rejoin(self) -> None:
        """Ask for another generation."""
        self._ask(self._member.rejoin)

    def introduce(self, metadata: bytes) -> None:
        """Join once more, and say something else of this member."""

        def introduce(_: int) -> None:
            self._member.metadata = metadata

        self._ask(introduce)

    def close(self) -> None:
        """End the membership: a dynamic member leaves, a static one is silent."""
        self._ask(self._member.close)
        self._thread.join(_CLOSE_S)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def look(self, member: GroupMember) -> None:
        with self._lock:
            asked, self._asked = self._asked, []
        for each in asked:
            each(self.now_ms())
        member.progressed(self._polled_ms)
        self._publish(member, "")

    def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
        # The user's process may have more files open than select() knows numbers for.
        poll = select.poll()
        poll.register(self._wake_from, select.POLLIN)
        if answer_from >= 0:
            poll.register(answer_from, select.POLLIN)
        ready = {each for each, _ in poll.poll(max(timeout_ms, 0))}
        if self._wake_from in ready:
            os.read(self._wake_from, 4096)
        return answer_from in ready

    def told(self, member: GroupMember, trouble: str) -> None:
        self._publish(member, trouble)

    def _run(self) -> None:
        failure = ""
        try:
            run_member(self._member, self._cluster, self)
        except Exception as raised:
            # The thread has nobody above it: who polls is told.
            failure = str(raised) or type(raised).__name__
        finally:
            self._publish(self._member, failure, ended=True)
            self._cluster.close()
            with self._lock:
                os.close(self._wake_from)
                os.close(self._wake_to)
                self._wake_to = -1

    def _publish(self, member: GroupMember, trouble: str, ended: bool = False) -> None:
        stable = member.state is GroupState.STABLE
        self._seen = GroupMembership(
            member.state,
            member.generation,
            member.is_leader,
            member.assignment if stable else b"",
            member.failure or trouble,
            ended or member.state in ENDS,
        )

    def _ask(self, what: Callable[[int], None]) -> None:
        with self._lock:
            self._asked.append(what)
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            if self._wake_to >= 0:
                try:
                    os.write(self._wake_to, b"x")
                except BlockingIOError:
                    pass  # It wakes up anyway.
