"""How a member takes part in its group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member takes part; `instance_id` None is a dynamic member.

    `rebalance_timeout_ms` is how long the group waits for it in a rebalance; None is the session. A
    member that does not rejoin by itself goes on with its heartbeats when a rebalance is announced,
    until `rejoin` is called: it may have work to finish first.
    """

    group: str
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    metadata: bytes
    protocol_name: str = "keyrange"
    rebalance_timeout_ms: int | None = None
    rejoins_by_itself: bool = True

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def stall_ms(self) -> int:
        """How long work may go on without progress: no shorter than the session."""
        return max(self.session_timeout_ms, self.max_poll_interval_ms)
