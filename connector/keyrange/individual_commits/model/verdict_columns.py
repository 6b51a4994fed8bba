"""What becomes of the states of all partitions when a batch has been worked on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from keyrange.individual_commits.model.delivery_columns import DeliveryColumns
from keyrange.individual_commits.model.partition_progress import PendingRecord
from keyrange.individual_commits.model.state_columns import (
    LEADER_EPOCH,
    OFFSET,
    SCANNED,
    SINCE_MS,
    Bools,
    Ints,
    Places,
    StateColumns,
    pending_columns,
    placed,
    united,
)
from keyrange.model.commit_settings import RedeliveryPolicy
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause, RecordOutcome

# Up to how many pending records two pieces become one although they have some.
MERGED_PENDING_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """What a job said of what it was handed out of one partition; what it did not mention is done.

    `handed_back`: of these keys nothing from that offset on was worked on.
    """

    not_done: tuple[RecordOutcome, ...] = ()
    handed_back: tuple[tuple[KeyRange, int], ...] = ()


Verdicts = Mapping[TopicPartition, PartitionVerdict]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The states afterwards, and the pending records that are given up, of the partitions that have
    some: they go to the dead letters."""

    states: StateColumns
    dead: Mapping[TopicPartition, Sequence[PendingRecord]]


class StrangeVerdict(ValueError):
    """What was said of a partition cannot be."""

    def __init__(self, partition: TopicPartition, why: str) -> None:
        super().__init__(why)
        self.partition = partition


def apply_verdicts(
    deliveries: DeliveryColumns, verdicts: Verdicts, policy: RedeliveryPolicy, now_ms: int
) -> Outcome:
    """Take what a job said of some partitions into the states that its batch was planned from; what
    it did not mention is done.

    Raises StrangeVerdict where a verdict names what the batch has not handed out, or contradicts
    itself.
    """
    before = deliveries.states
    back = [(before.numbers[p], *each) for p, said in verdicts.items() for each in said.handed_back]
    borders = (
        (number, at)
        for number, span, _ in back
        for at in (span.from_hash, span.until_hash)
        if at <= HASH_MAX
    )
    cut = united(before.places, deliveries.cells, _places(borders))
    were = before.of_pieces[SCANNED][placed(before.places, cut)]
    backs = _backs(cut, deliveries.ends, back)
    until = deliveries.until_offsets[placed(deliveries.cells, cut)]
    scanned = np.maximum(were, np.minimum(backs, until))
    records, dead = _not_done(deliveries, verdicts, cut, (were, scanned, backs), policy, now_ms)
    # Of what was pending before stays what nothing was said of.
    piece = placed(cut, before.places_of_pending)
    stays = ~deliveries.again | (before.pending[OFFSET] >= backs[piece])
    new = pending_columns(record for _, record in records)
    piece = np.append(piece[stays], np.array([at for at, _ in records], np.int64))
    pending = np.concatenate((before.pending[:, stays], new), axis=1)
    firsts = _firsts(cut, deliveries.spans, scanned, np.bincount(piece, minlength=len(scanned)))
    group = (np.cumsum(firsts) - 1)[piece]
    pieces = np.bincount(cut.part[firsts], minlength=len(before))
    counts = np.bincount(group, minlength=np.count_nonzero(firsts))
    after = StateColumns(
        before.partitions,
        before.topic_ids,
        np.stack((deliveries.ends, before.of_partitions[LEADER_EPOCH], pieces)),
        np.stack((cut.at[firsts], scanned[firsts], counts)),
        pending[:, np.lexsort((pending[OFFSET], group))],
    )
    if (fault := after.fault()) is not None:
        raise StrangeVerdict(*fault)
    return Outcome(after, dead)


def _backs(cut: Places, ends: Ints, handed_back: Iterable[tuple[int, KeyRange, int]]) -> Ints:
    """From which offset on nothing of each piece was worked on; the least that was said."""
    backs: Ints = ends[cut.part]
    for number, span, offset in handed_back:
        begin, end = np.searchsorted(cut.part, (number, number + 1))
        hashes = (span.from_hash, span.until_hash - 1)
        first, last = begin + np.searchsorted(cut.at[begin:end], hashes, side="right")
        backs[first - 1 : last] = np.minimum(backs[first - 1 : last], offset)
    return backs


def _not_done(
    deliveries: DeliveryColumns,
    verdicts: Verdicts,
    cut: Places,
    bounds: tuple[Ints, Ints, Ints],
    policy: RedeliveryPolicy,
    now_ms: int,
) -> tuple[list[tuple[int, PendingRecord]], dict[TopicPartition, list[PendingRecord]]]:
    """The records that are pending with this batch, with the numbers of their pieces, and those
    that are given up. `bounds`: how far each piece was scanned before and is now, and from where on
    it was handed back."""
    said = [(p, each) for p in sorted(verdicts) for each in _ordered(p, verdicts[p].not_done)]
    numbers = deliveries.states.numbers
    pieces = placed(cut, _places((numbers[p], each.key_hash) for p, each in said))
    again = {p: {r.offset: r for r in deliveries.redelivered(p)} for p in verdicts}
    found: list[tuple[int, PendingRecord]] = []
    dead: dict[TopicPartition, list[PendingRecord]] = {}
    columns = (each[pieces].tolist() for each in bounds)
    since_ms = _since_ms(deliveries, now_ms)
    for (partition, each), piece, were, scanned, back in zip(
        said, pieces.tolist(), *columns, strict=True
    ):
        record = again[partition].get(each.offset)
        if record is None and were <= each.offset < scanned:
            record = PendingRecord(each.offset, each.key_hash, since_ms=since_ms, late=each.late)
        if record is None or record.key_hash != each.key_hash or each.offset >= back:
            why = f"offset {each.offset} was not handed out by this batch as {each}"
            raise StrangeVerdict(partition, why)
        record = delivered_again(record, each.cause, policy, now_ms)
        if each.cause.is_given_up(record.deliveries, policy.deliveries_max):
            dead.setdefault(partition, []).append(record)
        else:
            found.append((piece, record))
    return found, dead


def _since_ms(deliveries: DeliveryColumns, now_ms: int) -> int:
    """Since when what fails now is pending. Records of a key that several topics have come again in
    this order, whatever the clock did: later than all that is pending already."""
    known_ms = deliveries.states.pending[SINCE_MS]
    if not deliveries.scope.is_shared or not len(known_ms):
        return now_ms
    return max(now_ms, int(known_ms.max()) + 1)


def _ordered(partition: TopicPartition, not_done: Iterable[RecordOutcome]) -> list[RecordOutcome]:
    """By offset; what is said twice in the same way counts once."""
    ordered: list[RecordOutcome] = []
    for each in sorted(dict.fromkeys(not_done), key=lambda each: each.offset):
        if not SPACE.contains(each.key_hash):
            raise StrangeVerdict(partition, f"no key has the place of {each}")
        if ordered and ordered[-1].offset == each.offset:
            why = f"two things were said of offset {each.offset}: {ordered[-1]} and {each}"
            raise StrangeVerdict(partition, why)
        ordered.append(each)
    return ordered


def _firsts(cut: Places, spans: Places, scanned: Ints, pending: Ints) -> Bools:
    """Which pieces begin one that is kept. Two are joined that were scanned equally far, where
    nothing is pending in them, or no more than so much and they are of one key range: so cuts do
    not add up where their places change from batch to batch."""
    alike = (cut.part[1:] == cut.part[:-1]) & (scanned[1:] == scanned[:-1])
    borders = spans.at[placed(spans, cut)] == cut.at
    most = np.where(borders[1:], 0, MERGED_PENDING_MAX).tolist()
    counts = pending.tolist()
    firsts = np.ones(len(cut.at), bool)
    # Where nothing is pending in a partition, none of it is too much.
    has_some = np.zeros(len(cut.at), bool)
    has_some[cut.part[pending > 0]] = True
    is_easy = alike & ~has_some[cut.part[1:]]
    firsts[1:] = ~is_easy
    last, held = -1, 0
    for at in np.flatnonzero(alike & ~is_easy).tolist():
        both = (held if last == at else counts[at]) + counts[at + 1]
        firsts[at + 1] = both > most[at]
        last, held = at + 1, counts[at + 1] if firsts[at + 1] else both
    return firsts


def _places(pairs: Iterable[tuple[int, int]]) -> Places:
    values = np.fromiter(chain.from_iterable(pairs), np.int64).reshape(-1, 2)
    return Places(values[:, 0], values[:, 1])


def delivered_again(
    record: PendingRecord, cause: Cause, policy: RedeliveryPolicy, now_ms: int
) -> PendingRecord:
    """A pending record that stays one, with one delivery more where it was worked on."""
    deliveries, due_ms = record.deliveries, record.due_ms
    if cause is Cause.AWAITS_TIMER:
        # No other record says when its key is tried again.
        due_ms = policy.due_ms(1, now_ms)
    elif cause.was_worked_on:
        deliveries += 1
        due_ms = policy.due_ms(deliveries, now_ms)
    return replace(record, deliveries=deliveries, due_ms=due_ms, cause=cause)
