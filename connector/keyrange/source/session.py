"""What the planning process of a stream knows between calls, and how it decides what is read.

`latest` is called about 100 times a second while there is nothing to read: between two questions to
the cluster there is a pause in proportion to what a question costs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.datasource import InputPartition

from keyrange.errors import InvalidError, KeyrangeError
from keyrange.individual_commits.model.agreement import check_mode
from keyrange.individual_commits.model.state import PartitionState
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.mirror import GroupMirror, own_group
from keyrange.kafka.model.offsets import LATEST, Positions, TopicPartition, pending
from keyrange.kafka.position_lookup import earliest, resolve
from keyrange.kafka.record_sizes import RecordSizes
from keyrange.kafka.subscribed import describe, retrying
from keyrange.kafka.view import ClusterView
from keyrange.options import SourceOptions
from keyrange.source.data_loss_check import DataLossCheck
from keyrange.source.guard_hold import Admission
from keyrange.source.individual import IndividualCommits, OpenTable, check_left, with_log_ends
from keyrange.source.metadata import IDLE_SHARE, PATIENCE_S, Metadata
from keyrange.source.model.checkpoint import RESERVED, Checkpoint, read_checkpoint
from keyrange.source.model.resuming import check_foreign, check_ownership
from keyrange.source.planning import check_partitions
from keyrange.source.tasks import TaskPlans
from keyrange.source.trigger_limits import SizesOf, TriggerLimits

if TYPE_CHECKING:
    from keyrange.members.pinning import Pinning

_log = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE_PAUSE_MAX_S: Final = 5.0
# Sizes of records are sampled anew so often; a topic's records rarely change faster.
_SIZES_AGE_S: Final = 60.0
# A latest offset below a known one is asked for again: a new leader may be behind (KAFKA-7703).
_STALE_TRIES: Final = 3
_STALE_PAUSE_S: Final = 0.1


class PlanningSession:
    """One run of a query: the cluster, where its logs end, and what was said of them."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        sizes: RecordSizes,
        open_table: OpenTable | None = None,
        pinning: Pinning | None = None,
        admission: Admission | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._options = options
        self._pinning = pinning
        self._admission = admission
        self._tasks = TaskPlans(options, pinning)
        self._open_table = open_table
        self._individual: IndividualCommits | None = None
        if options.commits.individual:
            assert open_table is not None
            cuts_of = pinning.cuts if pinning is not None else None
            self._individual = IndividualCommits(options, open_table, cuts_of)
        self._cluster = cluster
        self._sizes = sizes
        self._sizes_at = time.monotonic()
        self._metadata = Metadata(options, cluster, patience_s)
        self._ask_again_at = 0.0
        self._limits = TriggerLimits(options)
        self._latest: dict[TopicPartition, int] = {}
        self._losses = DataLossCheck(options, cluster)
        self._initial: Checkpoint | None = None
        self._initial_failure: InvalidError | None = None
        self._target: dict[TopicPartition, int] | None = None
        # Whether this run has been asked for an end: what is planned before is an earlier run's.
        self._has_planned = False
        self._mirror: GroupMirror | None = None

    def close(self) -> None:
        self._cluster.close()
        if self._pinning is not None:
            self._pinning.close()
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
        positions = resolve(self._cluster, view, self._options.start)
        resumed: Mapping[TopicPartition, PartitionState] = {}
        if self._individual is not None:
            resumed = self._individual.resumed(positions, view.topic_ids())
            positions |= {p: state.position for p, state in resumed.items()}
        if self._target is not None:
            # Resolved a moment after the target was fixed: a start behind it is no loss.
            for partition, at in positions.items():
                self._target[partition] = max(at, self._target.get(partition, 0))
        epochs = {p: s.leader_epoch for p, s in resumed.items() if s.leader_epoch >= 0}
        return Checkpoint(positions, view.topic_ids(), fresh=True, leader_epochs=epochs)

    def fix_target(self) -> None:
        """Trigger.AvailableNow reads up to what is there now."""

        def ask() -> dict[TopicPartition, int]:
            # Where the query stands is not known yet, so whether a missing topic is a wrong name or
            # a deleted one is found out with the first offset.
            view = describe(self._cluster, self._options.subscription, known=None)
            return self._ask_latest(view, {})

        self._target = self._asking(ask)

    def known_latest(self) -> dict[str, Any] | None:
        """Where the logs end; the reserved key carries this process's metrics to Spark's progress,
        which has no other place for them."""
        if not self._latest:
            return None
        document = Checkpoint(self._latest).to_json()
        plan = self._tasks.metrics()
        metrics: dict[str, Any] = {"plan": plan} if plan else {}
        if self._mirror is not None:
            metrics["mirror"] = self._mirror.metrics()
        if self._individual is not None:
            metrics["commits"] = self._individual.metrics()
        if self._pinning is not None:
            metrics["members"] = self._pinning.metrics()
        if self._admission is not None:
            metrics["volumes"] = self._admission.metrics()
        return {**document, RESERVED: {"metrics": metrics | self._losses.metrics()}}

    def mirror(self, committed: Checkpoint) -> None:
        """Copy the positions of a finished batch to the Kafka group; a refusal is no failure."""
        group_id = self._options.client.group_id or committed.group_id
        if not self._options.mirror_offsets or committed.fresh or not group_id:
            return
        positions: Positions = committed.positions
        if self._individual is not None:
            positions = self._individual.committed(committed)
        if self._mirror is None:
            self._mirror = GroupMirror(self._cluster, group_id)
        self._mirror.mirror(positions, committed.leader_epochs, _now_ms())

    def latest(self, start_json: dict[str, Any], limited: bool) -> dict[str, Any]:
        """The end of the next batch, or `start_json` itself where there is nothing to read."""
        start = read_checkpoint(start_json)
        if start.fresh and self._initial_failure is not None:
            raise self._initial_failure
        check_ownership(start, self._options.key_ranges.ownership)
        if self._individual is None:
            check_left(start, self._options, self._open_table)
            self.mirror(start)
        self._has_planned = True
        if self._pinning is not None:
            self._asking(self._pinning.look)
        self._pause()
        asked_at, cpu_at = time.monotonic(), time.process_time()
        end = self._next_of(start, limited)
        if end is None:
            cost_s = time.process_time() - cpu_at
            pause_s = min(cost_s / IDLE_SHARE, _IDLE_PAUSE_MAX_S)
            due_in_s = self._individual.due_in_s() if self._individual is not None else None
            self._ask_again_at = asked_at + min(pause_s, pause_s if due_in_s is None else due_in_s)
            return start_json
        # Before anything is told of the batch.
        self._asking(
            lambda: self._losses.look_ahead(start, end, self._metadata.view(end.positions))
        )
        return end.to_json()

    def _next_of(self, start: Checkpoint, limited: bool) -> Checkpoint | None:
        """The end of the next batch, by what the commit table says where there is one."""
        individual = self._individual
        if individual is None:
            return self._asking(lambda: self._next(start, limited))
        asked, seq = self._asking(lambda: (individual.look(start), individual.seq))
        self.mirror(start)
        while True:
            end = self._asking(lambda: self._next(start, limited))
            if end is None and self._target is not None and individual.waits_for_due():
                continue
            if end is None or asked:
                return end
            asked = self._asking(lambda: individual.look(start, anew=True))
            if individual.seq == seq:
                return end

    def _next(self, start: Checkpoint, limited: bool) -> Checkpoint | None:
        view = self._metadata.view(start.positions)
        latest = self._ask_latest(view, start.known)
        if self._target is not None:
            # One that was not told of when the target was fixed, and has a position, was there.
            for partition in latest.keys() & start.known.keys():
                self._target.setdefault(partition, latest[partition])
            latest = {p: min(self._target[p], at) for p, at in latest.items() if p in self._target}
        findings = self._losses.compare(start, view, latest)
        if not latest and start.positions:
            # Without any partition the positions are kept, for when the topics come back.
            if self._individual is not None:
                self._individual.states(start, Checkpoint({}))
            return None
        if self._admission is not None:
            latest = self._admission.admitted(findings.start, latest, view, self._sizes_in(view))
            self._limits.part = self._admission.factor or 1.0
        # A run with availableNow would end and leave what it waits with, and what is read while
        # the guard holds the query is about to be deleted.
        is_due = self._admission is not None and self._admission.holds
        may_wait = limited and self._target is None and not is_due
        at_once = start.fresh or bool(findings.restarted)
        if may_wait and self._limits.waits(findings.start, latest, _now_ms(), at_once):
            if self._individual is None:
                return None
            # What is late does not wait.
            latest = findings.start
        check_partitions(latest, self._options)
        durable = {} if start.fresh else start.positions
        base = Checkpoint(
            positions=findings.start,
            topic_ids={
                **{p.topic: start.topic_ids[p.topic] for p in findings.absent},
                **view.topic_ids(),
            },
            leader_epochs={
                **{p: at for p, at in start.leader_epochs.items() if p in findings.absent},
                **{p: at for p, at in self._losses.epochs.items() if p in latest and at >= 0},
            },
            initial={
                p: at
                for p, at in findings.start.items()
                if durable.get(p) != at or p in findings.restarted
            },
            group_id=own_group(self._options.group_id_prefix, start.group_id),
            ownership=self._options.key_ranges.ownership,
            absent=findings.absent,
        )
        moved = start.fresh or bool(findings.restarted)
        if self._individual is not None:
            return self._next_individual(start, base, latest, moved, view, limited)
        end = dict(latest)
        if limited:
            end = self._limits.end(findings.start, latest, self._sizes_in(view))
        if end == dict(start.positions) and not moved:
            return None
        return replace(base, positions=end)

    def _next_individual(
        self,
        start: Checkpoint,
        base: Checkpoint,
        latest: Positions,
        moved: bool,
        view: ClusterView,
        limited: bool,
    ) -> Checkpoint | None:
        assert self._individual is not None
        states = self._individual.states(start, base)
        latest = self._individual.admissible(states, latest)
        late = self._individual.late(states) if limited else {}
        sizes = self._sizes_in(view)
        end = dict(latest)
        if limited:
            end = self._limits.end(base.positions, latest, sizes, late)
        moved = moved or end.keys() != start.positions.keys()
        planned = self._individual.planned(start, base, end, moved, sizes)
        return planned and with_log_ends(planned, self._latest)

    def plan(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        """The tasks of a batch; also for a batch that an earlier run planned."""
        self._losses.planned()
        if start == end:
            # Of a batch that runs for another source's sake.
            return []
        if start.fresh and end.foreign:
            check_foreign(end, self._options.start)
        check_ownership(end, self._options.key_ranges.ownership)
        check_mode(end, self._individual is not None)
        return self._asking(lambda: self._plan(start, end))

    def _plan(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        view = self._metadata.view(end.positions)
        if not self._has_planned:
            self._ask_latest(view, {})
            self._losses.check_replay(end, view)
            self._losses.look_ahead(start, end, view)
        if self._individual is not None:
            return self._plan_individual(self._individual, start, end, view)
        known = set(view.partitions())
        begin = {p: end.start_of(p, start) for p in end.positions}
        unknown = earliest(
            self._cluster, view, [p for p, at in begin.items() if at is None and p in known]
        )
        begins: Positions = {
            p: at if at is not None else unknown.get(p, end.positions[p]) for p, at in begin.items()
        }
        ranges = self._losses.still_there(pending(begins, end.positions), end, view)
        topic_ids = {**view.topic_ids(), **end.topic_ids}
        sizes = self._record_sizes(view, ranges)
        return self._tasks.read(
            ranges, sizes, self._sizes.key_hashes, view, topic_ids, end.leader_epochs
        )

    def _plan_individual(
        self, individual: IndividualCommits, start: Checkpoint, end: Checkpoint, view: ClusterView
    ) -> Sequence[InputPartition]:
        intakes = individual.intakes(start, end)
        assert end.commits is not None
        spans = {partition: intake.reach for partition, intake in intakes.items()}
        reaches = self._losses.still_there(spans, end, view)
        return self._tasks.deliver(
            {partition: intakes[partition] for partition in reaches},
            individual.spans(reaches, end.commits),
            self._record_sizes(view, reaches),
            self._sizes.key_hashes,
            view,
            {**view.topic_ids(), **end.topic_ids},
            end.leader_epochs,
        )

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

    def _pause(self) -> None:
        wait_s = self._ask_again_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)

    def _sizes_in(self, view: ClusterView) -> SizesOf:
        return lambda ranges: self._record_sizes(view, ranges)

    def _record_sizes(
        self, view: ClusterView, ranges: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, float]:
        now = time.monotonic()
        if now - self._sizes_at > _SIZES_AGE_S:
            self._sizes.forget()
            self._sizes_at = now
        return self._sizes.of(view, ranges)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
