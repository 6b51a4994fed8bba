"""The plan of a batch whose key ranges belong to slots: portions, each of one slot, instead of
tasks.

A portion is what a task reads before it asks for the next one. What is shared on a host is shared
within a slot: other slots are elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from keyrange.individual_commits.model import delivery_splits
from keyrange.individual_commits.model.delivery_splits import PartitionDeliveries
from keyrange.members.model.assignment import Owned, Owners
from keyrange.model.key_ranges import KeyRange, split_evenly
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.ranges.model.range_plan import RangeEstimate, plan_tasks, weigh

Naming = Callable[[TopicPartition], str]

# Finer than the portions, so that the line of a slot's ranges can be cut where the bytes are.
_PIECES_PER_PORTION: Final = 4
# To ask for less costs more than to read it.
_PORTION_BYTES_MIN: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """What is read in one go, the slot that it belongs to, and the one whose tasks read it."""

    slot: str
    splits: tuple[Split, ...]
    reader: str


@dataclass(frozen=True, slots=True)
class Shape:
    """Into how many portions the ranges are cut that a slot reads: `per_slot` of each, `other` of a
    slot that is not named."""

    per_slot: Mapping[str, int]
    other: int = 1

    def of(self, slot: str, size: float) -> int:
        """As many as there are to be, and not more than are worth the asking."""
        worth = max(round(size / _PORTION_BYTES_MIN), 1)
        return min(self.per_slot.get(slot, self.other), worth)


def plan_pinned(
    ranges: Mapping[TopicPartition, OffsetRange],
    owners: Owners,
    bytes_per_offset: Mapping[TopicPartition, float],
    key_hashes: Callable[[TopicPartition], Sequence[int]],
    shape: Shape,
    naming: Callable[[], Naming],
) -> list[WorkUnit]:
    """The portions of a batch that reads `ranges`, each slot's larger ones first. `naming` makes
    names for what the portions of one slot share: whoever reads for two shares with neither."""
    pieces = _pieces({p: owners[p] for p in ranges}, shape)
    found: dict[tuple[str, str], list[RangeEstimate]] = {}
    for partition, span in sorted(ranges.items()):
        size = span.size * bytes_per_offset[partition]
        spans = [each.span for each in pieces[partition]]
        cells = weigh(partition, spans, size, key_hashes(partition))
        for cell, each in zip(cells, pieces[partition], strict=True):
            found.setdefault((each.slot, each.reader), []).append(cell)
    return [
        WorkUnit(slot, splits, reader)
        for (slot, reader), cells in sorted(found.items())
        for splits in plan_tasks(cells, ranges, shape.of(reader, _total(cells)), naming())
    ]


def plan_pinned_deliveries(
    deliveries: PartitionDeliveries,
    spans: Mapping[TopicPartition, Sequence[KeyRange]],
    owners: Owners,
    bytes_per_offset: Mapping[TopicPartition, float],
    key_hashes: Callable[[TopicPartition], Sequence[int]],
    shape: Shape,
    naming: Callable[[], Naming],
    scope: StateScope = OWN_STATE,
) -> list[WorkUnit] | None:
    """The portions of a batch that reads what `deliveries` hand out, in the key ranges `spans`;
    None where one of these belongs to two slots, or is read by two.

    No portion begins inside one of `spans`: what becomes of a record is said by them, and of the
    records of one only a single task may speak. Partitions that share the state of keys (`scope`)
    are owned by whoever owns the one with the state.
    """
    found: dict[tuple[str, str], list[RangeEstimate]] = {}
    for cell in delivery_splits.plan_cells(deliveries, spans, bytes_per_offset, key_hashes):
        owned = _owner(owners[scope.home(cell.partition)], cell.span)
        if owned is None:
            return None
        found.setdefault((owned.slot, owned.reader), []).append(cell)
    portions: list[WorkUnit] = []
    for (slot, reader), cells in sorted(found.items()):
        count = shape.of(reader, _total(cells))
        stretches = delivery_splits.cut_groups(cells, count, scope)
        planned = delivery_splits.plan_deliveries(
            stretches, deliveries, bytes_per_offset, naming(), scope
        )
        portions += [WorkUnit(slot, splits, reader) for splits in planned]
    return portions


def portion_cuts(owners: Owners, shape: Shape) -> dict[TopicPartition, tuple[int, ...]]:
    """Where portions may begin inside a partition, for each that is cut: hashes, ascending."""
    cuts = {
        partition: tuple(piece.span.from_hash for piece in pieces[1:])
        for partition, pieces in _pieces(owners, shape).items()
    }
    return {partition: each for partition, each in cuts.items() if each}


def _owner(owned: Sequence[Owned], span: KeyRange) -> Owned | None:
    """Whose all of a key range is."""
    at = bisect_right(owned, span.from_hash, key=lambda each: each.span.from_hash) - 1
    return owned[at] if span.until_hash <= owned[at].span.until_hash else None


def _pieces(owners: Owners, shape: Shape) -> dict[TopicPartition, list[Owned]]:
    """The owned ranges, cut further where a slot has few of them."""
    counts: dict[tuple[str, str], int] = {}
    for owned in owners.values():
        for each in owned:
            whose = each.slot, each.reader
            counts[whose] = counts.get(whose, 0) + 1

    def cut(each: Owned) -> Iterable[Owned]:
        wanted = shape.per_slot.get(each.reader, shape.other) * _PIECES_PER_PORTION
        for span in split_evenly(each.span, -(-wanted // counts[each.slot, each.reader])):
            yield replace(each, span=span)

    return {
        partition: [piece for each in owned for piece in cut(each)]
        for partition, owned in owners.items()
    }


def _total(cells: Iterable[RangeEstimate]) -> float:
    return sum(cell.bytes for cell in cells)
