"""What one consumer holds: its key ranges with what is under way of each, read from Kafka and
committed to the table of the group."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from keyrange.consumer.acknowledgements import PartitionWork
from keyrange.consumer.held_ranges import HeldRanges
from keyrange.consumer.leader_epoch_agreement import ANEW, Leaders, Turn
from keyrange.consumer.reading_order import Batch, OwnedRangeReader
from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.range_claims import Spans
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.fetching.read_settings import read_settings
from keyrange.kafka.groups import epoch_ends
from keyrange.members.model.assignment import without
from keyrange.members.range_listener import KeyRangeListener
from keyrange.members.status import now_ms as passed_ms
from keyrange.model.offsets import TopicPartition

_log = logging.getLogger(__name__)


class OwnedRanges(HeldRanges):
    """The ranges of one slot. Not for use by several threads."""

    def __init__(self, settings: ConsumerSettings, cluster: Cluster, slot: str) -> None:
        super().__init__(settings, cluster, slot)
        self._reading: OwnedRangeReader | None = None
        self._said_full = False
        # Whether others were found to have had the ranges that are taken.
        self._outrun = False
        self.ready = True

    def move(
        self, view: ClusterView, wanted: Spans, listener: KeyRangeListener, turn: Turn = ANEW
    ) -> Spans:
        """As `take`, with commits, and with the listener told what goes: what it acknowledges then
        still counts. Returns what is new. Raises as `commit` and `take` do; where the listener was
        told that ranges are revoked none are held then."""
        before = self.spans
        if before:
            self.commit()
        revoked = without(before, wanted)
        if revoked:
            self.check_holds()
            listener.on_key_ranges_revoked(revoked)
        with self._telling_lost(listener, revoked, before):
            if revoked:
                self.commit()
            goes_on = self.take(view, wanted, turn)
        if not goes_on and before:
            _tell_lost(listener, without(before, revoked))
            before = {}
        return without(wanted, before)

    def take(self, view: ClusterView, wanted: Spans, turn: Turn = ANEW) -> bool:
        """Hold exactly these ranges from now on.

        What is under way of ranges that are kept stays so, and nothing where others have had them
        meanwhile: returns whether it does. Raises as `CommitLog.take` and
        `OwnedRangeReader.check` do; then nothing is held.
        """
        self._round = None
        self._outrun = False
        self.transactions.close()
        try:
            try:
                self._take(view, wanted, turn)
            except KeyrangeError as failure:
                if not self._may_begin_anew(failure):
                    raise
                # A topic was created anew since the view was made.
                self._take(*self._seen_anew(wanted), turn)
        except BaseException:
            # The claim may be written, and others may take at once what it lets go of.
            self.drop()
            raise
        return not self._outrun

    def _take(self, view: ClusterView, wanted: Spans, turn: Turn) -> None:
        self._note_had()
        kept = self._of_the_same_topics(view)
        self._view = view
        source = self._settings.source
        reads = read_settings(source, self._settings.by_offset)
        ids_max_age_ms = source.client.metadata_max_age_ms
        reading = OwnedRangeReader(self.cluster, view, reads, ids_max_age_ms)
        reading.follow(kept, {p: view.epoch(p) for p in kept})
        leaders = Leaders(
            {p: view.epoch(p) for p in wanted},
            lambda epochs: epoch_ends(self.cluster, view, epochs),
        )
        taken = self.commit_log.take(wanted, view.topic_ids(), turn, leaders)
        self._outrun |= not taken.goes_on
        if self._outrun:
            # What they have done is not to be handed out again, nor to be undone by a commit.
            kept = {}
            reading.cut_back.clear()
        gap_ms = self._settings.gap_timeout_ms
        works = {
            partition: PartitionWork(pieces, gap_ms, taken.leader_epochs[partition])
            for partition, pieces in taken.pieces.items()
            if pieces
        }
        for partition, work in works.items():
            if partition in kept:
                work.go_on(kept[partition])
        reading.check(works)
        self._cut_back = {p: at for p, at in self._cut_back.items() if p in kept}
        self._reading = reading
        self._note_cut_back()
        self._works, self.epoch, self.ready = works, taken.epoch, turn.ready
        self.paused &= works.keys() & kept.keys()

    def go_by(self, slot: str) -> None:
        """Hold nothing, and be another slot from now on."""
        self.drop()
        self._named(slot)

    def next(self, listener: KeyRangeListener, keeps: bool = False) -> Batch | None:
        """The next rows; None where there are none now. `keeps`: ranges are not claimed anew, where
        a topic was created anew: that raises."""
        if self._reading is None or not self._works:
            return None
        full = self._is_full()
        if full:
            # What has waited too long comes again all the same.
            self._round = None
        try:
            found = next(self._round, None) if self._round is not None else None
            if found is None:
                self._settle_spent(listener)
                self._round = self._reading.round(self._unpaused(), passed_ms(), full)
                self._note_cut_back()
                found = next(self._round, None) if self._round is not None else None
        except KeyrangeError as failure:
            self._round = None
            if keeps or not self._may_begin_anew(failure):
                raise
            self._take_anew(listener)
            return None
        except BaseException:
            self._round = None
            raise
        return found

    def _note_cut_back(self) -> None:
        """What was handed out of records that are gone is not to be acknowledged any more."""
        assert self._reading is not None
        for partition, gone in self._reading.cut_back.items():
            end, known = gone.from_offset, self._cut_back.get(partition, gone.from_offset)
            self._cut_back[partition] = min(end, known)
            self._had[partition] = max(gone.until_offset, self._had.get(partition, 0))
        self._reading.cut_back.clear()

    def _of_the_same_topics(self, view: ClusterView) -> dict[TopicPartition, PartitionWork]:
        """What is under way of the topics that a new view names by the ids that are known here."""
        new = _recreated(self._view, view)
        self._mirror.forget(new)
        return {p: work for p, work in self._works.items() if p.topic not in new}

    def _take_anew(self, listener: KeyRangeListener) -> None:
        """A topic was created anew: the same ranges of it begin at its start. What was handed out
        of the one before is lost."""
        spans, before = self.spans, self._view
        view, wanted = self._seen_anew(spans)
        new = _recreated(before, view)
        lost = {p: ranges for p, ranges in spans.items() if p.topic in new}
        with self._telling_lost(listener, {}, spans):
            # Who else was there has placed records alike when these ranges were taken.
            self.take(view, wanted, Turn(self.epoch, self.ready, ()))
        listener.on_key_ranges_lost(lost)
        listener.on_key_ranges_assigned({p: r for p, r in lost.items() if p in wanted})

    @contextmanager
    def _telling_lost(
        self, listener: KeyRangeListener, revoked: Spans, before: Spans
    ) -> Iterator[None]:
        """Where ranges cannot be taken nothing is held: of those from `before` that were not given
        up already, `revoked`, the listener hears that they are lost."""
        try:
            yield
        except BaseException:
            self.drop()
            _tell_lost(listener, without(before, revoked))
            raise

    def _may_begin_anew(self, failure: KeyrangeError) -> bool:
        recreated = failure.condition.name == "KAFKA_DATA_LOSS.TOPIC_RECREATED"
        return recreated and not self._settings.source.fail_on_data_loss

    def _seen_anew(self, wanted: Spans) -> tuple[ClusterView, Spans]:
        """The topics of ranges as they are now, and the ranges without partitions that a topic
        which was created anew does not have."""
        topics = {partition.topic for partition in wanted}
        view = self.cluster.describe(topics, may_miss=topics)
        there, new = set(view.partitions()), _recreated(self._view, view)
        return view, {p: r for p, r in wanted.items() if p in there or p.topic not in new}

    def _unpaused(self) -> dict[TopicPartition, PartitionWork]:
        return {p: work for p, work in self._works.items() if p not in self.paused}

    def _is_full(self) -> bool:
        most = self._settings.unacknowledged_max
        full = sum(work.waiting for work in self._works.values()) >= most
        if full and not self._said_full:
            _log.warning(
                "%d records wait for their acknowledgement: poll returns no new ones", most
            )
        self._said_full = full
        return full

    def _settle_spent(self, listener: KeyRangeListener) -> None:
        """Hand what was handed out too often to the listener, which raises or takes it."""
        most = self._settings.source.commits.policy.deliveries_max
        assert self._reading is not None
        for partition, work in sorted(self._unpaused().items()):
            spent = [record for record in work.due(passed_ms()) if record.deliveries >= most]
            if not spent:
                continue
            for batch in self._reading.records(partition, spent):
                listener.on_deliveries_spent(batch)
            for record in spent:
                work.forget(record)
            _log.warning("%d records of %s were given up", len(spent), partition)


def _recreated(before: ClusterView, now: ClusterView) -> set[str]:
    """The topics that two views name by different ids."""
    known, ids = before.topic_ids(), now.topic_ids()
    return {topic for topic in known.keys() & ids.keys() if known[topic] != ids[topic]}


def _tell_lost(listener: KeyRangeListener, ranges: Spans) -> None:
    if ranges:
        listener.on_key_ranges_lost(ranges)
