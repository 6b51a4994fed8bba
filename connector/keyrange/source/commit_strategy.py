"""How a query commits, as its planning session sees it: the interface, whose defaults are those of
a query without pending records, and the commits of whole batches. `individual_commit_strategy.py`
has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol

from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import CommitTable, Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.state_before_batch import check_agreement, check_all_done
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.position_lookup import earliest
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.members.model.copy_book import KnownState
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.offsets import Positions, TopicPartition, pending
from keyrange.options import SourceOptions
from keyrange.options.commits import CommitOptions
from keyrange.source.planning import BatchReads, NewRecords, check_partitions
from keyrange.source.trigger_limits import SizesOf, TriggerLimits
from keyrange.work.job_time import JobTime
from keyrange.work.model.work_order import StateOrder, WorkSettings

OpenTable = Callable[[CommitOptions, str], CommitTable]
CheckRuns = Callable[[Iterable[StateRun]], object]


class JobState:
    """The state that the tasks of a job keep for keys, in one run of its query: what its timers go
    by, and whether its variables take in what there is, of which `check_runs` raises."""

    def __init__(self, time: JobTime | None = None, check_runs: CheckRuns | None = None) -> None:
        self.time = time
        self._check_runs = check_runs

    def check(self, known: Snapshot) -> None:
        """Once, before anything is planned: what is written later is of this run's own form."""
        check, self._check_runs = self._check_runs, None
        if check is not None:
            check(chain.from_iterable(known.runs.values()))


@dataclass(frozen=True, slots=True)
class NextBatch:
    """What the next batch may read, whichever way the query commits.

    `base` is its end but for the positions, which are those where it begins. It may read up to
    `latest` within `limits` (None: all of it), and if it `waits`, no new records; the logs end at
    `log_ends`. `moved`: its end has to be written even if it reads nothing.
    """

    start: Checkpoint
    base: Checkpoint
    latest: Positions
    log_ends: Positions
    waits: bool
    moved: bool
    limits: TriggerLimits | None
    sizes_of: SizesOf

    def limited(
        self, latest: Positions, late: Mapping[TopicPartition, float] = MappingProxyType({})
    ) -> dict[TopicPartition, int]:
        """How far the limits let it read; `late` are offsets that it reads besides."""
        if self.limits is None:
            return dict(latest)
        return self.limits.end(self.base.positions, latest, self.sizes_of, late)


class CommitStrategy(Protocol):
    """Decides where a batch ends and what it reads, by what is committed."""

    def resumed(
        self,
        topic_ids: Mapping[str, str],  # noqa: ARG002
    ) -> Mapping[TopicPartition, PartitionState]:
        """Where a query without a checkpoint goes on from the commits of its group: the state of
        each partition that they know, but of topics that have other `topic_ids` now."""
        return {}

    def look(self, start: Checkpoint) -> None:
        """Learn what is committed after the batch that ended at `start`.

        Raises KeyrangeError if checkpoint, commit table and options contradict one another.
        """

    def has_changed(self) -> bool:
        """Whether other commits have come since `look`, which may answer from memory."""
        return False

    def committed(self, at: Checkpoint) -> Positions:
        """The committed offsets of the partitions, after the batch that ended at `at`."""

    def end(self, batch: NextBatch) -> Checkpoint | None:
        """The end of the next batch; None if there is nothing to read."""

    def reads(self, start: Checkpoint, end: Checkpoint, view: ClusterView) -> BatchReads:
        """What a planned batch reads."""

    def work_settings(self, end: Checkpoint) -> WorkSettings:  # noqa: ARG002
        """How tasks work on the records of a planned batch while they read them."""
        return WorkSettings(keeps_order=False, deliveries_max=1)

    def state_order(self, end: Checkpoint) -> StateOrder | None:  # noqa: ARG002
        """Where the state of keys is before a planned batch; None where none is kept."""
        return None

    def known_state(self) -> KnownState | None:
        """The state of keys at the last commit; None without one, and where none is kept."""
        return None

    def nothing_there(self) -> None:
        """Note that the cluster has none of the query's partitions: nothing is due."""
        return

    def due_in_s(self) -> float | None:
        """The time until a pending record is due; None without one."""
        return None

    def waits_for_due(self) -> bool:
        """At the end of a run with availableNow: whether a pending record is due after a wait."""
        return False

    def metrics(self) -> dict[str, Any]:
        """Sections of the query's progress."""
        return {}


class BatchCommits(CommitStrategy):
    """Batch commits: all records of a batch are done when Spark has finished the batch. So Spark's
    checkpoint says all that is committed, and a batch reads new records alone.

    `open_table` is for a query that committed individually before.
    """

    def __init__(
        self, options: SourceOptions, cluster: Cluster, open_table: OpenTable | None
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._open_table = open_table

    def look(self, start: Checkpoint) -> None:
        """A query may go back to batch commits when nothing is left that would never come again.

        Raises COMMIT_TERMS_CHANGED, and INVALID_OPTIONS where the commit table is not named.
        """
        if start.commits is None:
            return
        if not self._options.commits.table or self._open_table is None:
            raise invalid_options(
                "option 'commitTable' must be given until the next batch is done: the "
                "checkpoint is of a query that commits individually, and only its commit table "
                "tells whether everything is done; or set commitMode=individual"
            )
        known = self._open_table(self._options.commits, start.commits.source_id).known()
        check_agreement(known, start)
        check_all_done(known, "commitMode was individual and is batch")

    def committed(self, at: Checkpoint) -> Positions:
        return at.positions

    def end(self, batch: NextBatch) -> Checkpoint | None:
        if batch.waits:
            return None
        check_partitions(batch.latest, self._options)
        end = batch.limited(batch.latest)
        if end == dict(batch.start.positions) and not batch.moved:
            return None
        return replace(batch.base, positions=end)

    def reads(self, start: Checkpoint, end: Checkpoint, view: ClusterView) -> NewRecords:
        known = set(view.partitions())
        begin = {p: end.start_of(p, start) for p in end.positions}
        unknown = earliest(
            self._cluster, view, [p for p, at in begin.items() if at is None and p in known]
        )
        begins: Positions = {
            p: at if at is not None else unknown.get(p, end.positions[p]) for p, at in begin.items()
        }
        return NewRecords(pending(begins, end.positions), self._options)
