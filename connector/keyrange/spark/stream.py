"""The stream reader: one long-lived process per query run that says what each micro-batch reads.

Spark's rules that shape this file (pyspark.sql.datasource; SPARK-54305):
- offsets are compared as text, so `latestOffset` answers its own argument when nothing moved;
- `initialOffset` is called twice and stored nowhere: the first end carries what it answered;
- after a restart a planned batch goes straight to `partitions`, without `latestOffset` before;
- `latestOffset` is called about 100 times a second while there is nothing to read: between two
  questions to the cluster there is a pause in proportion to what a question costs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from keyrange.core.admission import admit_bytes, admit_offsets
from keyrange.core.checkpoint import Checkpoint, read_checkpoint
from keyrange.core.offsets import LATEST, OffsetRange, Positions, TopicPartition, pending
from keyrange.core.splits import plan_splits
from keyrange.core.topology import Findings, compare
from keyrange.errors import error
from keyrange.options import SourceOptions
from keyrange.spark.read import ReadTask, make_tasks, read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.positions import RecordSizes
    from keyrange.kafka.view import ClusterView

_log = logging.getLogger(__name__)

# A question to the cluster may take this part of one core's time while nothing comes.
_IDLE_SHARE: Final = 0.03
_IDLE_PAUSE_MAX_S: Final = 1.0
_METADATA_AGE_S: Final = 1.0
# Sizes of records are sampled anew so often; a topic's records rarely change faster.
_SIZES_AGE_S: Final = 60.0
# A latest offset below a known one is asked for again: a new leader may be behind (KAFKA-7703).
_STALE_RETRIES: Final = 3
_STALE_PAUSE_S: Final = 0.1


class KeyRangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made twice by Spark: in the process that plans, and once more to be pickled into the tasks.

    So nothing is opened before the first call that needs it, and what is open is left out of the
    pickle.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._session: _Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_session": None}

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
        """Spark's checkpoint is the source of truth; nothing else is kept."""

    def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _opened(self) -> _Session:
        if self._session is None:
            from keyrange.kafka.cluster import Cluster
            from keyrange.kafka.positions import RecordSizes

            cluster = Cluster(self._options.client)
            self._session = _Session(self._options, cluster, RecordSizes(cluster))
        return self._session


class _Session:
    """What the planning process knows between calls: the cluster, and where its logs end."""

    def __init__(self, options: SourceOptions, cluster: Cluster, sizes: RecordSizes) -> None:
        self._options = options
        self._cluster = cluster
        self._sizes = sizes
        self._sizes_at = time.monotonic()
        self._view: ClusterView | None = None
        self._view_until = 0.0
        self._seen_topics: set[str] = set()
        self._ask_again_at = 0.0
        self._latest: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._initial: Checkpoint | None = None
        self._target: dict[TopicPartition, int] | None = None

    def close(self) -> None:
        self._cluster.close()

    def initial(self) -> Checkpoint:
        if self._initial is None:
            from keyrange.kafka.positions import resolve

            view = self._refresh_view()
            spec = self._options.starting_offsets
            positions = resolve(
                self._cluster, view, LATEST if spec is None else spec, "startingOffsets"
            )
            self._initial = Checkpoint(positions, view.topic_ids(), fresh=True)
            if self._target is not None:
                # Resolved a moment after the target was fixed: a start behind it is no loss.
                for partition, at in positions.items():
                    self._target[partition] = max(at, self._target.get(partition, 0))
        return self._initial

    def fix_target(self) -> None:
        """Trigger.AvailableNow reads up to what is there now."""
        # Where the query stands is not known yet, so whether a missing topic is a wrong name or a
        # deleted one is found out with the first offset.
        view = self._cluster.describe(self._options.subscribe, may_miss=self._options.subscribe)
        self._target = self._ask_latest(view, {})

    def known_latest(self) -> dict[str, Any] | None:
        if not self._latest:
            return None
        document = Checkpoint(self._latest).to_json()
        return {name: value for name, value in document.items() if not name.startswith("@")}

    def latest(self, start_json: dict[str, Any], limited: bool) -> dict[str, Any]:
        """The end of the next batch, or `start_json` itself where there is nothing to read."""
        start = read_checkpoint(start_json)
        self._pause()
        asked_at, cpu_at = time.monotonic(), time.process_time()
        view = self._current_view(start.positions)
        latest = self._ask_latest(view, start.positions)
        if self._target is not None:
            latest = {p: min(self._target[p], at) for p, at in latest.items() if p in self._target}
        findings = self._compare(start, view, latest)
        end = self._end(findings.start, latest, view, limited)
        if end == dict(start.positions) and not start.fresh and not findings.restarted:
            cost_s = time.process_time() - cpu_at
            self._ask_again_at = asked_at + min(cost_s / _IDLE_SHARE, _IDLE_PAUSE_MAX_S)
            return start_json
        durable = {} if start.fresh else start.positions
        return Checkpoint(
            positions=end,
            topic_ids=view.topic_ids(),
            leader_epochs={
                p: epoch for p, epoch in self._epochs.items() if p in end and epoch >= 0
            },
            initial={
                p: at
                for p, at in findings.start.items()
                if durable.get(p) != at or p in findings.restarted
            },
        ).to_json()

    def plan(self, start: Checkpoint, end: Checkpoint) -> list[ReadTask]:
        """The tasks of a batch; also for a batch that an earlier run planned."""
        from keyrange.kafka.positions import earliest

        view = self._current_view(end.positions)
        known = set(view.partitions())
        begin = {p: end.start_of(p, start) for p in end.positions}
        unknown = earliest(
            self._cluster, view, [p for p, at in begin.items() if at is None and p in known]
        )
        begins: Positions = {
            p: at if at is not None else unknown.get(p, end.positions[p]) for p, at in begin.items()
        }
        options = self._options
        ranges = self._still_there(pending(begins, end.positions), end, view)
        splits = plan_splits(ranges, self._record_sizes(view, ranges), options.min_partitions)
        return make_tasks(splits, view, {**view.topic_ids(), **end.topic_ids}, options)

    def _still_there(
        self, ranges: dict[TopicPartition, OffsetRange], end: Checkpoint, view: ClusterView
    ) -> dict[TopicPartition, OffsetRange]:
        """Without the ranges of partitions that are gone, or that belong to an earlier topic."""
        known = set(view.partitions())
        left = {}
        for partition, span in ranges.items():
            planned, now = end.topic_ids.get(partition.topic), view.topic_id(partition.topic)
            if partition in known and (not planned or not now or planned == now):
                left[partition] = span
                continue
            failure = error(
                "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
                f"some data may have been lost: cannot read offsets {span} of topic partition "
                f"{partition}: it was deleted"
                + (", and the topic created anew" if partition in known else ""),
            )
            if self._options.fail_on_data_loss:
                raise failure
            _log.warning("%s Going on with what is left.", failure)
        return left

    def _end(
        self, start: Positions, latest: Positions, view: ClusterView, limited: bool
    ) -> dict[TopicPartition, int]:
        end = dict(latest)
        options = self._options
        if limited and options.max_bytes_per_trigger is not None:
            ranges = pending(start, end)
            sizes = self._record_sizes(view, ranges)
            sizes = {p: sizes.get(p, 0.0) for p in end}
            end = admit_bytes(start, end, options.max_bytes_per_trigger, sizes)
        if limited and options.max_offsets_per_trigger is not None:
            end = admit_offsets(start, end, options.max_offsets_per_trigger)
        return end

    def _compare(self, start: Checkpoint, view: ClusterView, latest: Positions) -> Findings:
        """What became of the partitions since `start`; raises data loss where it must not pass."""
        from keyrange.kafka.positions import earliest

        new = [p for p in latest if p not in start.positions]
        recreated = {
            topic
            for topic, topic_id in start.topic_ids.items()
            if view.topic_id(topic) and topic_id != view.topic_id(topic)
        }
        new += [p for p in latest if p.topic in recreated and p in start.positions]
        firsts = earliest(self._cluster, view, new)
        findings = compare(start, latest, firsts, recreated)
        for failure in findings.losses:
            if self._options.fail_on_data_loss:
                raise failure
            _log.warning("%s Going on with what is left.", failure)
        return findings

    def _ask_latest(self, view: ClusterView, start: Positions) -> dict[TopicPartition, int]:
        known_ends = {**start, **self._latest}
        for attempt in range(_STALE_RETRIES):
            if attempt:
                time.sleep(_STALE_PAUSE_S)
            found = self._cluster.list_offsets(view, dict.fromkeys(view.partitions(), LATEST))
            latest = {partition: at for partition, (at, _) in found.items()}
            if all(latest[p] >= known for p, known in known_ends.items() if p in latest):
                break
        self._latest = latest
        self._epochs = {partition: epoch for partition, (_, epoch) in found.items()}
        return latest

    def _pause(self) -> None:
        wait_s = self._ask_again_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)

    def _current_view(self, known: Positions) -> ClusterView:
        if self._view is not None and time.monotonic() < self._view_until:
            return self._view
        return self._refresh_view(known)

    def _refresh_view(self, known: Positions = MappingProxyType({})) -> ClusterView:
        """New metadata. A missing topic that had positions was deleted: it is left out here, and
        reported as the loss that it is; any other is a wrong name."""
        cpu_at = time.process_time()
        self._seen_topics.update(partition.topic for partition in known)
        self._view = self._cluster.describe(self._options.subscribe, may_miss=self._seen_topics)
        cost_s = time.process_time() - cpu_at
        age_s = max(_METADATA_AGE_S, cost_s / _IDLE_SHARE)
        self._view_until = time.monotonic() + min(
            age_s, self._options.client.metadata_max_age_ms / 1000
        )
        return self._view

    def _record_sizes(
        self, view: ClusterView, ranges: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, float]:
        now = time.monotonic()
        if now - self._sizes_at > _SIZES_AGE_S:
            self._sizes.forget()
            self._sizes_at = now
        return self._sizes.of(view, ranges)
