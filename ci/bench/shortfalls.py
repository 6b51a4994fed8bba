"""What figures have to reach, and what takes the time or the memory where they miss it, as profiles
say. Pages name each figure that misses its target: one without a reason is refused."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch

from bench.figures import Target
from bench.registry import all_groups
from bench.tables import TABLES

# By patterns of figures' names; the first one that fits counts.
_REASONS: Mapping[str, str] = {
    "timers.worker.peak_rss.mb": (
        "files of state are mapped, and pages of them count while there is memory; what a task "
        "needs is what is no mapped file"
    ),
    "timers.worker.peak_rss.*": (
        "the state of the keys of a batch, before and after it, and what is merged meanwhile"
    ),
    "upsert.*.peak_rss.mb": "a task holds the last row of each key until its part of a batch ends",
    "*.peak_rss.mb": (
        "more than a third is a Python process with what it imports and its compiled kernels, in "
        "every task; the rest are chunks as they were fetched, Arrow batches, and the rows that a "
        "Parquet file's writer holds"
    ),
    "ingest.delta.1KB.*": (
        "more than half of what a record costs is compression, of Parquet's pages and of Kafka's "
        "batches with a codec (see the table of a task's steps), which both sides pay for"
    ),
    "ingest.whole.1KB.*": "the disk: both sides write as fast as it takes Parquet files",
    "ingest.whole.200B.*": "half of keyrange's run is the start of a query, which a script has not",
    "process.record.*": "both sides call the same Python function for each record",
    "read.1KB.*": (
        "decompressing, and handing bytes to the JVM, are two thirds of what a record costs (see "
        "the table of a task's steps); the JVM connector pays for both too"
    ),
    "state.record.vs_jvm_aggregate": (
        "a third is the function with its `get` and `update`, called for each record in Python, "
        "and a fifth looks up what is known of keys"
    ),
    "state.record.vs_stateless": (
        "two thirds of what state adds are the function's own `get` and `update`; the other side's "
        "function does nothing"
    ),
    "state.arrow.vs_jvm_aggregate": (
        "batches are over in half a second: a third of the tasks' CPU is the start of Python's "
        "processes, as much reads records, and a fifth is the function with its state"
    ),
    "state.restore.*": (
        "one core reads and checks compressed Parquet files and writes Arrow files that can be "
        "mapped"
    ),
    "windows.tumbling.arrow.*": (
        "a fifth is the function itself, another fifth looks state up and writes it, and a tenth "
        "each groups records by key and finds timers; the other side's function does nothing"
    ),
    "latency.idle.*": "Spark asks for the newest offsets a hundred times a second",
    "kafka_to_kafka.latency.*": (
        "almost half of a batch are Spark's two checkpoint files, and a third is the start and end "
        "of a job of Python tasks; transactions are a twentieth. Spark's sink sends while its "
        "tasks read, keyrange when a batch is decided"
    ),
    "sink.kafka.1KB.*": (
        "CPU of all processes: of ours almost two thirds are Python's, and of these a quarter is "
        "lz4; the rest are Spark's JVM and the broker, which both sides pay for"
    ),
    "keyrange.throughput.1p16r.*": "each task looks at the key of every record of the partition",
    "keyrange.keyed.*": "both sides run the same Python function",
    "keyrange.speedup.*": "two tasks on rows that Spark makes gain hardly more here",
    "commits.s3.batch.p50.*": (
        "nine calls wait for each other; of the time above local two fifths are Spark's own calls "
        "for its checkpoint"
    ),
    "state.move.pause.*": (
        "the batch with which key ranges move takes as much longer as a batch takes: two hosts "
        "share two cores. Without copies the pause is short, for files are on the same disk"
    ),
}


def targets() -> dict[str, Mapping[str, Target]]:
    """Those of each group's figures."""
    return {group.name: group.targets for group in all_groups()}


def reason(name: str) -> str | None:
    return next((why for pattern, why in _REASONS.items() if fnmatch(name, pattern)), None)


def label(group: str, name: str) -> str:
    """What a figure is called on the pages. Raises KeyError where no table has it."""
    for table in TABLES.values():
        for row, names in table.rows.items():
            if table.group == group and name in names:
                heading = table.columns[1 + names.index(name)]
                return row if len(names) == 1 else f"{row}: {heading}"
    raise KeyError(name)
