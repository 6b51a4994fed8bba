"""The metrics of queries: one table of what there is, and where in a progress it is from.

Names and units are OpenTelemetry's (UCUM, annotations in braces); `prometheus_name` makes
Prometheus' of them. Labels are bounded: `query` is the query's name, or its id, `source` the place
of the source in the query; topic and partition are told of so many partitions only as were asked
for. A run has no label, since there is another one after every restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any, Final

from keyrange.observing.model.query_progress import SourceProgress


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. `origin` says where in the progress it is from, "" for what is seen from outside."""

    name: str
    kind: MetricKind
    unit: str
    help: str
    origin: str
    labels: tuple[str, ...]


# What reads a figure of a query's progress, or of a source's; None where it is not told.
Reading = Callable[[Any], float | None]

_QUERY: Final = ("query",)
_SOURCE: Final = ("query", "source")
_PARTITION: Final = ("query", "source", "topic", "partition")
# Where what begins with this attribute is from; of others the path says it.
_ORIGINS: Final = {
    "-": "",
    "records": "numInputRows, observedMetrics.keyrange.records",
    "duration_ms": "batchDuration",
    "batch_id": "batchId",
    "result": "QueryProgress.result",
    "merged": "QueryProgress.merged",
    "lag": "endOffset, latestOffset",
    "commit_lag": "endOffset, latestOffset, commits.committed",
}


def _attribute(path: str, parts: int) -> Reading:
    """What a progress has at a path of attributes, of which so many `parts` make one; None where
    one of them is None. `-` stands for each progress once."""
    names = path.split(".")

    def read(it: Any) -> float | None:
        value: float | None = reduce(lambda at, name: at and getattr(at, name), names, it)
        return value / parts if value is not None and parts > 1 else value

    return read if path != "-" else lambda _: 1


def _part(path: str, parts: int) -> Reading:
    """What the planning process says of a source. -1 ms says that no volume fills up."""
    part, _, name = path.partition(".")

    def read(it: SourceProgress) -> float | None:
        value = it.number(part, name)
        if value is None or parts == 1:
            return value
        return value / parts if value >= 0 else None

    return read


def _origin(path: str) -> str:
    first, _, name = path.partition(".")
    if first == "work":
        return f"observedMetrics.keyrange.{name.replace('.', '_')}"
    return _ORIGINS.get(first, path)


def _rows(
    labels: tuple[str, ...], table: str, reading: Callable[[str, int], Reading] = _attribute
) -> tuple[tuple[Metric, Reading], ...]:
    """Metrics with what reads them. A line of the table is `kind name unit path: what it is`, with
    how many of the figure make one of the unit behind the path; an indented line goes on."""
    found = []
    for line in re.split(r"\n(?! )", table.strip()):
        row, _, text = " ".join(line.split()).partition(": ")
        kind, name, unit, path = row.split()
        path, _, parts = path.partition("/")
        metric = Metric(f"keyrange.{name}", MetricKind(kind), unit, text, _origin(path), labels)
        found.append((metric, reading(path, int(parts or 1))))
    return tuple(found)


_SEEN: Final = """
gauge query.running 1 -: 1 while the query runs, 0 when it has ended.
counter query.failures {run} -: Runs that ended with an error.
gauge last_batch.timestamp s -: Time since 1970 at which the last batch ended.
"""
_OF_PARTITION: Final = """
gauge partition.lag {offset} lag: Read lag of a partition.
counter partition.lost {offset} losses.found: Lost offsets of a partition.
"""
RUNNING, FAILURES, FINISHED_AT = (metric for metric, _ in _rows(_QUERY, _SEEN))
PARTITION_LAG, PARTITION_LOST = (metric for metric, _ in _rows(_PARTITION, _OF_PARTITION))

OF_QUERY: Final = _rows(
    _QUERY,
    """
counter batches {batch} -: Finished batches.
counter records {record} records: Records of the finished batches.
counter busy.time s duration_ms/1000: Time in finished batches.
gauge last_batch.number 1 batch_id: Number of the last finished batch.
gauge last_batch.records {record} records: Records of the last finished batch.
gauge last_batch.duration s duration_ms/1000: Duration of the last finished batch.
counter failed.records {record} result.failed: Deliveries of records that failed.
counter dead.records {record} result.dead: Records that became dead letters.
counter merged.updated {row} merged.updated: Rows of a table with keys that merges updated.
counter merged.inserted {row} merged.inserted: Rows of a table with keys that merges inserted.
counter merged.deleted {row} merged.deleted: Rows of a table with keys that merges deleted.
counter written.rows {row} work.rows: Rows that the tasks of a job wrote.
counter written.files {file} work.files: Files that the tasks of a job wrote.
counter written.bytes By work.bytes: Bytes of these files.
counter state.looked_up {key} work.state.looked_up: Keys whose state was looked up.
counter state.found {key} work.state.found: Of these, keys that had state.
counter state.changed {key} work.state.changed: Keys whose state changed.
counter state.written.bytes By work.state.written_bytes: Bytes of changes of state in files.
counter state.merged.bytes By work.state.merged_bytes: Bytes of state that merging wrote once more.
counter state.restored.bytes By work.state.restored_bytes: Bytes of files of state copied to hosts.
counter state.restored.time s work.state.restored_ms/1000: Time of tasks in these copies.
counter timers.fired {timer} work.state.timers_fired: Timers of keys that fired.
counter timers.failed {timer} work.state.timers_failed: Timers for which a function raised.
counter late {record} work.state.late: Records before the watermark of their partition.
counter ahead {record} work.state.ahead: Records whose event time is beyond the clock.
""",
)

# Of a source, as of when its batch was planned.
OF_SOURCE: Final = (
    *_rows(
        _SOURCE,
        """
gauge lag {offset} lag.total_offsets: Read lag of all partitions.
gauge max_lag {offset} lag.max_offsets: Largest read lag of a partition.
gauge commit_lag {offset} commit_lag.total_offsets: Commit lag of all partitions.
""",
    ),
    *_rows(
        _SOURCE,
        """
gauge tasks {task} plan.tasks: Tasks of the previous batch.
gauge key_ranges {range} plan.keyRanges: Key ranges of the previous batch; 0 without a split.
gauge pending_records {record} commits.pending: Records that were delivered and are not done.
gauge held 1 commits.partitionsHeld: Partitions with key ranges that receive fewer records.
gauge max_range_lag {offset} commits.maxRangeLag: How far the slowest key range is behind the read
    position.
gauge state.rows {row} state.rows: Rows of state in files: at least one for each key.
gauge state.bytes By state.bytes: Bytes of state in files.
gauge state.runs {run} state.runs: Sorted runs of state in files.
gauge watermark.lag s state.watermarkLagSeconds: How far the watermark that is farthest back is
    behind the clock.
gauge timers.await_records {partition} state.timersAwaitRecords: Partitions in which timers wait for
    a pending record of their key.
gauge timers.await_retry {partition} state.timersAwaitRetry: Partitions in which a timer that failed
    waits to fire again, and records and timers of its key for it.
gauge members {member} members.members: Members of the group.
gauge reached_members {member} members.reached: Members that can reach the driver.
gauge epoch 1 members.epoch: Epoch of the assignment of key ranges.
gauge throttle_factor 1 volumes.throttleFactor: The volume guard's factor, 0 to 1.
gauge fallback 1 volumes.fallback: 1 while the guard's fallback is in force.
gauge volumes.violated {volume} volumes.violated: Volumes at the limit.
gauge guard.active_brokers {broker} volumes.activeBrokers: Brokers of the guard's last check.
gauge guard.active_log_dirs {dir} volumes.activeLogDirs: Log directories of the guard's last check.
gauge volumes.held {partition} volumes.partitionsHeld: Partitions that the guard holds back.
gauge volumes.full.time s volumes.timeToFullMs/1000: Time until the first volume is full.
""",
        _part,
    ),
)

# Of the batch before: so each plan is counted once, one batch late.
OF_PLAN: Final = _rows(
    _SOURCE,
    """
counter read.bytes By plan.bytes: Bytes of log that tasks read, estimated by a sample.
counter fetched.bytes By plan.fetchedBytes: Bytes that brokers sent for the same log.
counter portions.own {portion} members.ownPortions: Work units read by their owner.
counter portions.foreign {portion} members.foreignPortions: Work units read by another member.
counter portions.unowned {portion} members.unownedPortions: Work units without a present owner.
counter portions.standby {portion} members.standbyPortions: Work units read by a standby, which has
    copies of their state.
""",
    _part,
)

# Told as sums of a run, which begin anew with the next one.
OF_RUN: Final = _rows(
    _SOURCE,
    """
counter mirror.committed {commit} mirror.committed: Commits to the Kafka group.
counter mirror.refused {commit} mirror.refused: Commits that Kafka refused.
counter mirror.failed {commit} mirror.failed: Commits that failed.
counter lost {offset} losses.offsets: Offsets that were gone before a task read them.
counter guard.limit_violated {volume} volumes.limitViolated: Volumes at the limit, each once a
    check.
counter guard.fallback_applied {time} volumes.fallbackApplied: How often the guard's fallback came
    into force.
""",
    _part,
)

TABLE: Final[tuple[Metric, ...]] = (
    RUNNING,
    FAILURES,
    *(metric for metric, _ in OF_QUERY),
    FINISHED_AT,
    *(metric for metric, _ in (*OF_SOURCE, *OF_PLAN, *OF_RUN)),
    PARTITION_LAG,
    PARTITION_LOST,
)

_UNIT_WORDS: Final = {"s": "seconds", "By": "bytes"}


def prometheus_name(metric: Metric) -> str:
    """The name in Prometheus, without the `_total` of counters, which its client adds."""
    name = re.sub(r"[^a-zA-Z0-9]", "_", metric.name)
    unit = _UNIT_WORDS.get(metric.unit, "")
    return f"{name}_{unit}" if unit and not name.endswith(f"_{unit}") else name
