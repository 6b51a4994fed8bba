"""One run of a query, in the process that plans it: from the topics to the tasks of each batch.

Spark tells the story. `initial` resolves where a new query starts. For each batch `latest` plans
the end, `plan` plans the tasks, and `mirror` notes what is committed. How the query commits is in
`commit_strategy.py` and `individual_commit_strategy.py`, and for whom tasks are made in `tasks.py`.

`latest` is called about 100 times a second while there is nothing to read: between two questions to
the cluster there is a pause in proportion to what a question costs.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import InputPartition

from keyrange.errors import InvalidError, KeyrangeError, invalid_options
from keyrange.individual_commits.model.state_before_batch import check_mode
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.offset_mirror import GroupMirror, new_mark, own_group
from keyrange.kafka.position_lookup import earliest, resolve
from keyrange.kafka.record_sizes import RecordSizes
from keyrange.kafka.subscribed_topics import describe, retrying, warn_of_pattern
from keyrange.model.checkpoint import RESERVED, Checkpoint, read_checkpoint
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import LATEST, Positions, TopicPartition
from keyrange.options import SourceOptions
from keyrange.source.commit_strategy import BatchCommits, CommitStrategy, NextBatch, OpenTable
from keyrange.source.data_loss_in_planning import DataLossCheck
from keyrange.source.individual_commit_strategy import IndividualCommits
from keyrange.source.job_timers import ends_of_logs
from keyrange.source.metadata_cache import IDLE_SHARE, PATIENCE_S, Metadata
from keyrange.source.model.partition_changes import Findings
from keyrange.source.model.resuming import check_foreign, check_ownership, check_works
from keyrange.source.planning import BatchReads, Ranges
from keyrange.source.tasks import PinnedTaskPlans, TaskMaker, TaskPlans
from keyrange.source.trigger_limits import TriggerLimits
from keyrange.work.model.work_order import WorkOrder

if TYPE_CHECKING:
    from keyrange.members.pinning import Pinning
    from keyrange.source.commit_strategy import JobState
    from keyrange.source.guard_admission import Admission

_log = logging.getLogger(__name__)
T = TypeVar("T")
NewerColumns = Callable[[], Mapping[str, Any] | None]

_IDLE_PAUSE_MAX_S: Final = 5.0
# Sizes of records are sampled anew so often; a topic's records rarely change faster.
_SIZES_AGE_S: Final = 60.0
# A latest offset below a known one is asked for again: a new leader may be behind (KAFKA-7703).
_STALE_TRIES: Final = 3
_STALE_PAUSE_S: Final = 0.1
# Where topics are deleted one after the other, each look may know of one that is gone.
_VANISHED_TRIES: Final = 10


class PlanningSession:
    """Knows where the logs of the cluster end, and plans the batches of one run by that."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        sizes: RecordSizes,
        open_table: OpenTable | None = None,
        pinning: Pinning | None = None,
        admission: Admission | None = None,
        patience_s: float = PATIENCE_S,
        works: bool = False,
        state: JobState | None = None,
        newer: NewerColumns = lambda: None,
    ) -> None:
        """`works`: tasks work on what they read, and hand on what came of it. `state`: where they
        keep state for keys. `newer` as of `WorkOrder`."""
        if options.members.standby_replicas and state is None:
            raise invalid_options("state.standby.replicas is for keyrange.job with state")
        self._options = options
        self._works, self._newer = works, newer
        self._admission = admission
        self._tasks = PinnedTaskPlans(options, pinning) if pinning is not None else TaskPlans()
        self._commits: CommitStrategy
        if options.commits.individual:
            assert open_table is not None
            cuts_of = pinning.cuts if pinning is not None else None
            self._commits = IndividualCommits(options, open_table, cuts_of, state)
        else:
            self._commits = BatchCommits(options, cluster, open_table)
        self._cluster = cluster
        self._sizes = sizes
        self._sizes_at = time.monotonic()
        self._metadata = Metadata(options, cluster, patience_s)
        self._ask_again_at = 0.0
        self._limits = TriggerLimits(options)
        self._latest: dict[TopicPartition, int] = {}
        time_of_job = None if state is None else state.time
        self._ends_of_logs = partial(ends_of_logs, cluster, options, time_of_job)
        self._losses = DataLossCheck(options, cluster)
        self._initial: Checkpoint | None = None
        self._initial_failure: InvalidError | None = None
        self._begins_at_end = False
        self._target: dict[TopicPartition, int] | None = None
        # Whether this run has been asked for an end: what is planned before is an earlier run's.
        self._has_planned = False
        self._mirror: GroupMirror | None = None
        self._made_up = uuid.uuid4().hex

    def close(self) -> None:
        self._cluster.close()
        self._tasks.close()
        if self._admission is not None:
            self._admission.close()

    def initial(self) -> Checkpoint:
        """Where a new query starts.

        Spark asks for it also before it replays a first batch, whose start stands in its end: what
        is wrong with the options is raised when a new first batch is planned from here.
        """
        if self._initial is None:
            try:
                self._initial = self._asking(self._resolve_start)
            except InvalidError as failure:
                self._initial_failure = failure
                self._initial = Checkpoint({}, fresh=True)
        return self._initial

    def _resolve_start(self) -> Checkpoint:
        view = self._metadata.view({})
        warn_of_pattern(self._cluster, self._options.subscription, view)
        positions = resolve(self._cluster, view, self._options.start)
        resumed = self._commits.resumed(view.topic_ids())
        self._begins_at_end = self._options.start.by_default and not resumed
        positions |= {p: s.position for p, s in resumed.items() if p in positions}
        names = self._options.subscription.names
        # Where no broker tells of it, for a moment or for good, its state waits for it.
        absent = {
            p: s.position
            for p, s in resumed.items()
            if p not in positions and s.topic_id and names(p)
        }
        topic_ids = {p.topic: resumed[p].topic_id for p in absent} | view.topic_ids()
        epochs = {p: s.leader_epoch for p, s in resumed.items() if s.leader_epoch >= 0}
        return Checkpoint(positions, topic_ids, fresh=True, leader_epochs=epochs, absent=absent)

    def fix_target(self) -> None:
        """Trigger.AvailableNow reads up to what is there now."""

        def ask() -> dict[TopicPartition, int]:
            # Where the query stands is not known yet, so whether a missing topic is a wrong name or
            # a deleted one is found out with the first offset.
            view = describe(self._cluster, self._options.subscription, known=None)
            return self._ask_latest(view, {})

        self._target = self._asking(ask)

    def latest(self, start_json: dict[str, Any], limited: bool) -> dict[str, Any]:
        """The end of the next batch, or `start_json` itself where there is nothing to read."""
        start = read_checkpoint(start_json)
        if start.fresh and self._initial_failure is not None:
            raise self._initial_failure
        check_ownership(start, self._options.key_ranges.ownership)
        self._has_planned = True
        self._asking(self._tasks.look)
        if (wait_s := self._ask_again_at - time.monotonic()) > 0:
            time.sleep(wait_s)
        asked_at, cpu_at = time.monotonic(), time.process_time()
        self._asking(lambda: self._commits.look(start))
        self._tasks.follow(self._commits.known_state)
        # The copy for the Kafka group is no part of what a question costs.
        mirror_at = time.process_time()
        self.mirror(start)
        cpu_at += time.process_time() - mirror_at
        end = self._end(start, limited)
        if end is None:
            cost_s = time.process_time() - cpu_at
            pause_s = min(cost_s / IDLE_SHARE, _IDLE_PAUSE_MAX_S)
            due_in_s = self._commits.due_in_s()
            self._ask_again_at = asked_at + min(pause_s, pause_s if due_in_s is None else due_in_s)
            return start_json
        # Before anything is told of the batch.
        self._asking(
            lambda: self._losses.look_ahead(start, end, self._metadata.view(end.positions))
        )
        if start.fresh and self._begins_at_end:
            self._asking(lambda: self._tell_of_begin(start))
        return end.to_json()

    def _tell_of_begin(self, start: Checkpoint) -> None:
        """Say what a new query leaves out: with availableNow it reads nothing, and ends well."""
        view = self._metadata.view(start.positions)
        first = earliest(self._cluster, view, start.positions.keys() & {*view.partitions()})
        if any(at < start.positions[partition] for partition, at in first.items()):
            _log.log(
                logging.INFO if self._target is None else logging.WARNING,
                "the query is new and begins at the end of the log, behind the records that are "
                "there; startingOffsets=earliest, with a new checkpoint, reads from the beginning",
            )

    def _end(self, start: Checkpoint, limited: bool) -> Checkpoint | None:
        """The end of the next batch, by what is committed when it is planned."""
        while True:
            end = self._asking(lambda: self._next(start, limited))
            if end is None and (self._target is None or not self._commits.waits_for_due()):
                return None
            if end is not None and not self._asking(self._commits.has_changed):
                return end

    def _next(self, start: Checkpoint, limited: bool) -> Checkpoint | None:
        view = self._metadata.view(start.positions)
        ends = self._ask_latest(view, start.known)
        if any(at < start.known.get(partition, 0) for partition, at in ends.items()):
            # A topic may be another one by now than what was known of it a moment ago.
            self._metadata.forget()
            view = self._metadata.view(start.positions)
            ends = self._ask_latest(view, start.known)
        latest = self._losses.log_ends(start, view, self._up_to_target(ends, start))
        findings = self._losses.compare(start, view, latest)
        if not latest and start.positions:
            # Without any partition the positions are kept, for when the topics come back.
            self._commits.nothing_there()
            return None
        sizes_of = partial(self._record_sizes, view)
        # What is read while the guard holds the query is about to be deleted.
        is_due = False
        if self._admission is not None:
            latest = self._admission.admitted(findings.start, latest, view, sizes_of)
            self._limits.part = self._admission.factor or 1.0
            is_due = self._admission.holds
        moved = start.fresh or bool(findings.restarted)
        # A run with availableNow would end and leave what it waits with.
        may_wait = limited and self._target is None and not is_due
        batch = NextBatch(
            start=start,
            base=self._base(start, findings, view),
            latest=latest,
            log_ends=self._ends_of_logs(view, self._latest),
            waits=may_wait and self._limits.waits(findings.start, latest, _now_ms(), moved),
            moved=moved,
            limits=self._limits if limited else None,
            sizes_of=sizes_of,
        )
        return self._commits.end(batch)

    def _up_to_target(self, latest: Positions, start: Checkpoint) -> Positions:
        if self._target is None:
            return latest
        # What has a position was there when the target was fixed, also if it was not told of. A
        # target before it is of a leader that was behind, or older than the start of a new query.
        for partition in latest.keys() & start.known.keys():
            if self._target.get(partition, -1) < start.known[partition]:
                self._target[partition] = latest[partition]
        return {p: min(self._target[p], at) for p, at in latest.items() if p in self._target}

    def _base(self, start: Checkpoint, findings: Findings, view: ClusterView) -> Checkpoint:
        """What the end of the next batch says besides its positions; it has those of its start."""
        begins, absent = findings.start, findings.absent
        durable = {} if start.fresh else start.positions
        return Checkpoint(
            positions=begins,
            topic_ids={
                **{p.topic: start.topic_ids[p.topic] for p in absent},
                **view.topic_ids(),
            },
            leader_epochs={
                **{p: at for p, at in start.leader_epochs.items() if p in absent},
                **{p: at for p, at in self._losses.epochs.items() if p in begins and at >= 0},
            },
            initial={
                p: at for p, at in begins.items() if durable.get(p) != at or p in findings.restarted
            },
            group_id=own_group(self._options.group_id_prefix, start.group_id),
            ownership=self._options.key_ranges.ownership,
            absent=absent,
            source_id=(start.source_id or self._made_up) if self._names_source else "",
        )

    def plan(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        """The tasks of a batch; also for a batch that an earlier run planned."""
        self._losses.planned()
        if start == end:
            # Of a batch that runs for another source's sake.
            return []
        if start.fresh and end.foreign:
            check_foreign(end, self._options.start)
        check_ownership(end, self._options.key_ranges.ownership)
        check_mode(end, self._options.commits.individual)
        check_works(end, self._names_source)
        return self._asking(lambda: self._plan(start, end))

    def _plan(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        view = self._metadata.view(end.positions)
        if not self._has_planned:
            self._ask_latest(view, {})
            self._losses.check_replay(end, view)
            self._losses.look_ahead(start, end, view)
        reads = self._commits.reads(start, end, view)
        reads = reads.only(self._losses.still_there(reads.ranges, end, view))
        sizes = self._record_sizes(view, reads.ranges)
        topic_ids = {**view.topic_ids(), **end.topic_ids}
        order = self._order(reads, end) if self._works else None
        maker = TaskMaker(view, topic_ids, end.leader_epochs, order)
        return self._tasks.plan(reads, sizes, self._sizes.key_hashes, maker)

    @property
    def _names_source(self) -> bool:
        """Whether offsets name the source, which a commit's mark does by itself."""
        return self._works and not self._options.commits.individual

    def _order(self, reads: BatchReads, end: Checkpoint) -> Callable[[Sequence[Split]], WorkOrder]:
        plan = uuid.uuid4().hex
        source_id = end.commits.source_id if end.commits is not None else end.source_id
        settings, state = self._commits.work_settings(end), self._commits.state_order(end)
        newer = self._newer()

        def order(splits: Sequence[Split]) -> WorkOrder:
            read = {each.topic_partition for each in splits}
            own = state and state.only(read)
            return WorkOrder(plan, source_id, settings, reads.works(splits), own, newer)

        return order

    def mirror(self, committed: Checkpoint) -> None:
        """Copy the positions of a finished batch to the Kafka group; a refusal is no failure."""
        group_id = self._options.client.group_id or committed.group_id
        if not self._options.mirror_offsets or committed.fresh or not group_id:
            return
        positions = self._commits.committed(committed)
        if self._mirror is None:
            self._mirror = GroupMirror(self._cluster, group_id, mark=new_mark())
        self._mirror.mirror(positions, committed.leader_epochs, _now_ms())

    def known_latest(self) -> dict[str, Any] | None:
        """Where the logs end; the reserved key carries this process's metrics to Spark's progress,
        which has no other place for them."""
        if not self._latest:
            return None
        document = Checkpoint(self._latest).to_json()
        metrics = self._tasks.metrics() | self._commits.metrics()
        if self._mirror is not None:
            metrics["mirror"] = self._mirror.metrics()
        if self._admission is not None:
            metrics["volumes"] = self._admission.metrics()
        return {**document, RESERVED: {"metrics": metrics | self._losses.metrics()}}

    def _ask_latest(self, view: ClusterView, start: Positions) -> dict[TopicPartition, int]:
        # What was answered before a batch of an earlier run may itself have been behind.
        known_ends = {p: max(at, start.get(p, 0)) for p, at in {**start, **self._latest}.items()}
        for attempt in range(_STALE_TRIES):
            if attempt:
                time.sleep(_STALE_PAUSE_S)
            found = self._cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
            latest = {partition: at for partition, (at, _) in found.items()}
            if all(latest[p] >= known for p, known in known_ends.items() if p in latest):
                break
        self._latest = latest
        self._losses.epochs = {partition: epoch for partition, (_, epoch) in found.items()}
        return latest

    def _asking(self, ask: Callable[[], T]) -> T:
        """Ask the cluster as often as the options say; what vanished meanwhile is looked at anew.

        A topic that is deleted between two requests fails the second one: with new metadata it is
        known to be deleted, which is a loss and not a wrong name.
        """

        def once() -> T:
            for _ in range(_VANISHED_TRIES):
                try:
                    return ask()
                except KeyrangeError as failure:
                    is_unknown = failure.condition.name == "UNKNOWN_TOPIC_OR_PARTITION"
                    if not is_unknown or not self._metadata.forget():
                        raise
            return ask()

        options = self._options
        tries, pause_ms = options.fetch_offset_tries, options.fetch_offset_pause_ms
        return retrying(self._cluster, tries, pause_ms, once)

    def _record_sizes(self, view: ClusterView, ranges: Ranges) -> dict[TopicPartition, float]:
        now = time.monotonic()
        if now - self._sizes_at > _SIZES_AGE_S:
            self._sizes.forget()
            self._sizes_at = now
        return self._sizes.of(view, ranges)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
