"""What is under way of the key ranges that one consumer holds: what of them was handed out, is
acknowledged, and is committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.committed_mirror import CommittedMirror
from keyrange.consumer.reading_order import Batch
from keyrange.consumer.settings import ConsumerSettings
from keyrange.consumer.stretches import Longs
from keyrange.consumer.transactional_commits import Stage, TransactionalCommits
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.partition_progress import KeyRangeState
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.model.sender_messages import Batch as SentBatch
from keyrange.kafka.position_lookup import bind, resolve_positions
from keyrange.model.key_ranges import KeyRange, merge
from keyrange.model.offsets import EARLIEST, LATEST, Positions, TopicPartition

Works = dict[TopicPartition, PartitionWork]
Pieces = dict[TopicPartition, list[KeyRangeState]]
Offsets = dict[TopicPartition, int]


class HeldRanges:
    """Those of one slot. Which these are, and what comes of them, others say."""

    def __init__(self, settings: ConsumerSettings, cluster: Cluster, slot: str) -> None:
        self._settings = settings
        self.cluster = cluster
        self._view = ClusterView("", {}, {})
        self._named(slot)
        self._works: dict[TopicPartition, PartitionWork] = {}
        self._round: Iterator[Batch] | None = None
        self._count_again_at = 0
        self._mirror = CommittedMirror(settings, cluster)
        # How far was handed out what was lost or let go of since, or was of a topic that was
        # created anew.
        self._had: dict[TopicPartition, int] = {}
        # Where logs were cut back, below what is in the table.
        self._cut_back: dict[TopicPartition, int] = {}
        # What was under way at the beginning of a block.
        self._remembered: tuple[Works, dict[TopicPartition, int]] | None = None
        self.paused: set[TopicPartition] = set()
        self.epoch = 0

    @property
    def spans(self) -> dict[TopicPartition, list[KeyRange]]:
        """What is held."""
        return {partition: merge(work.spans) for partition, work in sorted(self._works.items())}

    def _named(self, slot: str) -> None:
        self.commit_log = CommitLog(self._settings, slot, self._begin)
        self.transactions = TransactionalCommits(self._settings, self.commit_log)

    def drop(self) -> None:
        """Hold nothing: what was handed out is another's now."""
        self._round = self._remembered = None
        self._note_had()
        self._works, self.epoch = {}, 0
        self.paused.clear()

    def pause(self, partitions: Iterable[tuple[str, int]], *, pauses: bool) -> None:
        """Hand out nothing of partitions while ranges of them are held, or hand them out again.
        Raises CONSUMER_STATE."""
        named = [TopicPartition(*each) for each in partitions]
        for each in named:
            self._work(each)
        change = self.paused.union if pauses else self.paused.difference
        self.paused = change(named)
        self._round = None

    def position(self, partition: TopicPartition) -> int:
        """The least offset that can come next. Raises CONSUMER_STATE."""
        return self._work(partition).next_offset

    def committed(self, partition: TopicPartition) -> int | None:
        """Up to where the whole group has done everything of any partition; None where it has never
        begun with it. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        view = self._view
        if partition.topic not in view.topics:
            view = self.cluster.describe([partition.topic])
        return self.commit_log.committed([partition], view.topic_ids()).get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset, as `PartitionWork.seek`. Raises CONSUMER_STATE, SEEK_REFUSED."""
        work = self._work(partition)
        if offset < work.done_up_to:
            first = self.committed(partition) or 0
            if offset < first:
                message = f"the group has committed all records of {partition} before {first}"
                raise error("SEEK_REFUSED", message, offset=offset)
        elif offset > work.position:
            end, _ = self.cluster.list_offsets(self._view, {partition: LATEST})[partition]
            if offset > end:
                message = f"the log of {partition} ends at {end}"
                raise error("SEEK_REFUSED", message, offset=offset)
        self._round = None
        work.seek(offset)

    def received(self, partition: TopicPartition) -> None:
        """Somebody has what `next` has returned of a partition."""
        self._works[partition].received()

    def take_back(self) -> None:
        """Nobody has received what `next` returned last, or was to return."""
        self._round = None
        for work in self._works.values():
            work.take_back()

    def hand_back(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """Nobody has received rows that were handed out, as `PartitionWork.hand_back`."""
        self._round = None
        self._works[partition].hand_back(rows.column("offset").to_numpy())

    def _work(self, partition: TopicPartition) -> PartitionWork:
        work = self._works.get(partition)
        if work is None:
            raise error("CONSUMER_STATE", f"this consumer has no key range of {partition}")
        return work

    def acknowledge(self, partition: TopicPartition, offsets: Longs) -> int:
        """Records are done; returns how many were not before. Raises NOT_DELIVERED."""
        work, had = self._works.get(partition), self._had.get(partition)
        if work is None and had is None:
            message = f"this consumer has no key range of {partition}"
            raise error("NOT_DELIVERED", message, offsets=offsets[:5].tolist())
        position = 0 if work is None else work.position
        end = max(position, had or 0)
        if len(offsets) and (int(offsets.max()) >= end or int(offsets.min()) < 0):
            beyond = offsets[(offsets >= end) | (offsets < 0)]
            message = f"{partition} was handed out up to {end}"
            raise error("NOT_DELIVERED", message, offsets=beyond[:5].tolist())
        # What lies behind the position was handed out before it went back.
        return 0 if work is None else work.acknowledge(offsets[offsets < position])

    def holds_many(self) -> bool:
        """Whether more ranges are acknowledged and not committed than max.num.ranges.to.commit."""
        most = self._settings.source.commits.limits.pending_max
        records = sum(work.acknowledged for work in self._works.values())
        if records <= max(most, self._count_again_at):
            return False
        ranges = sum(len(work.pending()) for work in self._works.values())
        # Each record more is one range more at the most.
        self._count_again_at = records + most - ranges
        return ranges > most

    def check_holds(self) -> None:
        """Where there is nothing to commit others may have the ranges unnoticed, and be at work on
        them. Raises COMMITS_FENCED then."""
        if self.spans:
            self.commit_log.check_holds()

    def commit(self) -> dict[TopicPartition, int]:
        """Commit what is acknowledged; how far each partition's ranges are done here. Raises
        COMMITS_FENCED where others have them."""
        pieces = self._to_commit()
        if pieces:
            self.commit_log.commit(*self._to_write(pieces))
            self._committed(pieces)
        self.mirror()
        return {p: work.done_up_to for p, work in sorted(self._works.items())}

    def commit_with(self, batches: Sequence[SentBatch]) -> None:
        """Commit what is acknowledged, and send batches: both or nothing. Where it is nothing
        `go_back` is to follow. Raises as `TransactionalCommits.write`."""
        try:
            pieces = self._to_commit()
            self.transactions.begin(batches[0].partition.topic)
            plan = self.commit_log.planned(*self._to_write(pieces))
            self.transactions.write(plan, batches)
        except BaseException as failure:
            is_unsure = self.transactions.stage is Stage.UNSURE
            if is_unsure and not isinstance(failure, KeyrangeError):
                self.drop()
            raise
        self._committed(pieces)
        self.mirror()

    def _to_commit(self) -> Pieces:
        return {p: work.pieces() for p, work in self._works.items() if work.changed}

    def _to_write(self, pieces: Pieces) -> tuple[Pieces, Offsets, Offsets]:
        """As `CommitLog.commit` takes it."""
        cut_back = {p: at for p, at in self._cut_back.items() if p in pieces}
        return pieces, cut_back, {p: self._works[p].leader_epoch for p in pieces}

    def _committed(self, pieces: Pieces) -> None:
        self._cut_back = {p: at for p, at in self._cut_back.items() if p not in pieces}
        for partition, found in pieces.items():
            self._works[partition].committed(found)
        self._count_again_at = 0
        self.commit_log.maintain()

    def remember(self) -> None:
        """Take note of what is under way, to go back to."""
        self.transactions.settled()
        works = {p: work.copied() for p, work in self._works.items()}
        self._remembered = (works, dict(self._cut_back))

    def forget(self) -> None:
        """Nobody goes back."""
        self._remembered = None

    def go_back(self) -> None:
        """What was handed out since `remember` comes again, and what was acknowledged since is
        not. What is sent stays acknowledged, and is committed as soon as the table can be written
        to."""
        if self._remembered is not None and self.transactions.stage is Stage.NOT_SENT:
            self._note_had()
            self._works, self._cut_back = self._remembered
            self._round = None
            self._count_again_at = 0
        self._remembered = None

    def mirror(self, at_once: bool = False) -> None:
        """Tell the Kafka group how far everything is done."""
        self._mirror.tell(self._works, self.commit_log, self._view, at_once)

    def _note_had(self) -> None:
        """What is held may go, or come again from where others have left it."""
        for partition, work in self._works.items():
            self._had[partition] = max(work.position, self._had.get(partition, 0))

    def _begin(self, partitions: Iterable[TopicPartition], found_later: bool) -> Positions:
        """Where the group begins that has committed nothing: as the options say, and in partitions
        that were found later at their beginning."""
        wanted, start = list(partitions), self._settings.source.start
        positions: Positions = dict.fromkeys(wanted, EARLIEST)
        if start is not None and not found_later:
            positions = resolve_positions(self.cluster, self._view, start)
        return bind(self.cluster, self._view, {p: positions[p] for p in wanted})
