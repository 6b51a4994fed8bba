"""Who keeps copies of the state of key ranges that another slot owns, and inherits them if that one
is lost.

A standby is as far from the owner as any slot is: in another rack where racks are told of, else on
another host. It stays as long as that is so, whatever else moves: its copies are worth something.
What has none is dealt out by load, in parts: if a slot is lost, all others get something of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from keyrange.members.model.assignment import Assignment, Owned, Owners
from keyrange.model.key_ranges import SPACE, KeyRange, common, split_evenly, subtract
from keyrange.model.offsets import TopicPartition

# Into how many parts the share of a slot is cut at most, so that loads come out even.
_PARTS: Final = 8
# By how much of its share a standby may have more before something is taken from it.
_SLACK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot is: its host, and its rack, "" where nobody said which."""

    host: str = ""
    rack: str = ""

    def distance(self, other: Place) -> int:
        """The greater, the less is lost together."""
        if self.rack and other.rack and self.rack != other.rack:
            return 2
        return 1 if self.host != other.host else 0


@dataclass(frozen=True, slots=True)
class StoodFor(Owned):
    """A range whose owner is away, and which its standby reads meanwhile."""

    standby: str

    @property
    def reader(self) -> str:
        return self.standby


@dataclass(frozen=True, slots=True)
class _Part:
    partition: TopicPartition
    span: KeyRange
    owner: str


def standbys(
    assignment: Assignment,
    weights: Mapping[TopicPartition, float],
    places: Mapping[str, Place],
    before: Owners,
) -> dict[TopicPartition, tuple[Owned, ...]]:
    """The standby of each range of an assignment, among the slots that `places` tells of; `before`
    are those that there were. A slot that is alone has none."""
    # Each time but the first fewer slots stand by for nobody.
    while (after := _chosen(assignment, weights, places, before)) != before:
        before = after
    return after


def _chosen(
    assignment: Assignment,
    weights: Mapping[TopicPartition, float],
    places: Mapping[str, Place],
    before: Owners,
) -> dict[TopicPartition, tuple[Owned, ...]]:
    nearby = {slot: _farthest(slot, places) for slot in assignment.slots}
    loads = dict.fromkeys(places, 0.0)
    everything = sum(weights.get(partition, 0.0) for partition in assignment.owners) * SPACE.size
    share = everything / max(len(places), 1)
    found: list[tuple[_Part, str]] = []
    new: list[_Part] = []
    for part, standby in _parts(assignment, before):
        if standby in nearby[part.owner]:
            found.append((part, standby))
            loads[standby] += _weight(part, weights)
        elif nearby[part.owner]:
            new.append(part)
    kept = list(_levelled(found, loads, nearby, weights, share))
    cut = [piece for part in new for piece in _cut(part, weights, share)]
    for part in sorted(cut, key=lambda each: (-_weight(each, weights), each.partition, each.span)):
        standby = _least(nearby[part.owner], loads)
        loads[standby] += _weight(part, weights)
        kept.append((part, standby))
    return _joined(kept)


def with_standbys(owners: Owners, standbys: Owners, away: Collection[str]) -> Owners:
    """Who reads which ranges while some slots are away: their standbys, of those that are not."""
    if not away:
        return owners
    found: dict[TopicPartition, Sequence[Owned]] = {}
    for partition, owned in owners.items():
        own = found[partition] = []
        for each in owned:
            left = [each.span]
            for standby in standbys.get(partition, ()) if each.slot in away else ():
                span = common(standby.span, each.span)
                if span is not None and standby.slot not in away:
                    own.append(StoodFor(span, each.slot, standby.slot))
                    left = subtract(left, [span])
            own += [Owned(span, each.slot) for span in left]
        own.sort(key=lambda each: each.span)
    return found


def standing_by(owners: Owners, standbys: Owners) -> dict[str, frozenset[str]]:
    """Which slots stand by for key ranges of a slot."""
    found: dict[str, set[str]] = {}
    for partition, owned in owners.items():
        for each in owned:
            near = (s.slot for s in standbys.get(partition, ()) if common(s.span, each.span))
            found.setdefault(each.slot, set()).update(near)
    return {slot: frozenset(each) for slot, each in found.items()}


class Standing:
    """The standbys of a run of a query, and for whom they read; `replicas` is 0 or 1."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        # By what they were chosen last.
        self._chosen_by: tuple[Assignment | None, Mapping[str, Place]] = (None, {})
        self._read_by: tuple[Assignment, Owners, frozenset[str]] | None = None
        self._readers: Owners = {}
        # Of the assignment that `readers` was asked for last.
        self.standing_by: Mapping[str, frozenset[str]] = {}
        # Slots whose tasks did not come for what they were to read, and have not come since.
        self.silent: frozenset[str] = frozenset()

    def heard(self, wanted: frozenset[str], asked: frozenset[str]) -> None:
        """Take in from which slots tasks were wanted in a batch, and from which they came. An
        executor that is lost is in the group for session.timeout.ms: each batch of that time would
        wait for it, and its standby has what it takes."""
        self.silent = (self.silent | wanted) - asked

    def chosen(
        self,
        assignment: Assignment,
        weights: Mapping[TopicPartition, float],
        places: Mapping[str, Place],
        before: Owners,
    ) -> Owners:
        """As `standbys`."""
        self._chosen_by = (assignment, places)
        return standbys(assignment, weights, places, before) if self._replicas else {}

    def has_moved(self, assignment: Assignment | None, places: Mapping[str, Place]) -> bool:
        """Whether slots are elsewhere than they were when standbys were chosen."""
        if assignment is None or not self._replicas:
            return False
        return self._chosen_by != (assignment, places)

    def readers(self, assignment: Assignment, standbys: Owners, away: frozenset[str]) -> Owners:
        """As `with_standbys`, made once."""
        known = self._read_by
        if known is None or known[0] is not assignment or known[1:] != (standbys, away):
            self._read_by = (assignment, standbys, away)
            self._readers = with_standbys(assignment.owners, standbys, away)
            self.standing_by = standing_by(assignment.owners, standbys)
        return self._readers


def _levelled(
    found: list[tuple[_Part, str]],
    loads: dict[str, float],
    nearby: Mapping[str, frozenset[str]],
    weights: Mapping[TopicPartition, float],
    share: float,
) -> Iterator[tuple[_Part, str]]:
    """Those that stay, and what slots that stand by for nobody take over from those that have too
    much."""
    came = {slot for slot, load in loads.items() if not load}
    for part, standby in found:
        near = nearby[part.owner] & came
        if not near:
            yield part, standby
            continue
        for piece in _cut(part, weights, share):
            mass, least = _weight(piece, weights), _least(near, loads)
            moves = loads[standby] > share * (1 + _SLACK) and loads[least] + mass <= share
            if moves:
                loads[standby] -= mass
                loads[least] += mass
            yield piece, least if moves else standby


def _farthest(owner: str, places: Mapping[str, Place]) -> frozenset[str]:
    own = places.get(owner, Place())
    distances = {slot: own.distance(place) for slot, place in places.items() if slot != owner}
    most = max(distances.values(), default=0)
    return frozenset(slot for slot, distance in distances.items() if distance == most)


def _parts(assignment: Assignment, before: Owners) -> Iterator[tuple[_Part, str]]:
    """The ranges of an assignment, cut where their standbys of before end; "" where none was."""
    for partition, owned in sorted(assignment.owners.items()):
        for each in owned:
            shared = [
                (span, standby.slot)
                for standby in before.get(partition, ())
                if (span := common(standby.span, each.span)) is not None
            ]
            left = [(span, "") for span in subtract([each.span], [span for span, _ in shared])]
            for span, slot in sorted([*shared, *left]):
                yield _Part(partition, span, each.slot), slot


def _cut(part: _Part, weights: Mapping[TopicPartition, float], share: float) -> Iterator[_Part]:
    mass = _weight(part, weights)
    count = max(min(round(mass * _PARTS / share), _PARTS), 1) if share else 1
    for span in split_evenly(part.span, count):
        yield _Part(part.partition, span, part.owner)


def _least(slots: frozenset[str], loads: Mapping[str, float]) -> str:
    return min(slots, key=lambda slot: (loads[slot], slot))


def _weight(part: _Part, weights: Mapping[TopicPartition, float]) -> float:
    return weights.get(part.partition, 0.0) * part.span.size


def _joined(found: list[tuple[_Part, str]]) -> dict[TopicPartition, tuple[Owned, ...]]:
    by_partition: dict[TopicPartition, list[Owned]] = {}
    for part, standby in sorted(found, key=lambda each: (each[0].partition, each[0].span)):
        spans = by_partition.setdefault(part.partition, [])
        if spans and spans[-1].slot == standby and spans[-1].span.until_hash == part.span.from_hash:
            spans[-1] = Owned(KeyRange(spans[-1].span.from_hash, part.span.until_hash), standby)
        else:
            spans.append(Owned(part.span, standby))
    return {partition: tuple(spans) for partition, spans in by_partition.items()}
