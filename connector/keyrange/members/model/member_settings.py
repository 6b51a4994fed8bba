"""How a member takes part in its group, and whether the work beside it goes on."""

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


class WorkProgress:
    """When running work last yielded something; it has stalled `stall_ms` later. Only what runs and
    yields nothing can stall."""

    def __init__(self, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._is_running = False
        self.yielded_ms = 0

    @property
    def stalls_at_ms(self) -> int | None:
        """None while nothing runs: an idle topic is no stall."""
        return self.yielded_ms + self._stall_ms if self._is_running else None

    def has_stalled(self, now_ms: int) -> bool:
        at_ms = self.stalls_at_ms
        return at_ms is not None and now_ms >= at_ms

    def working(self, running: bool, now_ms: int) -> bool:
        """Say whether tasks run; answers whether nothing is left that could have stalled."""
        if running and not self._is_running:
            self.yielded_ms = max(now_ms, self.yielded_ms)
        self._is_running = running
        return not running

    def yielded(self, at_ms: int) -> bool:
        """Say when work yielded something; answers whether that was not known."""
        is_later = at_ms > self.yielded_ms
        self.yielded_ms = max(at_ms, self.yielded_ms)
        return is_later
