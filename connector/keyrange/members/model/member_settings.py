"""How a member takes part in its group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member takes part; `instance_id` None is a dynamic member.

    The group waits for it in a rebalance as long as for its session.
    """

    group: str
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    metadata: bytes
    protocol_name: str = "keyrange"

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def stall_ms(self) -> int:
        """How long work may go on without progress: no shorter than the session."""
        return max(self.session_timeout_ms, self.max_poll_interval_ms)
