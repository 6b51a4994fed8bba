"""Who is told to copy state, in the process that plans: heirs, before key ranges move to them, and
standbys, as long as others own the ranges.

The binding service asks `news` and `hint` in threads of its own, the planning process the rest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from keyrange.members.model.assignment import Assignment, Owners, Ranges
from keyrange.members.model.copy_book import CopyBook, KnownState
from keyrange.members.model.reassignment_timing import Reassign
from keyrange.members.model.warm_up import Announcement, WarmUp
from keyrange.model.key_ranges import merge, write_ranges
from keyrange.model.offsets import TopicPartition, nested

_log = logging.getLogger(__name__)

# An heir is ready that lacks no more than batches have changed while it copied: this part of what
# it gets, and no more bytes than these. To read that costs no pause.
_CLOSE_PART: Final = 0.02
_CLOSE_BYTES: Final = 4 << 20
_NO_STATE: Final = KnownState("", {}, lambda _: "")


class Heirs:
    """Of one run of a query. `tells`: whether executors have a listener to be told of what is
    announced."""

    def __init__(self, timeout_ms: int, tells: bool) -> None:
        self._warm = WarmUp(timeout_ms)
        self._timeout_ms = timeout_ms
        self._tells = tells
        self._lock = threading.Lock()
        self._book = CopyBook()
        self._state = _NO_STATE
        self._wanted: dict[str, Ranges] = {}
        self._of: tuple[Announcement | None, Owners] = (None, {})
        # The version of the book from which on the heirs know what is announced.
        self._announced_at = 0

    @property
    def announced(self) -> Announcement | None:
        return self._warm.announced

    def moves(
        self,
        due: Reassign,
        before: Assignment | None,
        partitions: Collection[TopicPartition],
        assign: Callable[[], Assignment],
        present: Collection[str],
        now_ms: int,
    ) -> bool:
        """Whether a reassignment that is due is to be carried out now. Else its heirs are told, and
        it is asked for again."""
        if before is None or not self._timeout_ms or not (self._state.runs or self._tells):
            return True
        known = self.announced
        found = self._warm.announce(due, before, partitions, assign, now_ms)
        if found is not known:
            _log.info("%s get key ranges, and prepare for them", ", ".join(found.gains) or "none")
        return self._warm.moves(present, self._ready(found), now_ms)

    def drop(self) -> None:
        """Nothing is due."""
        self._warm.drop()

    def follow(self, state: KnownState | None, standbys: Owners) -> None:
        """Take in the state at the last commit, before a batch is planned."""
        state, of = state or _NO_STATE, (self.announced, standbys)
        if state.runs is self._state.runs and of[0] is self._of[0] and of[1] is self._of[1]:
            return
        if of[0] is not self._of[0] or of[1] is not self._of[1]:
            self._wanted = _wanted(*of)
        with self._lock:
            if state.source_id != self._state.source_id:
                self._book.forget()
            if of[0] is not self._of[0]:
                self._announced_at = self._book.next_version()
            self._state, self._of = state, of
            self._book.want(self._wanted, state)

    def hint(self, slot: str) -> bool:
        """Whether a slot has something to copy or to hear."""
        with self._lock:
            return self._book.is_wanted(slot) and self._book.done(slot) < self._book.version

    def news(self, slot: str, done: int) -> dict[str, Any]:
        """What a slot is to copy that has copied version `done`."""
        with self._lock:
            announced, _ = self._of
            gains = announced.gains.get(slot, {}) if announced is not None else {}
            ranges = nested({at: write_ranges(spans) for at, spans in gains.items()})
            return {
                "version": self._book.version,
                "isWanted": self._book.is_wanted(slot),
                "sourceId": self._state.source_id,
                "epoch": announced.after.epoch if announced is not None else 0,
                "announced": ranges,
                "orders": [each.to_json() for each in self._book.news(slot, done)],
            }

    def _ready(self, announced: Announcement) -> set[str]:
        with self._lock:
            is_told = self._of[0] is announced
            return {
                slot
                for slot in announced.gains
                if is_told and self._book.done(slot) >= self._announced_at and self._is_close(slot)
            }

    def _is_close(self, slot: str) -> bool:
        missing, size = self._book.missing_bytes(slot), self._book.size_bytes(slot)
        return missing <= min(_CLOSE_BYTES, size * _CLOSE_PART)


def _wanted(announced: Announcement | None, standbys: Owners) -> dict[str, Ranges]:
    """Of which key ranges each slot is to have copies that it does not own."""
    found: dict[str, Ranges] = {}
    for partition, owned in standbys.items():
        for each in owned:
            found.setdefault(each.slot, {}).setdefault(partition, []).append(each.span)
    gains: Mapping[str, Ranges] = announced.gains if announced is not None else {}
    for slot, ranges in gains.items():
        for partition, spans in ranges.items():
            own = found.setdefault(slot, {})
            own[partition] = merge([*own.get(partition, []), *spans])
    return found
