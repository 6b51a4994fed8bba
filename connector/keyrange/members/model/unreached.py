"""Members of the Kafka group from which no task has come for long: they cannot reach the process
that plans, or are those of another query."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

# Spark may leave an executor without a task in some batches.
BATCHES: Final = 20


class Unreached:
    """Of one run of a query."""

    def __init__(self) -> None:
        # In how many batches a slot was in the group, and nobody had come from it.
        self._batches: dict[str, int] = {}

    def planned(self, present: Collection[str], reached: Collection[str], group: str) -> str:
        """Take in who is there as a batch is planned; what is to be said now, once of each slot."""
        missing = sorted({*present} - {*reached})
        self._batches = {slot: self._batches.get(slot, 0) + 1 for slot in missing}
        found = [slot for slot, count in self._batches.items() if count == BATCHES]
        if not found:
            return ""
        return (
            f"{', '.join(found)} of group {group}: none of their tasks has come to this process in "
            f"{BATCHES} batches, and others read their key ranges. Either they cannot reach it, "
            "see pin.driver.host, or they are of another query: each needs a memberGroup of its own"
        )
