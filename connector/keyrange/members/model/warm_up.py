"""What is announced before key ranges move, and when they move.

An assignment that is due is announced first: its heirs, the slots that get ranges, copy the state
of these and say that they are ready. The ranges move when all heirs that are there are ready, or
`timeout_ms` after the first announcement that came to nothing yet: changes that follow one another
put no move off for longer. What is announced is kept in memory alone: a driver that starts again
finds the same reassignment due, and the heirs what they have copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from keyrange.members.model.assignment import Assignment, Ranges, without
from keyrange.members.model.reassignment_timing import Reassign
from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class Announcement:
    """`after` is the assignment to be, `gains` what each heir gets by it."""

    members: Mapping[str, float]
    before: Assignment
    after: Assignment
    gains: Mapping[str, Ranges]


class WarmUp:
    """Times are ms of any clock that does not go back."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._until_ms: int | None = None
        self.announced: Announcement | None = None

    def announce(
        self,
        due: Reassign,
        before: Assignment,
        partitions: Collection[TopicPartition],
        assign: Callable[[], Assignment],
        now_ms: int,
    ) -> Announcement:
        """What is announced of a reassignment that is due; `assign` is asked where it is another
        one than before, or `before` or the partitions are."""
        known = self.announced
        if (
            known is not None
            and known.members == due.members
            and known.before == before
            and known.after.owners.keys() == set(partitions)
        ):
            return known
        after = assign()
        had = before.by_slot()
        gains = {
            slot: gained
            for slot, ranges in after.by_slot().items()
            if (gained := without(ranges, had.get(slot, {})))
        }
        if self._until_ms is None:
            self._until_ms = now_ms + self._timeout_ms
        self.announced = Announcement(dict(due.members), before, after, gains)
        return self.announced

    def drop(self) -> None:
        """Nothing is due any more, or it has been done."""
        self.announced, self._until_ms = None, None

    def moves(self, present: Collection[str], ready: Collection[str], now_ms: int) -> bool:
        """Whether the ranges move now. Heirs that are away are not waited for."""
        assert self.announced is not None
        assert self._until_ms is not None
        return now_ms >= self._until_ms or not (self.announced.gains.keys() & {*present}) - {*ready}
