"""The stream reader: one long-lived process per query run that says what each micro-batch reads.

Spark's rules that shape this file (pyspark.sql.datasource; SPARK-54305):
- offsets are compared as text, so `latestOffset` answers its own argument when nothing moved;
- `initialOffset` is called twice and stored nowhere: the first end carries what it answered;
- after a restart a planned batch goes straight to `partitions`, without `latestOffset` before;
- `commit` lags one batch, and one run with availableNow; the start that `latestOffset` is given is
  always the end of the last finished batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from keyrange.model.checkpoint import read_checkpoint
from keyrange.options import SourceOptions
from keyrange.source.driver_version import with_version
from keyrange.source.task_reader import read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.individual_commits.model.commit import CommitTable
    from keyrange.kafka.cluster import Cluster
    from keyrange.options.commits import CommitOptions
    from keyrange.source.commit_strategy import JobState
    from keyrange.source.guard_admission import Admission
    from keyrange.source.planning_session import NewerColumns, PlanningSession


class KeyRangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made twice by Spark: in the process that plans, and once more to be pickled into the tasks.

    So nothing is opened before the first call that needs it, and what is open is left out of the
    pickle.
    """

    # Whether tasks work on what they read.
    works = False

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._session: PlanningSession | None = None

    def __getstate__(self) -> dict[str, Any]:
        return with_version({**self.__dict__, "_session": None})

    def initialOffset(self) -> dict[str, Any]:
        return self._opened().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Only tells the engine that there is a limit, so that Trigger.Once, which passes
        # ReadAllAvailable in its place, can be told from the other triggers.
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        unlimited = isinstance(limit, ReadAllAvailable)
        return self._opened().latest(start, limited=not unlimited)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._opened().known_latest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._opened().fix_target()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._opened().plan(read_checkpoint(start), read_checkpoint(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint is the source of truth; the Kafka group gets a copy of it."""
        self._opened().mirror(read_checkpoint(end))

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> PlanningSession:
        if self._session is None:
            from keyrange.kafka.cluster import Cluster
            from keyrange.kafka.record_sizes import RecordSizes
            from keyrange.kafka.security.exposure import warn_of_exposure
            from keyrange.observing.logs import follow_environment
            from keyrange.options.source import warn_of_idle
            from keyrange.source.planning_session import PlanningSession

            follow_environment()
            warn_of_exposure(self._options.client)
            warn_of_idle(self._options, self.works)
            cluster = Cluster(self._options.client)
            keys = self._options.key_ranges
            sizes = RecordSizes(cluster, keys.split_by == "keyRange", keys.nulls_first)
            admission = self._admission(cluster)
            pinning = None
            if self._options.members.pinned:
                from keyrange.members.pinning import Pinning

                pinning = Pinning(self._options, cluster)
            self._session = PlanningSession(
                self._options,
                cluster,
                sizes,
                _open_commit_table,
                pinning,
                admission,
                works=self.works,
                state=self._state(),
                newer=self._newer_columns(cluster),
            )
        return self._session

    def _state(self) -> JobState | None:
        """Where they keep state for keys."""
        return None

    def _newer_columns(self, cluster: Cluster) -> NewerColumns:  # noqa: ARG002
        """Where a table follows the schemas of what is read."""
        return lambda: None

    def _admission(self, cluster: Cluster) -> Admission | None:
        """The volume guard, after its first look."""
        volumes = self._options.volumes
        if not (volumes.admission and volumes.is_on):
            return None
        from keyrange.source.guard_admission import Admission

        admission = Admission(self._options, cluster)
        admission.begin()
        return admission


def _open_commit_table(options: CommitOptions, source_id: str) -> CommitTable:
    # PyArrow's datasets and pandas come with it: a third of a second, for those that have a table.
    from keyrange.individual_commits.table.commit_table import open_commit_table

    return open_commit_table(options, source_id)
