"""A dry run: what the quotas would be if the guard's requests had been sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keyrange.guard.model.quota_entities import Alteration, QuotaEntity, Quotas


@dataclass(frozen=True, slots=True)
class Imagined:
    """What would be there, by entity and key, and what was there when it was not written."""

    values: Mapping[tuple[QuotaEntity, str], tuple[float | None, float | None]] = field(
        default_factory=dict
    )

    def take(self, alterations: Iterable[Alteration], quotas: Quotas) -> Imagined:
        """Imagine that these were sent; `quotas` are the real ones."""
        taken = {
            (each.entity, each.key): (each.value, quotas.get(each.entity, {}).get(each.key))
            for each in alterations
        }
        return Imagined({**self.values, **taken})

    def seen(self, quotas: Quotas) -> Quotas:
        """What a guard that is not dry would see. What a person changes meanwhile shows."""
        seen = {entity: dict(values) for entity, values in quotas.items()}
        for (entity, key), (value, was) in self.values.items():
            values = seen.setdefault(entity, {})
            if values.get(key) != was:
                continue
            values.pop(key, None)
            if value is not None:
                values[key] = value
        return {entity: values for entity, values in seen.items() if values}
