"""Since when each slot has had its key ranges without a break.

A slot that loses some and gets the same ones back has missed what others did with them meanwhile:
equal ranges do not say that nothing was missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from keyrange.members.model.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Since:
    """The assignment that gave a slot its ranges: the epoch, and the run of the query that assigned
    it, as a table that was lost counts its epochs anew."""

    run: str
    epoch: int


def unbroken(
    before: Assignment | None, since: Mapping[str, Since], after: Assignment, run: str
) -> dict[str, Since]:
    """Of each slot of `after`, which `run` assigns: what `since` says of it by `before`, where its
    ranges are those that it had then, and else this assignment."""
    had = before.by_slot() if before is not None else {}
    return {
        slot: since[slot] if slot in since and had.get(slot) == ranges else Since(run, after.epoch)
        for slot, ranges in after.by_slot().items()
    }
