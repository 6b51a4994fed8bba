"""What a query says of its individual commits: what the numbers of a state rest on, how often
a record is delivered, how much may be pending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Of what the hash places a record: of its key, or of its offset.
KEY_HASH: Final = "murmur3_x64_128"
OFFSET_HASH: Final = "offset_murmur3_x64_128"

_TIME_MAX_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """What the numbers of a state rest on; another value means other numbers. `keys` is the
    fingerprint of the keys that are read alone, "" where all are; `state_topic` as of
    `StateScope`."""

    hash: str = KEY_HASH
    null_keys: str = "spread"
    isolation: str = "immediate"
    state_topic: str = ""
    keys: str = ""

    @property
    def nulls_first(self) -> bool:
        """Whether what has no key belongs to the first key range."""
        return self.null_keys == "first"


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


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Where a key range takes in less, and nothing: from half of `pending_max` records on it
    slows, and stops there; what it takes in before may bring it beyond. `lag_max`: how many
    offsets a range may be behind its partition's position; None for any."""

    pending_max: int = 10_000
    lag_max: int | None = None
