"""What an assignment changes, for tests that compare two of them."""

from __future__ import annotations

from dataclasses import dataclass

from keyrange.members.model.assignment import Assignment, Ranges, without


@dataclass(frozen=True, slots=True)
class Change:
    """What one slot gets and what it loses."""

    assigned: Ranges
    revoked: Ranges


def changes(before: Assignment | None, after: Assignment, slot: str) -> Change:
    """What a slot has after that it had not before, and the other way round."""
    had = before.of(slot) if before is not None else {}
    has = after.of(slot)
    return Change(without(has, had), without(had, has))
