"""Individual commits: the commit table says what is done and what is pending, and the next batch
takes up what of it is due.

The table is written by another process and read here. It is asked after every batch, before one is
planned, and now and then in between, because somebody may set positions by hand.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import numpy as np

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.batch_deliveries import (
    batch_time,
    plan_batch_deliveries,
    spans_of,
    states_before,
    work_settings,
)
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.delivery_columns import (
    DeliveryColumns,
    due_until_ms,
    late_offsets,
)
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import (
    check_agreement,
    check_import,
    check_terms,
    planned_from,
    resumed_from,
)
from keyrange.individual_commits.model.state_columns import NO_STATES, Ints
from keyrange.kafka.cluster_view import ClusterView
from keyrange.members.model.copy_book import KnownState
from keyrange.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import OffsetRange, Positions, TopicPartition, nested
from keyrange.model.timers import Retries
from keyrange.options import SourceOptions
from keyrange.source import job_timers
from keyrange.source.commit_strategy import CommitStrategy, JobState, NextBatch, OpenTable
from keyrange.source.held_partitions import HeldPartitions, slow_texts
from keyrange.source.model.resuming import check_same
from keyrange.source.planning import Deliveries, check_partitions, count_ranges
from keyrange.source.state_topics import (
    CutsOf,
    GrownTopics,
    check_mark,
    check_scope,
    check_topics,
    same_counts,
    same_cuts,
)
from keyrange.source.trigger_limits import SizesOf
from keyrange.work.model.work_order import StateOrder, WorkSettings

_log = logging.getLogger(__name__)

# How old may be what is known of the table while there is nothing to read.
_KNOWN_AGE_S: Final = 5.0
# And while a batch is planned: records behind a later reset would be handed out twice.
_CURRENT_AGE_S: Final = 0.05


class IndividualCommits(CommitStrategy):
    """What the commit table says of one query, and the marks that its batches are planned by."""

    def __init__(
        self,
        options: SourceOptions,
        open_table: OpenTable,
        cuts_of: CutsOf | None = None,
        state: JobState | None = None,
    ) -> None:
        """`cuts_of` says where the portions of partitions may begin that slots read. `state`: where
        tasks keep state for keys."""
        self._keeps_state = state is not None
        self._state = state or JobState()
        self._time = self._state.time
        self._options = options
        self._cuts_of = cuts_of
        self._commits = options.commits
        self._terms = options.commits.terms(options.key_ranges)
        # The commits of a source, opened once.
        self._table = cache(partial(open_table, options.commits))
        self._made_up = uuid.uuid4().hex
        self._resumes: tuple[str, int] | None = None
        self._start: Checkpoint | None = None
        self._known = Snapshot()
        self._asked_at = 0.0
        # Whether the table was asked since the last look began.
        self._is_current = False
        self._states = NO_STATES
        self._log_ends: Positions = {}
        self._mirrored: dict[TopicPartition, tuple[str, int]] = {}
        self._held = HeldPartitions()
        self._scope = options.commits.scope
        self._batch_time = partial(batch_time, time=self._time, scope=self._scope)
        self._grown = GrownTopics()
        if self._scope.is_shared and not self._keeps_state:
            raise invalid_options("state.topic is for keyrange.job with state")
        self._waited_ms = 0

    def look(self, start: Checkpoint) -> None:
        """Ask the table, unless that was done shortly before."""
        was_asked = start == self._start and time.monotonic() - self._asked_at < _KNOWN_AGE_S
        self._is_current = not was_asked
        if not was_asked:
            self._ask(start)

    def has_changed(self) -> bool:
        if self._is_current and time.monotonic() - self._asked_at < _CURRENT_AGE_S:
            return False
        assert self._start is not None
        seq = self._known.seq
        self._ask(self._start)
        self._is_current = True
        return self._known.seq != seq

    def _ask(self, start: Checkpoint) -> None:
        if start.commits is None:
            known = self._begin(start)
        else:
            known = self._table(start.commits.source_id).known()
            check_agreement(known, start)
        check_scope(known, self._terms)
        check_terms(known, self._terms)
        self._state.check(known)
        self._start, self._known, self._asked_at = start, known, time.monotonic()

    def resumed(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, PartitionState]:
        if self._commits.on_fresh_start != "resume":
            return {}
        # A query whose first batch failed has written that it began, and nothing else.
        last = self._table(self._made_up).last_source(self._commits.group, with_states=True)
        if last is None:
            return {}
        before = self._table(last).known()
        if before.is_import:
            return {}
        what = "the commits that it goes on from are"
        check_same(what, before.ownership, self._options.key_ranges.ownership, before.states)
        self._resumes = (last, before.seq)
        return {
            partition: state
            for partition, state in resumed_from(before).states.items()
            if state.topic_id in ("", topic_ids.get(partition.topic, state.topic_id))
        }

    def nothing_there(self) -> None:
        self._states = NO_STATES

    def end(self, batch: NextBatch) -> Checkpoint | None:
        """With the mark that it is planned by; None where nothing is handed out or has moved."""
        start, base = batch.start, batch.base
        # What is late does not wait.
        latest = base.positions if batch.waits else batch.latest
        check_partitions(latest, self._options)
        if self._keeps_state:
            check_topics(self._known, base, self._scope)
            self._grown.say(start, base)
        self._states = states = states_before(self._known, start, base)
        self._log_ends = batch.log_ends
        ends = batch.limited(self._admissible(latest), self._late() if batch.limits else {})
        moved = batch.moved or ends.keys() != start.positions.keys()
        new = ends != dict(base.positions)
        is_behind = bool((states.scanned < states.positions).any())
        due_ms, clock_ms = self._due_until_ms(), _now_ms()
        first_ms = self._first_due_ms()
        is_due = first_ms is not None and first_ms <= due_ms
        now_ms = start.time_after(clock_ms, self._known.at_ms)
        fires = self._batch_time(self._known, base, batch.log_ends, now_ms, due_ms).fires
        if not (new or moved or is_due or is_behind or fires):
            return None
        mark = self._mark(start, ends, batch.sizes_of, fires)
        mark = replace(mark, due_ms=due_ms if is_due or fires else NEVER_DUE)
        if self._keeps_state:
            mark = replace(mark, time_ms=now_ms, clock_ms=clock_ms)
        plan = partial(plan_batch_deliveries, options=self._options, fires=fires)
        end = replace(base, positions=ends, commits=mark)
        deliveries = plan(self._known, start, end)
        reached = self._reached(deliveries, mark)
        if reached != ends:
            end = replace(end, positions=reached)
            deliveries = plan(self._known, start, end)
        half = self._commits.limits.pending_max // 2
        self._held.say("pending", slow_texts(deliveries, ends, half), self._states)
        if not moved and deliveries.is_empty:
            return None
        # Lag is told of it, and a partition with more records is not idle.
        beyond = {p: log for p, at in reached.items() if (log := batch.log_ends.get(p, 0)) > at}
        return replace(end, commits=replace(mark, log_ends=beyond))

    def reads(
        self,
        start: Checkpoint,
        end: Checkpoint,
        view: ClusterView,  # noqa: ARG002
    ) -> Deliveries:
        """What a planned batch hands out, of the partitions that it hands something out of."""
        assert end.commits is not None
        known = planned_from(end.commits, self._table)
        check_terms(known, self._terms)
        check_mark(end.commits, self._scope)
        self._state.check(known)
        mark = end.commits
        fires = self._batch_time(known, end, end.log_ends, mark.time_ms, mark.due_ms).fires
        planned = plan_batch_deliveries(known, start, end, self._options, fires)
        deliveries = {each: planned[each] for each in planned.states.where(planned.busy)}
        spans = {partition: self._own(partition, end.commits) for partition in deliveries}
        return Deliveries(deliveries, spans, self._options, self._time is not None)

    def work_settings(self, end: Checkpoint) -> WorkSettings:
        assert end.commits is not None
        return work_settings(end.commits, self._commits)

    def state_order(self, end: Checkpoint) -> StateOrder | None:
        mark = end.commits
        if not self._keeps_state or mark is None:
            return None
        known = planned_from(mark, self._table)
        return job_timers.state_order(known, end, mark, _now_ms(), self._time, self._options)

    def known_state(self) -> KnownState | None:
        mark = self._start and self._start.commits
        if not self._keeps_state or mark is None:
            return None
        return job_timers.known_state(self._known, mark.source_id)

    def _admissible(self, latest: Positions) -> dict[TopicPartition, int]:
        """How far each partition may be read, one with a range that lags too far not at all."""
        ends, most, states = dict(latest), self._commits.limits.lag_max, self._states
        behind = states.positions - states.scanned
        lagging = {} if most is None else states.values_where(behind > most, behind)
        texts = {
            partition: f"a key range is {offsets} offsets behind, more than max.range.lag: "
            f"partition {partition} takes in nothing new"
            for partition, offsets in lagging.items()
        }
        self._held.say("lag", texts, self._states)
        return ends | {partition: states[partition].position for partition in lagging}

    def _late(self) -> dict[TopicPartition, float]:
        """How many offsets of each partition are to be read that are not new."""
        late = late_offsets(self._states, self._each_due_ms() <= self._due_until_ms())
        return dict(zip(self._states, late, strict=True))

    def committed(self, at: Checkpoint) -> dict[TopicPartition, int]:
        """They never go back, unless the topic is another one. None before the first commit."""
        if self._start is None or self._known.is_import:
            return {}
        found: dict[TopicPartition, int] = {}
        states = self._known.states
        known = states.committed_offsets
        for partition, position in at.positions.items():
            topic_id = at.topic_ids.get(partition.topic, "")
            offset = known[partition] if states.is_of(partition, topic_id) else position
            told_id, told = self._mirrored.get(partition, ("", -1))
            if told_id == topic_id:
                offset = max(offset, told)
            self._mirrored[partition] = (topic_id, offset)
            found[partition] = offset
        return found

    def due_in_s(self) -> float | None:
        retries = Retries(_now_ms(), self._due_until_ms())
        told = self._known, self._log_ends, self._time, retries, self._scope
        return job_timers.soonest(self._records_due_in_s(), job_timers.timers_due_in_s(*told))

    def _records_due_in_s(self) -> float | None:
        if (due_ms := self._first_due_ms()) is None:
            return None
        return 0.0 if due_ms <= self._due_until_ms() else (due_ms - _now_ms()) / 1000

    def _each_due_ms(self) -> Ints:
        """When each pending record is due."""
        return self._states.due_ms(self._commits.keeps_order, self._scope)

    def _first_due_ms(self) -> int | None:
        due_ms = self._each_due_ms()
        return int(due_ms.min()) if len(due_ms) else None

    def _due_until_ms(self) -> int:
        """Until when pending records and timers that failed are due."""
        most_ms = self._commits.policy.backoff_max_ms
        again_ms = job_timers.retries_ms(self._known, self._log_ends)
        return due_until_ms(self._each_due_ms(), _now_ms(), most_ms, again_ms)

    def waits_for_due(self) -> bool:
        """Say what waits, or wait for it as the options say."""
        told = self._known, self._log_ends, Retries(_now_ms(), self._due_until_ms())
        records_s, timers_s = self._records_due_in_s(), job_timers.retry_in_s(*told)
        if (due_in_s := job_timers.soonest(records_s, timers_s)) is None:
            return False
        left_ms = self._commits.available_now_timeout_ms - self._waited_ms
        if self._commits.available_now == "drain" and due_in_s * 1000 <= left_ms:
            # A moment longer: what is due at this very millisecond is due.
            time.sleep(due_in_s + 0.001)
            self._waited_ms += int(due_in_s * 1000) + 1
            return True
        _log.warning(
            "%d records%s wait for their next delivery, the first for %.1f s more; "
            "they come with the next run",
            *(self._states.pending.shape[1], "" if timers_s is None else " and timers", due_in_s),
        )
        return False

    def metrics(self) -> dict[str, Any]:
        """What is not done: records, how many key ranges take in less, how far the slowest is
        behind, in offsets, and the committed offsets that lie below the read position."""
        states, due_ms = self._states, self._first_due_ms()
        positions, committed = states.positions, states.committed
        found = {
            "pending": states.pending.shape[1],
            "partitionsHeld": len(self._held),
            "maxRangeLag": int((positions - states.scanned).max(initial=0)),
            "nextDueMs": NEVER_DUE if due_ms is None else due_ms,
            "committed": nested(states.values_where(committed < positions, committed)),
        }
        if not self._keeps_state:
            return {"commits": found}
        return {"commits": found, "state": job_timers.state_metrics(self._known, _now_ms())}

    def _begin(self, start: Checkpoint) -> Snapshot:
        """What a query knows that has no commits yet."""
        group, how = self._commits.group, self._commits.on_fresh_start
        last = self._table(self._made_up).last_source(group, with_states=how == "resume")
        if last is None or how == "ignore":
            return Snapshot()
        imported = self._table(last).known()
        if imported.is_import and start.fresh:
            check_import(imported, start.positions, start.topic_ids)
            self._resumes = (last, imported.seq)
            return resumed_from(imported)
        if how == "resume" and start.fresh and self._resumes is not None:
            return resumed_from(self._table(self._resumes[0]).known(self._resumes[1]))
        raise error(
            "COMMITS_OF_ANOTHER_QUERY",
            f"the checkpoint is {'new' if start.fresh else 'one of whole batches'}, and group "
            f"'{group}' of the commit table has commits already",
            source_id=last,
        )

    def _mark(
        self,
        start: Checkpoint,
        ends: Positions,
        sizes: SizesOf,
        fires: Collection[TopicPartition],
    ) -> CommitMark:
        late, positions = self._late(), self._states.positions.tolist()
        begins = zip(self._states, positions, strict=True)
        spans = {at: OffsetRange(max(begin - int(late[at]), 0), ends[at]) for at, begin in begins}
        pending = {partition: span for partition, span in spans.items() if span.size}
        counts = count_ranges(pending, sizes, fires, self._options)
        return CommitMark(
            source_id=start.commits.source_id if start.commits else self._made_up,
            seq=self._known.seq,
            ranges=same_counts(counts, ends, self._scope),
            pending_max=self._commits.limits.pending_max,
            keeps_order=self._commits.keeps_order,
            deliveries_max=self._commits.policy.deliveries_max,
            resumes=self._resumes if start.commits is None and start.fresh else None,
            cuts=same_cuts(self._cuts_of, {*pending, *fires}, ends, self._scope),
            state_topic=self._scope.topic,
        )

    def _own(self, partition: TopicPartition, mark: CommitMark) -> list[KeyRange]:
        keys = self._options.key_ranges
        given = keys.given(partition) if keys.partial else None
        return sorted(given) if given is not None else spans_of(partition, mark, self._options)

    def _reached(self, deliveries: DeliveryColumns, mark: CommitMark) -> dict[TopicPartition, int]:
        """How far the range comes that comes farthest: where all of them stop, the position does
        not run away from them."""
        own = None
        if self._options.key_ranges.partial:
            begins = [{span.from_hash for span in self._own(each, mark)} for each in deliveries]
            cells = zip(*(column.tolist() for column in deliveries.cells), strict=True)
            own = np.array([at in begins[number] for number, at in cells], bool)
        return dict(zip(deliveries, deliveries.reached(own).tolist(), strict=True))


def _now_ms() -> int:
    return int(time.time() * 1000)
