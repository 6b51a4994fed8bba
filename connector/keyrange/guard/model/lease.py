"""Who throttles: a counter that a living guard moves, kept among the quotas themselves.

Nobody compares clocks. Every observer notes by its own when the counter moved last; a lease that
has not moved for `lease_ms` is that of a dead guard. Kafka has no compare-and-set for quotas, so
two may take a lease at once: then the higher epoch has it, and the other one sees that at its
next look. Epochs hold a number that grows and a part by chance, so no two guards have the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keyrange.guard.model.quota_entities import (
    CANARY,
    RESERVED,
    Alteration,
    QuotaEntity,
    Quotas,
    read_holds,
)

_LEASE: Final = QuotaEntity(None, RESERVED + "lease")
_COUNTER: Final = "producer_byte_rate"
_EPOCH: Final = "consumer_byte_rate"
# Whole numbers up to twice this are exact as Kafka's doubles.
_NUMBER_MAX: Final = 2**52
_CHANCE_BITS: Final = 20


@dataclass(frozen=True, slots=True)
class Lease:
    epoch: int
    counter: int

    def alterations(self) -> tuple[Alteration, ...]:
        return (
            Alteration(_LEASE, _COUNTER, float(self.counter)),
            Alteration(_LEASE, _EPOCH, float(self.epoch)),
        )


REMOVED: Final = (Alteration(_LEASE, _COUNTER, None), Alteration(_LEASE, _EPOCH, None))


def read_lease(quotas: Quotas) -> Lease | None:
    """The lease, if there is one that a guard can have written."""
    values = quotas.get(_LEASE, {})
    counter, epoch = values.get(_COUNTER, 0.0), values.get(_EPOCH, 0.0)
    if not all(1 <= each < _NUMBER_MAX and each == int(each) for each in (counter, epoch)):
        return None
    return Lease(int(epoch), int(counter))


def is_held(quotas: Quotas) -> bool:
    """Whether a guard has left anything in the quotas, its lease among it."""
    has_canary = any(entity.client_id == CANARY for entity in quotas)
    return has_canary or read_lease(quotas) is not None or bool(read_holds(quotas))


def next_epoch(last: int, stamp: int, chance: int) -> int:
    """One above all that are known, and above `stamp`: seconds since 1970, for growth over leases
    that were removed. `chance` is any number."""
    number = max(last >> _CHANCE_BITS, stamp) + 1
    return (number << _CHANCE_BITS) | (chance & ((1 << _CHANCE_BITS) - 1))


@dataclass(frozen=True, slots=True)
class LeaseWatch:
    """When the lease moved last, for who looks at it."""

    lease: Lease | None = None
    since_ms: int | None = None

    def look(self, lease: Lease | None, now_ms: int) -> LeaseWatch:
        if self.since_ms is not None and lease == self.lease:
            return self
        return LeaseWatch(lease, now_ms)

    def is_dead(self, now_ms: int, lease_ms: int) -> bool:
        return self.since_ms is not None and now_ms - self.since_ms >= lease_ms
