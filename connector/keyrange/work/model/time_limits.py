"""How long a user's function may take: for a record (`record.timeout`), and in a task for its batch
(`batch.time.budget`).

Rule of this file: no clock and no signal. Time comes in as a number of milliseconds of any clock
that does not go back; who is interrupted says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """How long a call may take, None for any time; `by_budget` where the task's time is nearer
    than the record's."""

    timeout_ms: float | None
    by_budget: bool = False


ANY_TIME = Allowance(None)


class TimeLimits:
    """What one task has left of its time."""

    def __init__(self, record_timeout_ms: int, budget_ms: int) -> None:
        self._usual = Allowance(record_timeout_ms or None)
        self._budget_ms = budget_ms
        self._deadline_ms: float | None = None
        # Whether the function has come to an end with any record.
        self._settled = False
        # The time for the batch is up: nothing more is worked on.
        self.spent = False

    def allowance(self, now_ms: float) -> Allowance:
        """How long the next call may take; sets `spent` where there is no time left."""
        record_ms = self._usual.timeout_ms
        if not self._budget_ms:
            return self._usual
        # It does not end while the culprit among several is looked for.
        over = self._deadline_ms is not None and self._deadline_ms <= now_ms
        if self._deadline_ms is None or (over and not self._settled):
            self._deadline_ms = now_ms + self._budget_ms
        left_ms = self._deadline_ms - now_ms
        if left_ms <= 0:
            self.spent = True
        if record_ms is not None and record_ms <= left_ms:
            return self._usual
        return Allowance(left_ms, by_budget=True)

    def settled(self) -> None:
        """The function has come to an end with some records."""
        self._settled = True

    def hands_back(self, allowance: Allowance, count: int, now_ms: float) -> bool:
        """Whether `count` records are handed back whose call was interrupted; else it was theirs
        that took too long.

        The end of the batch's time is nobody's fault, unless a record had all of it: then it would
        have it again next time. Of several records that had all of it together the culprit is
        looked for, in half of them with as much time again.
        """
        if allowance.by_budget and self._settled:
            self.spent = True
            return True
        if allowance.by_budget:
            self._deadline_ms = now_ms + self._budget_ms
            self.spent = count == 1
        return False
