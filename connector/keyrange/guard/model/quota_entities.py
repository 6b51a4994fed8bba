"""Client quotas, and what the guard writes beside them so that any process can undo it.

Beside each quota that the guard changes it writes a **marker**: another quota entity, a client id
that no client has, named after the one that it is about. It holds what was there before and what
was written instead. Both go in one request, which Kafka applies as one: nobody sees the one without
the other. A quota that is not what its marker says was written has been changed by a person. The
marker then says no more than that the entity is not to be touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

RATE: Final = "producer_byte_rate"
# Of a marker. A client id that no client has may carry any quota.
PRIOR: Final = RATE
WRITTEN: Final = "consumer_byte_rate"

RESERVED: Final = "__volume_guard."
_MARKER: Final = RESERVED + "prior"
# Whoever tries out whether quotas count has this client id.
CANARY: Final = RESERVED + "canary"
_USER: Final = "user="
_CLIENT: Final = "client="
# The values of such a quota are whole numbers of 64 bits.
_RATE_MAX: Final = 2**63


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota is for: a user, a client id, or both; "" stands for all without one."""

    user: str | None
    client_id: str | None

    @property
    def order(self) -> tuple[bool, str, bool, str]:
        return self.user is None, self.user or "", self.client_id is None, self.client_id or ""

    @property
    def is_reserved(self) -> bool:
        """Whether it is the guard's own."""
        return (self.client_id or "").startswith(RESERVED)

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id))
        return ", ".join(
            f"{kind} {name or '<default>'}" for kind, name in named if name is not None
        )


# Quotas of the lowest precedence: of clients that no other quota is for. It shadows none.
EVERY_CLIENT: Final = QuotaEntity(None, "")

Quotas = Mapping[QuotaEntity, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Alteration:
    """One key of one entity; `value` None removes it."""

    entity: QuotaEntity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Hold:
    """An entity with a marker: the rates before, as written, and as it is; None: there is none.

    `written` None says that a person has it.
    """

    entity: QuotaEntity
    prior: float | None
    written: float | None
    current: float | None

    @property
    def is_ours(self) -> bool:
        return self.written is not None and self.current == self.written


def marker(entity: QuotaEntity) -> QuotaEntity:
    name = _MARKER
    if entity.user is not None:
        name += f"/{_USER}{quote(entity.user, safe='')}"
    if entity.client_id is not None:
        name += f"/{_CLIENT}{quote(entity.client_id, safe='')}"
    return QuotaEntity(None, name)


def marked(entity: QuotaEntity) -> QuotaEntity | None:
    """The entity that a marker is about; None of what is no marker."""
    head, *parts = (entity.client_id or "").split("/")
    if head != _MARKER or entity.user is not None:
        return None
    user = client_id = None
    for part in parts:
        if part.startswith(_USER):
            user = unquote(part.removeprefix(_USER))
        elif part.startswith(_CLIENT):
            client_id = unquote(part.removeprefix(_CLIENT))
    found = QuotaEntity(user, client_id)
    return found if marker(found) == entity and parts else None


def read_holds(quotas: Quotas) -> dict[QuotaEntity, Hold]:
    """All entities with a marker, in order."""
    holds = {}
    for entity, values in quotas.items():
        about = marked(entity)
        if about is not None and (PRIOR in values or WRITTEN in values):
            current = quotas.get(about, {}).get(RATE)
            holds[about] = Hold(about, values.get(PRIOR), values.get(WRITTEN), current)
    return dict(sorted(holds.items(), key=lambda row: row[0].order))


def is_rate(value: float) -> bool:
    """Whether Kafka would take it again as a rate."""
    return 1 <= value < _RATE_MAX and value == int(value)


def written(entity: QuotaEntity, prior: float | None, value: float) -> tuple[Alteration, ...]:
    """Write a rate, and all that its marker is to say, whatever it says already: a request may
    arrive after somebody has released or yielded, and `prior` has to be there then too."""
    mark = marker(entity)
    return (
        Alteration(mark, PRIOR, prior),
        Alteration(mark, WRITTEN, value),
        Alteration(entity, RATE, value),
    )


def yielded(hold: Hold) -> tuple[Alteration, ...]:
    """Say that a person has it. A marker without any value would not be there."""
    mark = marker(hold.entity)
    return (Alteration(mark, PRIOR, 1.0), Alteration(mark, WRITTEN, None))


def restored(hold: Hold) -> tuple[Alteration, ...]:
    """Bring back what was before, unless a person has changed it, and take the marker away."""
    mark = marker(hold.entity)
    gone = (Alteration(mark, PRIOR, None), Alteration(mark, WRITTEN, None))
    return (Alteration(hold.entity, RATE, hold.prior), *gone) if hold.is_ours else gone


def exposed(quotas: Quotas, excluded: frozenset[str]) -> tuple[str, ...]:
    """Those users of `excluded` that quotas of others apply to, for want of one of their own."""
    # What is for some of a user's client ids leaves the others without one.
    own = {
        entity.user for entity, values in quotas.items() if RATE in values and not entity.client_id
    }
    return tuple(sorted(excluded - own))
