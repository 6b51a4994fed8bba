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

from keyrange.observing.model.query_progress import QueryProgress, SourceProgress


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


OfQuery = Callable[[QueryProgress], float | None]
OfSource = Callable[[SourceProgress], float | None]

_QUERY: Final = ("query",)
_SOURCE: Final = ("query", "source")
_PARTITION: Final = ("query", "source", "topic", "partition")
_ENDS: Final = "endOffset, latestOffset"
_RESULT: Final = "QueryProgress.result"
_MERGED: Final = "QueryProgress.merged"
_RECORDS: Final = "numInputRows, observedMetrics.keyrange.records"


def _count(
    name: str, unit: str, text: str, origin: str = "", labels: tuple[str, ...] = _QUERY
) -> Metric:
    return Metric(f"keyrange.{name}", MetricKind.COUNTER, unit, text, origin, labels)


def _gauge(
    name: str, unit: str, text: str, origin: str = "", labels: tuple[str, ...] = _QUERY
) -> Metric:
    return Metric(f"keyrange.{name}", MetricKind.GAUGE, unit, text, origin, labels)


RUNNING = _gauge("query.running", "1", "1 while the query runs, 0 when it has ended.")
FAILURES = _count("query.failures", "{run}", "Runs that ended with an error.")
FINISHED_AT = _gauge("last_batch.timestamp", "s", "Time since 1970 at which the last batch ended.")
PARTITION_LAG = _gauge("partition.lag", "{offset}", "Read lag of a partition.", _ENDS, _PARTITION)
PARTITION_LOST = _count(
    "partition.lost", "{offset}", "Lost offsets of a partition.", "losses.found", _PARTITION
)


def _of(path: str, parts: int = 1) -> Callable[[Any], float | None]:
    """What a progress has at a path of attributes, of which so many `parts` make one; None where
    one of them is None."""
    names = path.split(".")

    def read(it: Any) -> float | None:
        value: float | None = reduce(lambda at, name: at and getattr(at, name), names, it)
        return value / parts if value is not None and parts > 1 else value

    return read


# What the tasks of a `keyrange.job` wrote, and did with the state of keys: name, unit, what it is,
# where it is, and in which part of its unit.
_WORK: Final = (
    ("written.rows", "{row}", "Rows that the tasks of a job wrote.", "rows", 1),
    ("written.files", "{file}", "Files that the tasks of a job wrote.", "files", 1),
    ("written.bytes", "By", "Bytes of these files.", "bytes", 1),
    ("state.looked_up", "{key}", "Keys whose state was looked up.", "state.looked_up", 1),
    ("state.found", "{key}", "Of these, keys that had state.", "state.found", 1),
    ("state.changed", "{key}", "Keys whose state changed.", "state.changed", 1),
    ("state.written.bytes", "By", "Bytes of changes of state in files.", "state.written_bytes", 1),
    (
        "state.merged.bytes",
        "By",
        "Bytes of state that merging wrote once more.",
        "state.merged_bytes",
        1,
    ),
    (
        "state.restored.bytes",
        "By",
        "Bytes of files of state copied to hosts.",
        "state.restored_bytes",
        1,
    ),
    ("state.restored.time", "s", "Time of tasks in these copies.", "state.restored_ms", 1000),
    ("timers.fired", "{timer}", "Timers of keys that fired.", "state.timers_fired", 1),
    ("timers.failed", "{timer}", "Timers for which a function raised.", "state.timers_failed", 1),
    ("late", "{record}", "Records before the watermark of their partition.", "state.late", 1),
    ("ahead", "{record}", "Records whose event time is beyond the clock.", "state.ahead", 1),
)
OF_QUERY: Final[tuple[tuple[Metric, OfQuery], ...]] = (
    (_count("batches", "{batch}", "Finished batches."), lambda _: 1),
    (
        _count("records", "{record}", "Records of the finished batches.", _RECORDS),
        _of("records"),
    ),
    (
        _count("busy.time", "s", "Time in finished batches.", "batchDuration"),
        _of("duration_ms", 1000),
    ),
    (
        _gauge("last_batch.number", "1", "Number of the last finished batch.", "batchId"),
        _of("batch_id"),
    ),
    (
        _gauge("last_batch.records", "{record}", "Records of the last finished batch.", _RECORDS),
        _of("records"),
    ),
    (
        _gauge("last_batch.duration", "s", "Duration of the last finished batch.", "batchDuration"),
        _of("duration_ms", 1000),
    ),
    (
        _count("failed.records", "{record}", "Deliveries of records that failed.", _RESULT),
        _of("result.failed"),
    ),
    (
        _count("dead.records", "{record}", "Records that became dead letters.", _RESULT),
        _of("result.dead"),
    ),
    *(
        (
            _count(f"merged.{name}", "{row}", f"Rows of a table with keys {text}.", _MERGED),
            _of(f"merged.{name}"),
        )
        for name, text in (
            ("updated", "that merges updated"),
            ("inserted", "that merges inserted"),
            ("deleted", "that merges deleted"),
        )
    ),
    *(
        (
            _count(name, unit, text, f"observedMetrics.keyrange.{path.replace('.', '_')}"),
            _of(f"work.{path}", parts),
        )
        for name, unit, text, path, parts in _WORK
    ),
)


def _of_part(origin: str) -> OfSource:
    part, _, name = origin.partition(".")
    return lambda it: it.number(part, name)


def _full_in(it: SourceProgress) -> float | None:
    """In seconds; -1 ms says that no volume fills up."""
    found_ms = it.number("volumes", "timeToFullMs")
    return found_ms / 1000 if found_ms is not None and found_ms >= 0 else None


# Of a source, as of when its batch was planned: name, unit, what it is, and where it is from.
_PARTS: Final = (
    ("tasks", "{task}", "Tasks of the previous batch.", "plan.tasks"),
    (
        "key_ranges",
        "{range}",
        "Key ranges of the previous batch; 0 without a split.",
        "plan.keyRanges",
    ),
    (
        "pending_records",
        "{record}",
        "Records that were delivered and are not done.",
        "commits.pending",
    ),
    (
        "held",
        "1",
        "Partitions with key ranges that receive fewer records.",
        "commits.partitionsHeld",
    ),
    (
        "max_range_lag",
        "{offset}",
        "How far the slowest key range is behind the read position.",
        "commits.maxRangeLag",
    ),
    ("state.rows", "{row}", "Rows of state in files: at least one for each key.", "state.rows"),
    ("state.bytes", "By", "Bytes of state in files.", "state.bytes"),
    ("state.runs", "{run}", "Sorted runs of state in files.", "state.runs"),
    (
        "watermark.lag",
        "s",
        "How far the watermark that is farthest back is behind the clock.",
        "state.watermarkLagSeconds",
    ),
    ("members", "{member}", "Members of the group.", "members.members"),
    ("reached_members", "{member}", "Members that can reach the driver.", "members.reached"),
    ("epoch", "1", "Epoch of the assignment of key ranges.", "members.epoch"),
    ("throttle_factor", "1", "The volume guard's factor, 0 to 1.", "volumes.throttleFactor"),
    ("fallback", "1", "1 while the guard's fallback is in force.", "volumes.fallback"),
    ("volumes.violated", "{volume}", "Volumes at the limit.", "volumes.violated"),
    (
        "guard.active_brokers",
        "{broker}",
        "Brokers of the guard's last check.",
        "volumes.activeBrokers",
    ),
    (
        "guard.active_log_dirs",
        "{dir}",
        "Log directories of the guard's last check.",
        "volumes.activeLogDirs",
    ),
    (
        "volumes.held",
        "{partition}",
        "Partitions that the guard holds back.",
        "volumes.partitionsHeld",
    ),
)
OF_SOURCE: Final[tuple[tuple[Metric, OfSource], ...]] = (
    (
        _gauge("lag", "{offset}", "Read lag of all partitions.", _ENDS, _SOURCE),
        _of("lag.total_offsets"),
    ),
    (
        _gauge("max_lag", "{offset}", "Largest read lag of a partition.", _ENDS, _SOURCE),
        _of("lag.max_offsets"),
    ),
    (
        _gauge(
            "commit_lag",
            "{offset}",
            "Commit lag of all partitions.",
            f"{_ENDS}, commits.committed",
            _SOURCE,
        ),
        _of("commit_lag.total_offsets"),
    ),
    *((_gauge(*row, _SOURCE), _of_part(row[-1])) for row in _PARTS),
    (
        _gauge(
            "volumes.full.time",
            "s",
            "Time until the first volume is full.",
            "volumes.timeToFullMs",
            _SOURCE,
        ),
        _full_in,
    ),
)

# Of the batch before: so each plan is counted once, one batch late.
_PLANS: Final = (
    ("read.bytes", "By", "Bytes of log that tasks read, estimated by a sample.", "plan.bytes"),
    ("fetched.bytes", "By", "Bytes that brokers sent for the same log.", "plan.fetchedBytes"),
    ("portions.own", "{portion}", "Work units read by their owner.", "members.ownPortions"),
    (
        "portions.foreign",
        "{portion}",
        "Work units read by another member.",
        "members.foreignPortions",
    ),
    (
        "portions.unowned",
        "{portion}",
        "Work units without a present owner.",
        "members.unownedPortions",
    ),
    (
        "portions.standby",
        "{portion}",
        "Work units read by a standby, which has copies of their state.",
        "members.standbyPortions",
    ),
)
OF_PLAN: Final[tuple[tuple[Metric, OfSource], ...]] = tuple(
    (_count(*row, _SOURCE), _of_part(row[-1])) for row in _PLANS
)

# Told as sums of a run, which begin anew with the next one.
_SUMS: Final = (
    ("mirror.committed", "{commit}", "Commits to the Kafka group.", "mirror.committed"),
    ("mirror.refused", "{commit}", "Commits that Kafka refused.", "mirror.refused"),
    ("mirror.failed", "{commit}", "Commits that failed.", "mirror.failed"),
    ("lost", "{offset}", "Offsets that were gone before a task read them.", "losses.offsets"),
    (
        "guard.limit_violated",
        "{volume}",
        "Volumes at the limit, each once a check.",
        "volumes.limitViolated",
    ),
    (
        "guard.fallback_applied",
        "{time}",
        "How often the guard's fallback came into force.",
        "volumes.fallbackApplied",
    ),
)
OF_RUN: Final[tuple[tuple[Metric, OfSource], ...]] = tuple(
    (_count(*row, _SOURCE), _of_part(row[-1])) for row in _SUMS
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
