"""What a consumer writes to the commit table of its group, and reads of what others wrote.

Each slot has a source of its own there, so one writer at a time. A claim is a fence in it; who
claims what another source holds fences that first, and so ends what its writer may still commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from keyrange.consumer.claim_log import ClaimLog
from keyrange.consumer.leader_epoch_agreement import (
    ANEW,
    NO_LEADERS,
    Leaders,
    Taken,
    Turn,
    follow,
    read_on,
    take_over,
)
from keyrange.consumer.left_transactions import LeftTransactions
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model import partition_progress
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import KeyRangeState, PartitionState
from keyrange.individual_commits.model.range_claims import (
    Claim,
    Claims,
    Spans,
    begun_at,
    going_on,
    group_state,
    is_alone,
    is_recreated,
    later_claim,
    of_topic,
)
from keyrange.individual_commits.model.state_before_batch import check_group_terms
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.kafka.model.loss_policy import raise_or_warn
from keyrange.model.offsets import Positions, TopicPartition

_log = logging.getLogger(__name__)

# Whoever begins anew has been outrun by another who got on: in a rebalance all claim at once.
_TRIES: Final = 100
_FENCE_TRIES: Final = 10

# Where a group begins in partitions that none of it has read, and whether it knows their topics.
Begin = Callable[[Iterable[TopicPartition], bool], Positions]


class CommitLog(ClaimLog):
    """The commits of one slot, as the options name their table, and a view on those of the others.
    `begin` says where partitions start that the group has not read; without it the table is there
    to be read. With failOnDataLoss=false a topic that was created anew begins anew."""

    def __init__(self, settings: ConsumerSettings, slot: str, begin: Begin | None = None) -> None:
        super().__init__(settings, slot)
        self._begin = begin or (lambda _wanted, _later: {})
        self._fail_on_data_loss = settings.source.fail_on_data_loss
        self._transactions = LeftTransactions(settings)

    def take(
        self,
        wanted: Spans,
        topic_ids: Mapping[str, str],
        turn: Turn = ANEW,
        leaders: Leaders = NO_LEADERS,
    ) -> Taken:
        """Claim ranges, and with them all that this consumer has from then on.

        Who holds some of the ranges is fenced. `topic_ids` are those that the cluster names: what
        was done of a topic with another id counts for nothing, and where the logs of the `leaders`
        part from those that were read what lies behind. Raises RANGES_LOST where another consumer
        claims them in an epoch that is not lower, COMMIT_TERMS_CHANGED, and TOPIC_RECREATED and
        LOG_TRUNCATED where losses fail.
        """
        mine = {self._run_id, run_id := uuid.uuid4().hex}
        self._run_id = run_id
        for _ in range(_TRIES):
            # What is found from here on holds only while nobody else claims anything.
            drivers = self._table(self._source).begun(self._group)
            last = self._last_claims()
            claims = {source: claim for source, (_, claim) in last.items()}
            at = turn.epoch or 1 + max((claim.epoch for claim in claims.values()), default=0)
            others = {s: claim for s, claim in claims.items() if s != self._source}
            self._check_epoch(claims, wanted, at)
            holders = [source for source, claim in others.items() if claim.holds_any(wanted)]
            living = going_on(others, holders, turn.members)
            # Before anybody is fenced, and of what they have committed until then once more.
            self._check_terms(claims, topic_ids, living)
            if not all(self._fence(source, *last[source], at) for source in holders):
                continue
            if left := [s for s, c in claims.items() if self._may_have_left(s, c, holders)]:
                self._finish(left, mine)
                continue
            self._check_terms(claims, topic_ids, living)
            taken = self._claim(claims, wanted, topic_ids, at, turn, leaders, drivers, mine)
            if taken is not None and is_alone(self.claims(), self._source, wanted, at):
                return taken
            if taken is not None and not taken.goes_on:
                # The next claim would stand behind this one, and find nobody else.
                mine.clear()
        message = "other consumers claim the same key ranges again and again"
        raise error("RANGES_LOST", message, group=self._group, slot=self._slot)

    def commit(
        self,
        pieces: Mapping[TopicPartition, list[KeyRangeState]],
        cut_back: Mapping[TopicPartition, int] = MappingProxyType({}),
        leader_epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Write what is done of ranges that this consumer has, in the logs of which leaders, and
        where logs were cut back below what was done of them.

        Raises COMMITS_FENCED where another has claimed them, and as `CommitTable.append` does.
        """
        self.write(self.planned(pieces, cut_back, leader_epochs))

    def planned(
        self,
        pieces: Mapping[TopicPartition, list[KeyRangeState]],
        cut_back: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int],
    ) -> Commit:
        """The commit that `commit` would write. Raises as `CommitTable.known` does."""
        known = self._table(self._source).known()
        states = {
            p: read_on(known.states[p], found, cut_back.get(p), leader_epochs.get(p, -1))
            for p, found in pieces.items()
        }
        every, whole = (known.states | states if known.base_is_due else states), known.base_is_due
        return self._commit(
            self._source, known.seq + 1, states=every, whole=whole, cut_back=cut_back
        )

    def write(self, commit: Commit) -> None:
        """Write a commit that was planned. Raises as `commit`."""
        self._append(commit)

    def maintain(self) -> None:
        """Compact the table where it is time to."""
        self._table(self._source).maintain()

    def committed(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """How far the whole group has done everything, of partitions that it has begun with;
        `topic_ids` as in `take`."""
        claims = self.claims()
        found: dict[TopicPartition, int] = {}
        for partition in partitions:
            topic_id = topic_ids.get(partition.topic, "")
            states = of_topic(self._of_partition(claims, partition), topic_id)
            state = group_state(claims, states, partition)
            if state is not None:
                found[partition] = state.committed
        return found

    def _check_terms(
        self, claims: Claims, topic_ids: Mapping[str, str], living: Mapping[str, str]
    ) -> None:
        known = {source: self._table(source).known() for source in sorted({*claims, self._source})}
        check_group_terms(claims, known, self._terms, topic_ids, living)

    def _check_epoch(self, claims: Claims, wanted: Spans, epoch: int) -> None:
        source = later_claim(claims, self._source, wanted, epoch)
        if source is not None:
            message = f"epoch {epoch} is over: {claims[source].epoch} is in the commit table"
            raise error("RANGES_LOST", message, source_id=source)

    def _fence(self, source: str, read_at: int, claim: Claim, epoch: int) -> bool:
        """End what the writer of another source may commit, whose claim was read in commit
        `read_at`; whether that is its claim still. Another one would be lost with this fence."""
        return self._rewrote(source, read_at, claim.fenced(epoch))

    def _rewrote(self, source: str, read_at: int, claim: Claim) -> bool:
        """Put a claim in the place of the one in commit `read_at`; whether that was the last."""
        for _ in range(_FENCE_TRIES):
            seq = self._table(source).known().seq + 1
            if self._last_claims()[source][0] != read_at:
                return False
            # The writer may have committed once more meanwhile.
            if self._wrote(source, seq, claim):
                return True
        raise error("COMMITS_UNWRITABLE", "another writer was faster every time", source_id=source)

    def _may_have_left(self, source: str, claim: Claim, fenced: Collection[str]) -> bool:
        """Whether a transaction of a source may have ended between Kafka and the table. One that
        holds ranges has come to the end of what it had before it claimed them."""
        is_over = source == self._source or source in fenced or claim.holds_nothing
        return bool(claim.marks) and is_over

    def _finish(self, sources: Collection[str], mine: set[str]) -> None:
        """Bring what transactions of sources have left into the table. Where another is faster
        whoever looks again finds what is left."""
        if self._source in sources and self._table(self._source).known().run_id not in mine:
            # What is written from here on would hide that others have had the ranges.
            mine.clear()
        last = self._last_claims()
        for source in sources:
            read_at, claim = last[source]
            # First the claim: who writes under it may neither begin nor end anything afterwards.
            if claim.marks and self._rewrote(source, read_at, claim):
                self._write_left(source, claim)

    def _write_left(self, source: str, claim: Claim) -> None:
        table = self._table(source)
        left = self._transactions.left_by(
            source, claim.slot, claim.marks, partial(_has_commit_behind, table)
        )
        read_at = self._last_claims()[source][0]
        known = table.known()
        if known.run_id != self._run_id:
            return
        try:
            if left.commit is not None:
                before = table.known(left.commit.seq - 1).states
                # What somebody has set by hand since stays so.
                is_kept = {p: known.states.get(p) == before.get(p) for p in left.commit.states}
                states = {p: each for p, each in left.commit.states.items() if is_kept[p]}
                self._append(self._commit(source, known.seq + 1, states=states))
        except KeyrangeError as failure:
            if failure.condition.name != "COMMITS_FENCED":
                raise
            return
        if self._rewrote(source, read_at, replace(claim, marks="")):
            self._transactions.prepared.remove(left.files)

    def _claim(
        self,
        claims: Claims,
        wanted: Spans,
        topic_ids: Mapping[str, str],
        epoch: int,
        turn: Turn,
        leaders: Leaders,
        drivers: int,
        mine: Collection[str],
    ) -> Taken | None:
        """Write the claim, with what is done of its ranges; None where somebody was faster."""
        new = [p for p in wanted if begun_at(claims, p) is None]
        known_topics = {each.topic for claim in claims.values() for each in claim.begun}
        # A topic that was not there when the group began, in its first epoch, has come since.
        are_later = turn.finds_topics and epoch > 1 and bool(claims)
        begun: dict[TopicPartition, int] = {}
        for later in (False, True):
            some = [p for p in new if (are_later or p.topic in known_topics) is later]
            begun |= self._begin(some, later) if some else {}
        pieces: dict[TopicPartition, list[KeyRangeState]] = {}
        states: dict[TopicPartition, PartitionState] = {}
        known = self._table(self._source).known()
        sources = {p: self._of_partition(claims, p) for p in wanted}
        begun |= self._begin_anew(claims, sources, wanted, topic_ids)
        of_these = {p: of_topic(sources[p], topic_ids.get(p.topic, "")) for p in wanted}
        followed = follow(of_these, leaders)
        for partition, spans in sorted(wanted.items()):
            start = begun.get(partition, begun_at(claims, partition))
            assert start is not None
            topic_id = topic_ids.get(partition.topic, "")
            begin = partition_progress.fresh(topic_id, start, leaders.epochs.get(partition, -1))
            before, now = of_these[partition], followed[partition]
            pieces[partition], state = take_over(claims, now, partition, spans, self._source, begin)
            states[partition] = state
            if any(now[source].position < each.position for source, each in before.items()):
                _, was = take_over(claims, before, partition, spans, self._source, begin)
                if was.pieces != state.pieces:
                    cut = (
                        f"the log of {partition} was cut back to {state.position} since group "
                        f"'{self._group}' has read it up to {was.position}"
                    )
                    self._lose("LOG_TRUNCATED", cut, "Going on with what is left.")
        own = claims.get(self._source) or Claim(self._slot, epoch)
        claim = own.claiming(epoch, wanted, begun, turn.ready)
        if not self._wrote(self._source, known.seq + 1, claim, states, drivers):
            return None
        epochs = {p: state.leader_epoch for p, state in states.items()}
        return Taken(epoch, pieces, epochs, goes_on=known.run_id in mine)

    def _begin_anew(
        self,
        claims: Claims,
        sources: Mapping[TopicPartition, Mapping[str, PartitionState]],
        wanted: Spans,
        topic_ids: Mapping[str, str],
    ) -> Positions:
        """Where topics that were created anew begin. Raises TOPIC_RECREATED where losses fail."""
        recreated = [
            p
            for p, spans in sorted(wanted.items())
            if is_recreated(claims, sources[p], p, spans, topic_ids.get(p.topic, ""))
        ]
        for topic in sorted({partition.topic for partition in recreated}):
            anew = (
                f"topic {topic} was deleted and created anew since group '{self._group}' has "
                "committed records of it"
            )
            self._lose("TOPIC_RECREATED", anew, "It is read from its start.")
        return self._begin(recreated, True) if recreated else {}

    def _lose(self, name: str, what: str, so: str) -> None:
        failure = error(f"KAFKA_DATA_LOSS.{name}", f"some data may have been lost: {what}")
        raise_or_warn(failure, self._fail_on_data_loss, _log.warning, so)

    def _of_partition(self, claims: Claims, partition: TopicPartition) -> dict[str, PartitionState]:
        """The states of a partition, by the source that has one."""
        found = {s: self._table(s).known().states.get(partition) for s in claims}
        return {source: state for source, state in found.items() if state is not None}


def _has_commit_behind(table: DeltaCommitTable, commit: Commit) -> bool:
    """Whether a source has a commit in the place of one, or behind it, that is no claim: what was
    prepared is in it, or in one that was written for it."""
    return any(each.kind is CommitKind.BATCH for each in table.history(commit.seq))
