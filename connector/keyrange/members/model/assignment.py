"""Which slot has which key ranges of each partition, and who gets what when that changes.

`assign` moves as little as it can, and every move has a cause:

- What a slot had that is gone goes to its heirs, who keep copies of its state; what has none is
  dealt out, and so is a partition that is new; nothing else moves for it.
- Slots that come, or have nothing left, draw their share from those that have most beside theirs,
  and no more than it: of n equal slots that become n + 1, at most 1/(n + 1) of the weight moves.
- Where neither slots nor partitions have changed, a rebalance was asked for: those who have too
  little draw from those who have too much, if anybody is off their share by more than a tenth.

A partition goes to one slot where that takes nobody a tenth above their share, and is cut
otherwise, at any hash. The result depends on the arguments' values alone, not on their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from keyrange.errors import error
from keyrange.members.model.balance import SLACK, Balance
from keyrange.model.key_ranges import (
    HASH_MAX,
    SPACE,
    KeyRange,
    common,
    merge,
    subtract,
    write_ranges,
)
from keyrange.model.offsets import TopicPartition, by_partition, nested

_VERSION: Final = 1
_NO_SLACK: Final = Fraction(0)

# Key ranges by partition, in order.
Ranges = dict[TopicPartition, list[KeyRange]]


@dataclass(frozen=True, slots=True, order=True)
class Owned:
    """A key range and the slot that has it."""

    span: KeyRange
    slot: str

    @property
    def reader(self) -> str:
        """The slot whose tasks read the range."""
        return self.slot


# Who has which ranges of each partition, in order.
Owners = Mapping[TopicPartition, Sequence[Owned]]


@dataclass(frozen=True, slots=True)
class Assignment:
    """The owners of each partition's hash space: in order, covering it once, neighbours of one slot
    merged. `epoch` grows with every assignment. Raises ValueError where that is not so."""

    epoch: int
    owners: Mapping[TopicPartition, tuple[Owned, ...]]

    def __post_init__(self) -> None:
        if self.epoch < 1:
            raise ValueError(f"{self.epoch} is no epoch")
        for partition, owned in self.owners.items():
            froms = [each.span.from_hash for each in owned]
            untils = [each.span.until_hash for each in owned]
            if [SPACE.from_hash, *untils] != [*froms, SPACE.until_hash]:
                raise ValueError(f"{partition}: the ranges do not cover the space once, in order")
            if any(not each.slot for each in owned):
                raise ValueError(f"{partition}: a range has no owner")
            if any(a.slot == b.slot for a, b in pairwise(owned)):
                raise ValueError(f"{partition}: neighbours of one slot are not merged")

    @property
    def slots(self) -> list[str]:
        """All slots that have something, in order."""
        return sorted({each.slot for owned in self.owners.values() for each in owned})

    def of(self, slot: str) -> Ranges:
        """What a slot has; partitions of which it has nothing are left out."""
        ranges: Ranges = {}
        for partition, owned in sorted(self.owners.items()):
            spans = [each.span for each in owned if each.slot == slot]
            if spans:
                ranges[partition] = spans
        return ranges

    def by_slot(self) -> dict[str, Ranges]:
        """What each slot has, slots and partitions in order: `of` each, in one walk."""
        found: dict[str, Ranges] = {slot: {} for slot in self.slots}
        for partition, owned in sorted(self.owners.items()):
            for each in owned:
                found[each.slot].setdefault(partition, []).append(each.span)
        return found

    def owner_of(self, partition: TopicPartition, key_hash: int) -> str | None:
        """The slot that has a hash; None for a partition that is not in the assignment."""
        owned = self.owners.get(partition)
        if owned is None or not SPACE.contains(key_hash):
            return None
        return owned[bisect_right(owned, key_hash, key=lambda each: each.span.from_hash) - 1].slot

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {"version": _VERSION, "epoch": self.epoch, "owners": owners_to_json(self.owners)}

    @classmethod
    def from_json(cls, document: Any) -> Assignment:
        """Raises INVALID_ASSIGNMENT for what is no assignment of a version that is known."""
        try:
            if document["version"] != _VERSION:
                raise ValueError(f"it is of version {document['version']}")
            if type(document["epoch"]) is not int:
                raise ValueError("its epoch is no whole number")
            return cls(document["epoch"], owners_from_json(document["owners"]))
        except (KeyError, TypeError, ValueError, AttributeError) as failure:
            message = f"an assignment cannot be read: {failure!r}"
            raise error("INVALID_ASSIGNMENT", message) from None


def owners_to_json(owners: Owners) -> dict[str, Any]:
    """By topic, by partition, `[lo, hi, slot]` with both ends included."""
    return nested(
        {
            partition: [
                [each.span.from_hash, each.span.until_hash - 1, each.slot] for each in owned
            ]
            for partition, owned in owners.items()
        }
    )


def owners_from_json(document: Any) -> dict[TopicPartition, tuple[Owned, ...]]:
    """What `owners_to_json` has made. Raises ValueError, TypeError, AttributeError, KeyError."""
    return {
        partition: tuple(map(_read_owned, ranges)) for partition, ranges in by_partition(document)
    }


def ranges_by_slot(assignment: Assignment) -> dict[str, Any]:
    """What each slot has: by topic, by partition, both ends of each range included."""
    return {
        slot: nested({at: write_ranges(spans) for at, spans in ranges.items()})
        for slot, ranges in assignment.by_slot().items()
    }


def assign(
    weights: Mapping[TopicPartition, float],
    members: Mapping[str, float],
    previous: Assignment | None,
    epoch: int,
    heirs: Owners = MappingProxyType({}),
) -> Assignment:
    """Deal the hash spaces of `weights` out to slots, name to capacity, as the module says. `heirs`
    says who is to have which ranges if their owner is gone.

    Partitions that are not in `weights` vanish; those of weight 0 are spread by number. Raises
    ValueError for no slots, for weights below 0, and for capacities that are not above 0.
    """
    _check(weights, members)
    if not any(weights.values()):
        weights = dict.fromkeys(weights, 1.0)
    balance = Balance(weights, members)
    owners = previous.owners if previous is not None else {}
    previous_slots = previous.slots if previous is not None else []
    free: Ranges = {}
    for partition in sorted(weights):
        kept = owners.get(partition)
        if kept is None:
            free[partition] = [SPACE]
            continue
        for owned in kept:
            if owned.slot in members:
                balance.give(owned.slot, partition, [owned.span])
                continue
            left = [owned.span]
            for heir in heirs.get(partition, ()):
                span = common(heir.span, owned.span)
                if span is not None and heir.slot in members:
                    balance.give(heir.slot, partition, [span])
                    left = subtract(left, [span])
            if left:
                free.setdefault(partition, []).extend(left)
    names = sorted(members)
    came = [name for name in names if not balance.held[name]]
    balance.deal(((each, merge(spans)) for each, spans in free.items()), names, SLACK)
    stayed = sorted(set(names) - set(came))
    if came and stayed:
        balance.deal(balance.draw(stayed, balance.room(came)), came, _NO_SLACK)
    elif came or (names == previous_slots and owners.keys() == weights.keys()):
        short = [name for name in names if balance.loads[name] < balance.quotas[name]]
        if not balance.is_even():
            balance.deal(balance.draw(names, balance.room(short)), short, _NO_SLACK)
    return _assignment(epoch, balance.held)


def tempered(measured: Mapping[TopicPartition, float]) -> dict[TopicPartition, float]:
    """Weights for `assign` by what was measured of partitions: none is so small that this says
    nothing of what is to come, and one that had nothing is like the others."""
    found = [weight for weight in measured.values() if weight]
    mean = sum(found) / max(len(found), 1)
    return {each: max(weight or mean, mean / 10, 1.0) for each, weight in measured.items()}


def moved(before: Assignment, after: Assignment, weights: Mapping[TopicPartition, float]) -> float:
    """The share of the weight, 0 to 1, that has another owner than before.

    What is in one of the two only has not moved.
    """
    total = sum(map(Fraction, weights.values()))
    if not total:
        return 0.0
    gone = Fraction(0)
    for partition in before.owners.keys() & after.owners.keys() & weights.keys():
        stayed = sum(
            shared.size
            for a in before.owners[partition]
            for b in after.owners[partition]
            if a.slot == b.slot and (shared := common(a.span, b.span)) is not None
        )
        gone += Fraction(weights[partition]) * Fraction(SPACE.size - stayed, SPACE.size)
    return float(gone / total)


def without(
    ranges: Mapping[TopicPartition, Sequence[KeyRange]],
    others: Mapping[TopicPartition, Sequence[KeyRange]],
) -> Ranges:
    """What of some ranges is in none of the others."""
    left = {
        partition: subtract(spans, others.get(partition, ()))
        for partition, spans in sorted(ranges.items())
    }
    return {partition: spans for partition, spans in left.items() if spans}


def _assignment(epoch: int, held: Mapping[str, Ranges]) -> Assignment:
    owners: dict[TopicPartition, list[Owned]] = {}
    for slot, ranges in held.items():
        for partition, spans in ranges.items():
            owners.setdefault(partition, []).extend(Owned(span, slot) for span in merge(spans))
    return Assignment(epoch, {each: tuple(sorted(owners[each])) for each in sorted(owners)})


def _check(weights: Mapping[TopicPartition, float], members: Mapping[str, float]) -> None:
    if not members:
        raise ValueError("there is no member")
    for partition, weight in weights.items():
        if not 0 <= weight < float("inf"):
            raise ValueError(f"{partition} weighs {weight}")
    for name, capacity in members.items():
        if not name or not 1e-9 <= capacity <= 1e9:
            raise ValueError(f"member '{name}' has capacity {capacity}")


def _read_owned(document: Any) -> Owned:
    lo, hi, slot = document
    if type(lo) is not int or type(hi) is not int or not 0 <= lo <= hi <= HASH_MAX:
        raise ValueError(f"[{lo}, {hi}] is no key range")
    if not isinstance(slot, str):
        raise ValueError(f"[{lo}, {hi}] has no slot")
    return Owned(KeyRange(lo, hi + 1), slot)


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
    ranges are those that it had then, and else this assignment.

    A slot that loses some and gets the same ones back has missed what others did with them
    meanwhile: equal ranges do not say that nothing was missed.
    """
    had = before.by_slot() if before is not None else {}
    return {
        slot: since[slot] if slot in since and had.get(slot) == ranges else Since(run, after.epoch)
        for slot, ranges in after.by_slot().items()
    }
