"""The arithmetic of an assignment: who gives up how much of what, and who gets it.

Weights are whole numbers, and what a range weighs is its partition's weight times its hashes: so
sums do not depend on their order, and a bound is a bound. A range may be cut at any hash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import lcm
from typing import Final, TypeVar

from keyrange.model.key_ranges import SPACE, KeyRange, merge
from keyrange.model.offsets import TopicPartition

# By how much of its share a member may have more or less, where a partition stays whole for it.
SLACK: Final = Fraction(1, 10)

Spans = list[KeyRange]
# Ranges of one partition that are nobody's.
Lot = tuple[TopicPartition, Spans]


def size_of(spans: Iterable[KeyRange]) -> int:
    return sum(span.size for span in spans)


class Balance:
    """Who has what while it is dealt out. `weights` are those of whole partitions; all members have
    a capacity above 0."""

    def __init__(
        self, weights: Mapping[TopicPartition, float], capacities: Mapping[str, float]
    ) -> None:
        shares = _whole({name: capacities[name] for name in sorted(capacities)})
        everything = sum(shares.values())
        whole = _whole({each: weights[each] for each in sorted(weights)})
        # In such units that every quota is a whole number.
        self.weights = {each: weight * everything for each, weight in whole.items()}
        total = sum(whole.values()) * SPACE.size
        self.quotas = {name: total * each for name, each in shares.items()}
        self.loads = dict.fromkeys(shares, 0)
        self.held: dict[str, dict[TopicPartition, Spans]] = {name: {} for name in shares}
        # The same from the other side: the members that have something of a partition.
        self._holders: dict[TopicPartition, set[str]] = {}

    def give(self, name: str, partition: TopicPartition, spans: Iterable[KeyRange]) -> None:
        spans = list(spans)
        held = self.held[name]
        held[partition] = merge([*held.get(partition, []), *spans])
        self._holders.setdefault(partition, set()).add(name)
        self.loads[name] += self.weights[partition] * size_of(spans)

    def deal(self, lots: Iterable[Lot], receivers: Collection[str], slack: Fraction) -> None:
        """Deal lots out: the heaviest first, whole where they take nobody farther above their quota
        than `slack` of it; then the rest in parts."""
        too_large: list[Lot] = []
        limits = {name: int(self.quotas[name] * (1 + slack)) for name in receivers}
        in_order = sorted(lots, key=self._heaviest_first)
        for weighs, some in groupby(in_order, key=lambda lot: self.weights[lot[0]] > 0):
            line = _Line(receivers, self._load_first if weighs else self._count_first)
            too_large += [lot for lot in some if not self._give_whole(lot, line, limits)]
        for partition, spans in too_large:
            self._deal_in_parts(partition, spans, receivers)

    def draw(self, givers: Collection[str], wanted: int) -> list[Lot]:
        """Take at most `wanted` from those who have most beside their quota, and no giver's quota:
        whole partitions where that is near enough."""
        lots: list[Lot] = []
        # So little that nobody is off their share for want of it, whoever has to do without.
        spared = int(min(self.quotas.values()) * SLACK) // len(self.quotas)
        for name, share in self._levelled(givers, wanted):
            mass = share
            for partition in self._heaviest_held(name):
                weight = self.weights[partition]
                held = weight * size_of(self.held[name][partition])
                if 0 < held <= mass:
                    lots.append((partition, self._take(name, partition, held)))
                    mass -= held
            if mass > spared:
                lots += self._cut_off(name, mass)
        return lots

    def is_even(self) -> bool:
        """Whether everybody has about what is theirs."""
        return all(
            abs(self.loads[name] - quota) <= quota * SLACK for name, quota in self.quotas.items()
        )

    def room(self, names: Iterable[str]) -> int:
        """How much these lack of their quotas."""
        return sum(max(self.quotas[name] - self.loads[name], 0) for name in names)

    def _give_whole(self, lot: Lot, line: _Line, limits: Mapping[str, int]) -> bool:
        """Whether somebody has room for a lot: a member that has part of the partition, or else the
        first in line."""
        partition, spans = lot
        mass = self.weights[partition] * size_of(spans)

        def fits(name: str) -> bool:
            return self.loads[name] + mass <= limits[name]

        holders = self._holders.get(partition, set()) & limits.keys()
        name = min(filter(fits, holders), key=line.rank, default=None) or line.first(fits)
        if name is None:
            return False
        self.give(name, partition, spans)
        line.changed(name)
        return True

    def _load_first(self, name: str) -> tuple[float, float]:
        quota = max(self.quotas[name], 1)
        return self.loads[name] / quota, len(self.held[name]) / quota

    def _count_first(self, name: str) -> tuple[float, float]:
        """For partitions that weigh nothing."""
        load, count = self._load_first(name)
        return count, load

    def _heaviest_first(self, lot: Lot) -> tuple[int, TopicPartition]:
        partition, spans = lot
        return -self.weights[partition] * size_of(spans), partition

    def _heaviest_held(self, name: str) -> list[TopicPartition]:
        return sorted(
            self.held[name], key=lambda each: self._heaviest_first((each, self.held[name][each]))
        )

    def _deal_in_parts(
        self, partition: TopicPartition, spans: Spans, receivers: Collection[str]
    ) -> None:
        weight = self.weights[partition]
        while spans:
            rooms = {name: self.quotas[name] - self.loads[name] for name in receivers}
            roomy = [name for name, room in rooms.items() if room > 0] or list(receivers)
            name = min(roomy, key=lambda it: (partition not in self.held[it], -rooms[it], it))
            hashes = -(-rooms[name] // max(weight, 1))
            if hashes < 1 or not weight:
                hashes = size_of(spans)
            part, spans = _split(spans, hashes, self.held[name].get(partition, []))
            self.give(name, partition, part)

    def _levelled(self, givers: Collection[str], wanted: int) -> list[tuple[str, int]]:
        """How much each gives: the fullest first, down to a level that they have in common."""
        over = [name for name in givers if self.loads[name] > self.quotas[name] > 0]
        fullness = {name: Fraction(self.loads[name], self.quotas[name]) for name in over}
        over.sort(key=lambda name: (-fullness[name], name))
        load = quota = 0
        level = Fraction(1)
        for at, name in enumerate(over):
            load, quota = load + self.loads[name], quota + self.quotas[name]
            level = max(Fraction(load - wanted, quota), Fraction(1))
            if at + 1 == len(over) or level >= fullness[over[at + 1]]:
                over = over[: at + 1]
                break
        return [(name, int(self.loads[name] - level * self.quotas[name])) for name in over]

    def _cut_off(self, name: str, mass: int) -> list[Lot]:
        """Part of the lightest partition that is heavy enough; rather of one that is shared."""
        held = self.held[name]
        enough = [each for each in reversed(self._heaviest_held(name)) if self.weights[each]]
        enough = [each for each in enough if self.weights[each] * size_of(held[each]) > mass]
        enough.sort(key=lambda each: size_of(held[each]) == SPACE.size)
        if not enough or mass < self.weights[enough[0]]:
            return []
        return [(enough[0], self._take(name, enough[0], mass))]

    def _take(self, name: str, partition: TopicPartition, mass: int) -> Spans:
        weight = self.weights[partition]
        spans = self.held[name].pop(partition)
        taken, kept = _split(spans, mass // weight, [])
        self.loads[name] -= weight * size_of(taken)
        if kept:
            self.held[name][partition] = kept
        else:
            self._holders[partition].discard(name)
        return taken


class _Line:
    """Members in the order of what they have, for many lots: asking all of them for each partition
    takes too long where there are thousands of both."""

    def __init__(self, names: Iterable[str], measure: Callable[[str], tuple[float, float]]) -> None:
        self._measure = measure
        self._ranks = [self.rank(name) for name in names]
        heapify(self._ranks)

    def rank(self, name: str) -> tuple[float, float, str]:
        return *self._measure(name), name

    def changed(self, name: str) -> None:
        """Its earlier rank is passed over when it is met."""
        heappush(self._ranks, self.rank(name))

    def first(self, fits: Callable[[str], bool]) -> str | None:
        """The one with the lowest rank of those that fit; None without one."""
        passed: list[tuple[float, float, str]] = []
        found: str | None = None
        while self._ranks and found is None:
            rank = heappop(self._ranks)
            if rank == self.rank(rank[-1]):
                passed.append(rank)
                found = rank[-1] if fits(rank[-1]) else None
        for rank in passed:
            heappush(self._ranks, rank)
        return found


_Name = TypeVar("_Name")


def _whole(numbers: Mapping[_Name, float]) -> dict[_Name, int]:
    """The same proportions in whole numbers, exactly."""
    ratios = {name: float(number).as_integer_ratio() for name, number in numbers.items()}
    unit = lcm(*(below for _, below in ratios.values()))
    return {name: above * (unit // below) for name, (above, below) in ratios.items()}


def _split(spans: Spans, hashes: int, beside: Spans) -> tuple[Spans, Spans]:
    """So many hashes, and the rest: from the end where that touches `beside`, else from the
    beginning."""
    at_end = any(spans[-1].until_hash == each.from_hash for each in beside)
    cut = size_of(spans) - hashes if at_end else hashes
    lower: Spans = []
    upper: Spans = []
    for span in spans:
        border = min(span.from_hash + max(cut, 0), span.until_hash)
        cut -= span.size
        if span.from_hash < border:
            lower.append(KeyRange(span.from_hash, border))
        if border < span.until_hash:
            upper.append(KeyRange(border, span.until_hash))
    return (upper, lower) if at_end else (lower, upper)
