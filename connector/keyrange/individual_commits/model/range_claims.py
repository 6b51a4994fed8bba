"""Who speaks for which keys, where several consumers of a group keep one commit table.

Each consumer writes a source of its own. A claim, in a fence of that source, says since
which epoch the source speaks for which key ranges. Of a place in the hash space the source with the
highest epoch is believed, and no other. A consumer that takes a range over first fences the source
that holds it, which ends what its writer may commit, and copies what it finds into its own claim.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    cut_at,
    cut_span,
)
from keyrange.model.key_ranges import (
    SPACE,
    KeyRange,
    common,
    complement,
    overlap,
    read_ranges,
    subtract,
)
from keyrange.model.offsets import OFFSET_MAX, TopicPartition, by_partition, nested

_VERSION: Final = 1
TEXT_CHARACTERS_MAX: Final = 4 * 1024 * 1024

# How the names of consumers' sources begin.
SOURCE_PREFIX: Final = "consumer/"

Spans = Mapping[TopicPartition, Sequence[KeyRange]]


def is_of_consumer(source_id: str) -> bool:
    """Whether a source is a consumer's, and not a query's."""
    return source_id.startswith(SOURCE_PREFIX)


def source_of(group: str, slot: str) -> str:
    """The source that a slot writes."""
    return f"{SOURCE_PREFIX}{group}/{slot}"


def sources_named(source_ids: Iterable[str], name: str) -> set[str]:
    """Which sources somebody means: the one of this id, else the slots of consumers with this name,
    else all whose ids begin so."""
    known = set(source_ids)
    slots = {each for each in known if is_of_consumer(each) and each.endswith(f"/{name}")}
    return known & {name} or slots or {each for each in known if each.startswith(name)}


@dataclass(frozen=True, slots=True, order=True)
class Claimed:
    """A key range, and the epoch in which it was claimed last."""

    span: KeyRange
    epoch: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What a source says of itself. It holds the ranges that it claimed in `epoch`; of others it
    tells what was done until somebody else claimed them. `begun` is where the group began with a
    partition. `ready`: it can take what others are to hand over in this epoch. `closed`: its writer
    has ended, and another may go on in its place. `marks`: its writer may have a transaction in
    Kafka, which has its marks beside this topic; "" for none. Raises ValueError where ranges of a
    partition overlap or are of a later epoch."""

    slot: str
    epoch: int
    ranges: Mapping[TopicPartition, tuple[Claimed, ...]] = field(default_factory=dict)
    begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    ready: bool = True
    closed: bool = False
    marks: str = ""

    def __post_init__(self) -> None:
        if self.epoch < 1:
            raise ValueError(f"{self.epoch} is no epoch")
        for partition, claimed in self.ranges.items():
            if overlap(each.span for each in claimed):
                raise ValueError(f"two claims of {partition} overlap")
            if any(not 0 <= each.epoch <= self.epoch for each in claimed):
                raise ValueError(f"a range of {partition} was claimed later than it was written")

    def held(self, partition: TopicPartition) -> list[KeyRange]:
        """The ranges of a partition that the source holds."""
        return [c.span for c in self.ranges.get(partition, ()) if c.epoch == self.epoch]

    @property
    def holds_nothing(self) -> bool:
        return not any(self.held(partition) for partition in self.ranges)

    def holds_any(self, wanted: Spans) -> bool:
        """Whether it holds some of the keys that somebody wants."""
        return any(
            common(mine, theirs) is not None
            for partition, spans in wanted.items()
            for mine in self.held(partition)
            for theirs in spans
        )

    def claiming(
        self, epoch: int, wanted: Spans, begun: Mapping[TopicPartition, int], ready: bool = True
    ) -> Claim:
        """The claim that follows it: with `wanted`, and what was said of other ranges before.

        What is let go of in the epoch in which it was claimed is of the one before: who takes it
        does so in the same epoch, and is believed. Whoever claims has no transaction.
        """
        ranges: dict[TopicPartition, tuple[Claimed, ...]] = {}
        for partition in sorted({*self.ranges, *wanted}):
            spans = wanted.get(partition, ())
            kept = [
                Claimed(part, min(each.epoch, epoch - 1))
                for each in self.ranges.get(partition, ())
                for part in subtract([each.span], spans)
            ]
            ranges[partition] = tuple(sorted([*kept, *(Claimed(span, epoch) for span in spans)]))
        return Claim(self.slot, epoch, ranges, {**self.begun, **begun}, ready)

    def fenced(self, epoch: int) -> Claim:
        """The claim that somebody else leaves behind who takes ranges over: nothing is held."""
        return replace(self, epoch=max(epoch, self.epoch + 1))


Claims = Mapping[str, Claim]


def believed(
    claims: Claims, partition: TopicPartition, span: KeyRange
) -> list[tuple[KeyRange, str]]:
    """A key range cut by who is believed of each part of it; "" where nobody has claimed it."""
    found = [
        (each, source)
        for source, claim in sorted(claims.items())
        for each in claim.ranges.get(partition, ())
    ]
    borders = sorted({b for each, _ in found for b in (each.span.from_hash, each.span.until_hash)})
    cells: list[tuple[KeyRange, str]] = []
    for part in cut_span(span, borders):
        sources = [(each.epoch, s) for each, s in found if each.span.contains(part.from_hash)]
        source = max(sources)[1] if sources else ""
        begin = part.from_hash
        if cells and cells[-1][1] == source:
            begin = cells.pop()[0].from_hash
        cells.append((KeyRange(begin, part.until_hash), source))
    return cells


def is_alone(claims: Claims, source: str, wanted: Spans, epoch: int) -> bool:
    """Whether nobody has claimed the same as a source in the epoch of its claim, or later."""
    others = [claim for each, claim in claims.items() if each != source]
    return claims[source].epoch == epoch and not any(
        claim.epoch >= epoch and claim.holds_any(wanted) for claim in others
    )


def later_claim(claims: Claims, source: str, wanted: Spans, epoch: int) -> str | None:
    """Who is in the way of a source that wants ranges in an epoch, the latest of them: others that
    hold some in one that is not lower, and itself in a higher one."""
    later = [
        (claim.epoch, each)
        for each, claim in claims.items()
        if (claim.epoch > epoch if each == source else claim.epoch >= epoch)
        and (each == source or claim.holds_any(wanted))
    ]
    return max(later)[1] if later else None


def going_on(
    others: Claims, fenced: Collection[str], members: Collection[str] | None
) -> dict[str, str]:
    """The slots, by source, of those who hold something and are not among the sources that are
    fenced; `members` are the slots that may live, None for all."""
    return {
        source: claim.slot
        for source, claim in others.items()
        if source not in fenced and not claim.holds_nothing
        if members is None or claim.slot in members
    }


def begun_at(claims: Claims, partition: TopicPartition) -> int | None:
    """Where the group began with a partition; the lowest, where two began at once."""
    return min((c.begun[partition] for c in claims.values() if partition in c.begun), default=None)


def pieces_of(state: PartitionState, span: KeyRange) -> list[KeyRangeState]:
    """What a state says of a key range."""
    cut = cut_at(state.pieces, (span.from_hash, span.until_hash))
    return [piece for piece in cut if span.contains(piece.span.from_hash)]


def overlay(base: PartitionState, pieces: Sequence[KeyRangeState]) -> PartitionState:
    """A state in which other pieces stand for their keys."""
    rest = [
        part
        for span in complement(piece.span for piece in pieces)
        for part in pieces_of(base, span)
    ]
    every = sorted([*rest, *pieces], key=lambda piece: piece.span)
    position = max(piece.scanned for piece in every)
    return PartitionState(base.topic_id, position, tuple(every), base.leader_epoch).merged()


def of_topic(states: Mapping[str, PartitionState], topic_id: str) -> dict[str, PartitionState]:
    """The states of a partition that are of the topic with this id; "" where it has none."""
    wanted = ("", topic_id)
    return {s: state for s, state in states.items() if not topic_id or state.topic_id in wanted}


def is_recreated(
    claims: Claims,
    states: Mapping[str, PartitionState],
    partition: TopicPartition,
    spans: Iterable[KeyRange],
    topic_id: str,
) -> bool:
    """Whether key ranges of a partition have to begin anew, since what is said of them is of a
    topic with another id. What a source has left that is not believed any more tells nothing."""
    ours = of_topic(states, topic_id)
    if not ours:
        return bool(states)
    sources = {source for span in spans for _, source in believed(claims, partition, span)}
    return any(source in states and source not in ours for source in sources)


def pieces_done(
    claims: Claims,
    states: Mapping[str, PartitionState],
    partition: TopicPartition,
    span: KeyRange,
    begun: int,
) -> list[KeyRangeState]:
    """What is done of a range, by who is believed of each part of it; of a source without a state,
    and where there is none, it is what lies before `begun`."""
    pieces: list[KeyRangeState] = []
    for part, source in believed(claims, partition, span):
        state = states.get(source)
        pieces += pieces_of(state, part) if state is not None else [KeyRangeState(part, begun)]
    return pieces


def group_state(
    claims: Claims, states: Mapping[str, PartitionState], partition: TopicPartition
) -> PartitionState | None:
    """What a whole group has done of a partition, by the source that is believed of each part;
    None where nobody has begun with it."""
    begun = begun_at(claims, partition)
    if begun is None:
        return None
    pieces = pieces_done(claims, states, partition, SPACE, begun)
    topic_id = next((each.topic_id for each in states.values()), "")
    return PartitionState(topic_id, max(piece.scanned for piece in pieces), tuple(pieces))


def write_claim(claim: Claim) -> str:
    """A claim as text, in the same form for the same claim."""
    ranges = {
        partition: [[c.span.from_hash, c.span.until_hash - 1, c.epoch] for c in claimed]
        for partition, claimed in claim.ranges.items()
    }
    document = {
        "v": _VERSION,
        "slot": claim.slot,
        "epoch": claim.epoch,
        "ready": claim.ready,
        "ranges": nested(ranges),
        "begun": nested(claim.begun),
        **({"closed": True} if claim.closed else {}),
        **({"marks": claim.marks} if claim.marks else {}),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def read_claim(text: str) -> Claim:
    """The claim of a text. Raises ValueError for what is none, or of a newer version."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a claim has {len(text)} characters")
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("a claim is nested too deep") from None
    if not isinstance(document, dict) or not isinstance(marks := document.get("marks", ""), str):
        raise ValueError("a claim is a document, and its marks are beside a topic")
    if document.get("v") != _VERSION:
        raise ValueError(f"a claim is a document of version {_VERSION}")
    slot, epoch = document.get("slot"), document.get("epoch")
    ready, closed = document.get("ready"), document.get("closed", False)
    if not isinstance(slot, str) or not isinstance(epoch, int):
        raise ValueError("a claim names its slot and its epoch")
    if not isinstance(ready, bool) or not isinstance(closed, bool):
        raise ValueError("a claim says whether it is ready, and whether it is closed")
    if not _is_number(epoch, 1):
        raise ValueError("the epoch of a claim is a number")
    ranges = {
        partition: tuple(_read_claimed(each) for each in _list(rows))
        for partition, rows in by_partition(document.get("ranges"))
    }
    begun = {}
    for partition, at in by_partition(document.get("begun")):
        if not _is_number(at, 0):
            raise ValueError(f"{partition} did not begin at an offset")
        begun[partition] = at
    return Claim(slot, epoch, ranges, begun, ready, closed, marks)


def _list(document: Any) -> list[Any]:
    if not isinstance(document, list):
        raise ValueError("the ranges of a claim are a list")
    return document


def _read_claimed(document: Any) -> Claimed:
    if not isinstance(document, list) or len(document) != 3 or not _is_number(document[2], 0):
        raise ValueError("a range of a claim is [lo, hi, epoch]")
    [span] = read_ranges([document[:2]])
    return Claimed(span, document[2])


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= OFFSET_MAX
