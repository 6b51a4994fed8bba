"""Client quotas as Kafka keeps them, and a naive answer to what a client may produce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity, Quotas

INFINITE = float("inf")


class RequestRefusedError(Exception):
    """POLICY_VIOLATION, or INVALID_REQUEST."""


def precedence(user: str, client: str) -> list[QuotaEntity]:
    """The entities whose quota a client has, the first of them that has one."""
    return [
        QuotaEntity(user, client),
        QuotaEntity(user, ""),
        QuotaEntity(user, None),
        QuotaEntity("", client),
        QuotaEntity("", ""),
        QuotaEntity("", None),
        QuotaEntity(None, client),
        QuotaEntity(None, ""),
    ]


def allowed(quotas: Quotas, user: str, client: str) -> float:
    """Bytes a second that a client may produce to a broker."""
    for entity in precedence(user, client):
        if RATE in quotas.get(entity, {}):
            return quotas[entity][RATE]
    return INFINITE


def without_reserved(quotas: Quotas) -> dict[QuotaEntity, dict[str, float]]:
    return {entity: dict(each) for entity, each in quotas.items() if not entity.is_reserved}


@dataclass
class Store:
    """Each request is one batch of records: all of it is there, or none. Old versions are kept,
    since brokers may lag behind."""

    records_max: int = 10_000
    versions: list[dict[QuotaEntity, dict[str, float]]] = field(default_factory=lambda: [{}])

    @property
    def quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self.versions[-1]

    @property
    def version(self) -> int:
        return len(self.versions) - 1

    def alter(self, alterations: Iterable[Alteration]) -> None:
        after = dict(self.versions[-1])
        records = 0
        for each in alterations:
            values = dict(after.get(each.entity, {}))
            if each.value is None:
                records += values.pop(each.key, None) is not None
            elif not 1 <= each.value < 2**63 or each.value != int(each.value):
                raise RequestRefusedError(f"{each} is no rate")
            else:
                records += 1
                values[each.key] = each.value
            after[each.entity] = values
            if not values:
                del after[each.entity]
        if records > self.records_max:
            raise RequestRefusedError(f"{records} records")
        self.versions.append(after)


def mute_ms(
    observed: float, rate: float, window_ms: int, connections: int, request_bytes: int
) -> float:
    """The longest time for which a client that sends `observed` bytes a second is muted."""
    over = max(observed - rate, 0) / rate * window_ms
    return over + connections * request_bytes * 1_000 / rate
