"""Requests that alter quotas, and those that let go of all that a guard has throttled.

Kafka's quotas do not end by themselves when a guard is dead. But whoever sees them can tell what to
restore, so any process may, at any time and as often as may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from keyrange.guard.model.lease import REMOVED, LeaseWatch, is_held, read_lease
from keyrange.guard.model.quota_entities import (
    CANARY,
    Alteration,
    Quotas,
    read_holds,
    restored,
)

# Kafka takes 10,000 records in a request; a key of an entity is one.
RECORDS_MAX: Final = 9_000
# How late a request may be sent, as a part of the lease's time.
LATENESS: Final = 5

Parcel = tuple[Alteration, ...]


@dataclass(frozen=True, slots=True)
class Alter:
    """One request, to be sent until `until_ms`."""

    alterations: Parcel
    until_ms: int
    counter: int = 0

    @property
    def changes(self) -> Parcel:
        """What clients notice of it."""
        return tuple(each for each in self.alterations if not each.entity.is_reserved)


def packed(parcels: Iterable[Parcel], records_max: int) -> Iterator[Parcel]:
    """As few requests as can be, one at the least; a parcel is never parted."""
    request: list[Alteration] = []
    for parcel in parcels:
        if len(request) + len(parcel) > records_max:
            yield tuple(request)
            request = []
        request += parcel
    yield tuple(request)


def release(quotas: Quotas, until_ms: int, records_max: int = RECORDS_MAX) -> tuple[Alter, ...]:
    """What restores all, whoever holds it; to be sent in this order. Nothing where nothing is held.

    A guard that lives throttles again at its next look: it is to be stopped before.
    """
    if not is_held(quotas):
        return ()
    parcels = [restored(hold) for hold in read_holds(quotas).values()]
    canaries = [
        tuple(Alteration(entity, key, None) for key in values)
        for entity, values in quotas.items()
        if entity.client_id == CANARY
    ]
    requests = list(packed([*parcels, *canaries], records_max - len(REMOVED)))
    requests[-1] += REMOVED
    return tuple(Alter(request, until_ms) for request in requests)


def reap(
    watch: LeaseWatch,
    quotas: Quotas,
    now_ms: int,
    lease_ms: int = 60_000,
    records_max: int = RECORDS_MAX,
) -> tuple[LeaseWatch, tuple[Alter, ...]]:
    """A reaper's look: `release` where the lease has not moved for `lease_ms`.

    One `watch` goes through all looks of a reaper, so it has to look for that long. `now_ms` is
    the time before the quotas were described.
    """
    watch = watch.look(read_lease(quotas), now_ms)
    if not is_held(quotas) or not watch.is_dead(now_ms, lease_ms):
        return watch, ()
    return watch, release(quotas, now_ms + lease_ms // LATENESS, records_max)
