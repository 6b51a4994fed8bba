"""What each slot is to have copies of, and what it has said to have.

A slot asks for what has changed since a version that it has copied; by that it says that it has.
So each change is told once, and a slot that begins anew is told everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from keyrange.keyed_state.model.state_runs import StateRun, clipped, newest_first
from keyrange.members.model.assignment import Ranges
from keyrange.model.key_ranges import KeyRange, read_ranges, write_ranges
from keyrange.model.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class KnownState:
    """The state of a source's keys at its last commit: the runs of each partition, and where its
    copies are below those of the source."""

    source_id: str
    runs: Mapping[TopicPartition, tuple[StateRun, ...]]
    place_of: Callable[[TopicPartition], str]


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Of one partition: the key ranges of which a host is to have copies, and the runs that hold
    their state, cut to them."""

    partition: TopicPartition
    place: str
    spans: tuple[KeyRange, ...]
    runs: tuple[StateRun, ...]

    def to_json(self) -> list[Any]:
        runs = [run.flat() for run in self.runs]
        return [*self.partition, self.place, write_ranges(self.spans), runs]

    @classmethod
    def from_json(cls, document: Sequence[Any]) -> CopyOrder:
        topic, number, place, spans, runs = document
        found = tuple(map(StateRun.of_flat, runs))
        return cls(TopicPartition(topic, number), place, tuple(read_ranges(spans)), found)


@dataclass(slots=True)
class _Page:
    """What a slot is to have of a partition. `whole` are the runs of all its keys; `told` has those
    of the slot's keys by the version that told them, from the one on that the slot has copied."""

    place: str
    spans: tuple[KeyRange, ...]
    whole: tuple[StateRun, ...]
    told: list[tuple[int, frozenset[StateRun]]] = field(default_factory=list)

    @property
    def version(self) -> int:
        return self.told[-1][0]

    def tell(self, version: int) -> None:
        runs = (run for span in self.spans for run in clipped(self.whole, span))
        self.told.append((version, frozenset(runs)))

    def copied(self, version: int) -> None:
        """The slot has what this version told. What was told before is of no use any more."""
        while len(self.told) > 1 and self.told[1][0] <= version:
            self.told.pop(0)

    def missing_bytes(self, done: int) -> int:
        first, had = self.told[0]
        left = self.told[-1][1] - (had if first <= done else frozenset())
        return sum(run.size_bytes for run in left)


class CopyBook:
    """`version` grows with each change, and with each thing else that slots are to hear."""

    def __init__(self) -> None:
        self.version = 0
        self._pages: dict[str, dict[TopicPartition, _Page]] = {}
        self._done: dict[str, int] = {}

    def forget(self) -> None:
        """All that was said: the copies of another source are others."""
        self._pages.clear()

    def next_version(self) -> int:
        """That of something to hear."""
        self.version += 1
        return self.version

    def want(self, wanted: Mapping[str, Ranges], state: KnownState) -> None:
        """Say what all slots are to have copies of, and nothing else."""
        pages = {
            slot: {at: page for at, page in self._pages.get(slot, {}).items() if at in ranges}
            for slot, ranges in wanted.items()
        }
        version = self.version + 1
        for slot, ranges in wanted.items():
            for partition, spans in ranges.items():
                whole, place = state.runs.get(partition, ()), state.place_of(partition)
                page = pages[slot].get(partition)
                if page is None or page.place != place or page.spans != tuple(spans):
                    page = pages[slot][partition] = _Page(place, tuple(spans), whole)
                elif page.whole is whole or page.whole == whole:
                    continue
                page.whole = whole
                page.tell(version)
                self.version = version
        self._pages = pages

    def news(self, slot: str, done: int) -> list[CopyOrder]:
        """What a slot that has copied version `done` is to copy next, 0 for one that begins."""
        pages = self._pages.get(slot, {})
        self._done[slot] = done
        for page in pages.values():
            page.copied(done)
        return [
            CopyOrder(partition, page.place, page.spans, tuple(newest_first(page.told[-1][1])))
            for partition, page in pages.items()
            if page.version > done
        ]

    def is_wanted(self, slot: str) -> bool:
        return bool(self._pages.get(slot))

    def done(self, slot: str) -> int:
        """The version that a slot has copied last."""
        return self._done.get(slot, 0)

    def size_bytes(self, slot: str) -> int:
        """How much a slot is to have."""
        pages = self._pages.get(slot, {}).values()
        return sum(run.size_bytes for page in pages for run in page.told[-1][1])

    def missing_bytes(self, slot: str) -> int:
        """How much of what it is to have a slot has not copied yet."""
        done = self.done(slot)
        return sum(page.missing_bytes(done) for page in self._pages.get(slot, {}).values())
