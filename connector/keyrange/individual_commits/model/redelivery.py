"""How often keyrange delivers a record that was not done, and when it is due. When it is given up
says `Cause.is_given_up`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.work.model.outcome import Cause

_TIME_MAX_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """How often a record is worked on, and how long it waits in between: `backoff_ms`, doubled with
    every delivery up to `backoff_max_ms`."""

    deliveries_max: int = 5
    backoff_ms: int = 10_000
    backoff_max_ms: int = 600_000

    def due_ms(self, deliveries: int, now_ms: int) -> int:
        """When a record is due that was worked on for the `deliveries`th time at `now_ms`."""
        doublings = min(max(deliveries - 1, 0), 62)
        wait_ms = min(self.backoff_ms << doublings, self.backoff_max_ms)
        return min(now_ms + wait_ms, _TIME_MAX_MS)


def delivered_again(
    record: PendingRecord, cause: Cause, policy: RedeliveryPolicy, now_ms: int
) -> PendingRecord:
    """A pending record that stays one, with one delivery more where it was worked on."""
    deliveries, due_ms = record.deliveries, record.due_ms
    if cause.was_worked_on:
        deliveries += 1
        due_ms = policy.due_ms(deliveries, now_ms)
    return PendingRecord(record.offset, record.key_hash, deliveries, due_ms, record.since_ms, cause)
