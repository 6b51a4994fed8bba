"""The tables of the pages: which figure stands in which row, and what the row is called."""

from __future__ import annotations

from collections.abc import Mapping

from bench.sink_tables import SINK_TABLES
from bench.table import Table
from bench.table import one_figure_a_row as _list
from bench.time_tables import TIME_TABLES
from bench.value_tables import VALUE_TABLES


def _ingest() -> Table:
    codecs = (("1KB", "lz4"), ("1KB", "zstd"), ("1KB", "none"), ("200B", "none"), ("200B", "lz4"))
    columns = ("vs_jvm", "keyrange.mrec_per_second", "jvm.mrec_per_second")
    headings = ("what is written", "beside the JVM connector", "`keyrange.job`", "JVM connector")
    rows = {
        f"records as they are, {_size(size)}, {codec}": tuple(
            f"ingest.delta.{size}.{codec}.{column}" for column in columns
        )
        for size, codec in codecs
    }
    rows["JSON read into columns, 200 B, none"] = tuple(
        f"ingest.json.200B.{column}" for column in columns
    )
    rows["a Python function of one record, 200 B, none"] = (
        "process.record.vs_jvm_udf",
        "process.record.keyrange.mrec_per_second",
        "process.record.jvm_udf.mrec_per_second",
    )
    return Table("ingest", headings, rows)


def _calls() -> Table:
    kinds = ("GET", "HEAD", "LIST", "PUT", "DELETE")
    ways = {"whole": "whole batches", "individual": "individual commits, with dead letters"}
    calls = "commits.s3.calls_per_batch"
    rows = {
        label: (
            f"{calls}.{way}",
            *(f"{calls}.{way}.{kind.lower()}" for kind in kinds),
        )
        for way, label in ways.items()
    }
    headings = ("calls of a batch of `keyrange.job`", "all", *kinds)
    return Table("commits_s3", headings, rows)


def _size(name: str) -> str:
    """`1KB` as it is read."""
    return name.replace("B", " B").replace("K ", " K")


def _read() -> Table:
    columns = ("keyrange.mrec_per_second", "vs_jvm", "vs_jvm_tuned", "vs_ceiling")
    cells = [(size, codec) for size in ("200B", "1KB") for codec in ("none", "lz4", "zstd")]
    headings = (
        "values, codec",
        "keyrange",
        "beside the JVM connector",
        "beside it tuned",
        "beside the ceiling",
    )
    rows = {
        f"{_size(size)}, {codec}": tuple(f"read.{size}.{codec}.{column}" for column in columns)
        for size, codec in cells
    }
    return Table("read", headings, rows)


TABLES: Mapping[str, Table] = {
    **TIME_TABLES,
    **SINK_TABLES,
    "ingest": _ingest(),
    "ingest_floor": _list(
        "ingest",
        {
            "ingest.delta.1KB.lz4.vs_floor": "records as they are, 1 KB, lz4, beside the floor",
            "ingest.delta.1KB.lz4.floor.mrec_per_second": "the floor",
            "process.record.jvm_pandas.mrec_per_second": (
                "the function of one record, JVM connector with `mapInPandas`"
            ),
        },
    ),
    **VALUE_TABLES,
    "latency_delta": _list(
        "latency_delta",
        {
            f"latency.delta.{share}.{figure}": f"until delta-rs can read a record, {share}, {side}"
            for share in ("p50", "p99")
            for figure, side in (
                ("vs_jvm", "beside the JVM connector"),
                ("keyrange.ms", "`keyrange.job`"),
                ("jvm.ms", "JVM connector"),
            )
        },
    ),
    "query": _list(
        "query",
        {
            "query.start.seconds": "from `start()` to the first batch's end, `availableNow`",
            "query.start.individual.seconds": "the same with individual commits",
            "query.start.jvm.seconds": "the same, JVM connector",
            "query.available_now.vs_jvm": "the whole run, beside the JVM connector",
            "query.available_now.seconds": "the whole run",
            "query.available_now.jvm.seconds": "the whole run, JVM connector",
        },
    ),
    "state": _list(
        "state",
        {
            "state.record.vs_jvm_aggregate": (
                "count by key, record by record, beside Spark's count in the JVM"
            ),
            "state.arrow.vs_jvm_aggregate": "the same in Arrow batches",
            "state.record.vs_apply_in_pandas": "record by record, beside `applyInPandasWithState`",
            "state.record.vs_transform_with_state": (
                "record by record, beside `transformWithStateInPandas`"
            ),
            "state.record.records_per_second": "records a second, record by record",
            "state.arrow.records_per_second": "records a second, Arrow batches",
            "state.jvm_aggregate.records_per_second": "records a second, Spark's count",
            "state.shuffle.bytes": "bytes that are shuffled",
            "state.batch.p50.vs_stateless": (
                "a batch of 1,000 records, beside the same job without state"
            ),
            "state.changelog.bytes_over_changed": "bytes written, for each byte of changed state",
            "state.restart.restored_bytes": "bytes that are read again after a restart",
            "state.restart.first_batch.few_keys.vs_running": (
                "first batch after a restart, 10,000 keys, beside the next ones"
            ),
            "state.restart.first_batch.many_keys.vs_running": "the same, 10 million keys",
            "state.move.amplification": "bytes read for keys that move, for each byte of them",
            "state.restore.mb_per_second": "copies of state made from files, on one core",
            "state.worker.peak_rss.mb": "memory of a task, 10 million keys",
            "state.worker.peak_rss.anonymous.mb": "of it, what is no mapped file",
        },
    ),
    "read": _read(),
    "latency": _list(
        "latency",
        {
            "latency.p50.vs_jvm": "latency of a micro-batch, p50, beside the JVM connector",
            "latency.p99.vs_jvm": "latency of a micro-batch, p99, beside the JVM connector",
            "latency.p50.keyrange.ms": "latency, p50, keyrange",
            "latency.p50.jvm.ms": "latency, p50, JVM connector",
            "latency.idle.core_share": "processor time of an idle stream reader",
        },
    ),
    "parts": _list(
        "parts",
        {
            "fetch.mb_per_second": "fetch alone, by the client's processor time",
            "fetch.wall.mb_per_second": "fetch alone, by the clock",
            "decode.mrec_per_second": "decode alone, 200-byte values",
        },
    ),
    "task": _list(
        "parts",
        {
            "task.1KB.lz4.us": "read a record, all of it",
            "task.1KB.lz4.fetch.us": "receive and parse the answer",
            "task.1KB.lz4.scan.us": "heads of record batches, with CRC32C",
            "task.1KB.lz4.decompress.us": "decompress",
            "task.1KB.lz4.index.us": "find each record's key, value and headers",
            "task.1KB.lz4.gather.us": "copy them into Arrow buffers",
            "task.1KB.lz4.handover.us": "write the Arrow batch to the other process",
            "task.1KB.lz4.rest.us": "the rest",
            "task.1KB.lz4.write.us": "in a job: write it to a Parquet file instead",
            "task.1KB.lz4.snappy.us": "compress its value with snappy alone",
        },
    ),
    "decompress": _list(
        "decompress",
        {
            f"decompress.{codec}.mb_per_second": f"decompression alone, {codec}, batches of 150 KB"
            for codec in ("snappy", "lz4", "zstd")
        },
    ),
    "plan": _list("plan", {"plan.10k.seconds": "first plan of 10,000 partitions, from a broker"}),
    "worker": _list(
        "worker",
        {
            "worker.peak_rss.mb": "memory of a task, records up to 1 MB, the highest of all runs",
            "worker.peak_rss.50mb_records.mb": "the same, records of 50 MB",
            "worker.peak_rss.writing.mb": (
                "memory of a task of `keyrange.job`, records up to 1 MB, the highest of all runs"
            ),
            "worker.cold_start.seconds": (
                "first task of a host (it compiles kernels), over a warm one"
            ),
            "worker.cold_start.cached.seconds": (
                "first task of a worker, kernels cached, over a warm one"
            ),
        },
    ),
    "keyrange": _list(
        "keyrange",
        {
            **{
                f"keyrange.amplification.{count}": f"bytes sent over bytes of log, {count} ranges"
                for count in (4, 16, 64)
            },
            "keyrange.throughput.1p16r.vs_partition": (
                "16 ranges of 1 partition, beside `splitBy=partition` on 4"
            ),
            "keyrange.throughput.4p16r.vs_partition": (
                "16 ranges on each of 4 partitions, beside the same"
            ),
            "keyrange.keyed.vs_jvm_repartition": (
                "work by key in the task that reads (`mapInArrow` as an option), beside the JVM"
                " connector with `repartition` and sort"
            ),
            "keyrange.keyed.mapped_in_spark.vs_jvm_repartition": (
                "the same work with `DataFrame.mapInArrow`"
            ),
            "keyrange.shuffle.bytes": "bytes shuffled for it",
            "keyrange.shuffle.jvm.bytes": "bytes shuffled by the JVM connector's query",
            "keyrange.speedup.1p": (
                "20 microseconds of Python a record, 1 partition, beside `splitBy=partition`"
            ),
            "keyrange.speedup.ceiling": (
                "the same work on rows that Spark makes, in 2 tasks beside 1"
            ),
        },
    ),
    "commits": _list(
        "commits",
        {
            "commits.p50.ms": "commit of a batch with 64 key ranges and 1,000 pending records, p50",
            "commits.p99.ms": "the same, p99",
            "commits.after_50k.vs_50": "the same in a table of 50,000 commits, p50",
            "commits.beside_compaction.p99.ms": "p99 while the table is compacted beside",
            "commits.startup_50k.seconds": "opening of a table of 50,000 commits",
        },
    ),
    "commits_scale": _list(
        "commits_scale",
        {
            "commits.scale.10000x4.ms": "plan, verdict and commit of a batch, all have new records",
            "commits.scale.10000x4.plan.ms": "the plan of it",
            "commits.scale.10000x4.verdict.ms": "the verdict of it",
            "commits.scale.10000x4.commit.ms": "the commit of it",
            "commits.scale.10000x4.hundredth.ms": "the same where one partition in 100 has some",
            "commits.scale.open.10000x4.seconds": "opening of the table",
            "commits.scale.planning.10000x16.rss_mb": "memory of planning, 16 key ranges each",
        },
    ),
    "commits_work": _list(
        "commits_work",
        {
            "commits.acknowledge.mrec_per_core": "acknowledging",
            "commits.process.arrow.mrec_per_core": "`process` by Arrow batch",
            "commits.process.record.mrec_per_core": "`process` record by record",
        },
    ),
    "commits_throughput": _list(
        "commits_throughput",
        {
            "commits.throughput.spark_sink.vs_batch": (
                "whole query, `process` and a write by Spark, beside batch commits"
            ),
            "commits.throughput.spark_sink.vs_materialized": (
                "the same, beside batch commits of a batch that the job materialises"
            ),
        },
    ),
    "commits_s3": _calls(),
    "commits_s3_waits": Table(
        "commits_s3",
        ("a batch at 50 ms a call", "longer than on this machine", "than at 0 ms a call"),
        {
            "individual commits, with dead letters": (
                "commits.s3.batch.p50.individual",
                "commits.s3.batch.p50.individual.calls",
            )
        },
    ),
    "commits_slow_key": _list(
        "commits_slow_key",
        {
            "commits.slow_key.p99.vs_normal": (
                "a key whose records sleep 60 s: p99 latency of the other key ranges"
            ),
        },
    ),
    "members": _list(
        "members",
        {
            "members.rolling.moved_ranges": (
                "20 rolling restarts, static names: share of key ranges that moved"
            ),
            "members.rolling.reassignments": "assignments in the same restarts",
            "members.rolling.moved_ranges.dynamic": "share that moved, dynamic names",
            "members.rolling.reassignments.dynamic": "assignments, dynamic names",
            "members.owner_share": "splits read by their owners, the lower of 2 and 4 a core",
            "members.plan.ms": "planning of a batch of 64 tasks",
            "members.bind.ms_per_task": "binding of a task, over the socket",
            "members.batch.off.1.ms": "a batch, unpinned",
            "members.batch.prefer.2.ms": "a batch, pinned, 2 splits a core",
            "members.batch.prefer.4.ms": "a batch, pinned, 4 splits a core",
            "members.process.rss_mb": "memory of a member process",
            "members.process.core_share": "its processor time beside batches",
        },
    ),
    "scale": _list(
        "scale",
        {
            "members.scale.100.driver_core_share": (
                "processor time of the process that plans, without Spark's JVM"
            ),
            "members.scale.100.questions_per_second": "requests of its tasks",
            "members.scale.100.answer.p50.ms": "time for an answer, p50",
            "members.scale.100.answer.p99.ms": "the same, p99",
            "members.scale.100.look.ms": "request for the group's members between two batches",
            "members.scale.100.plan.seconds": (
                "planning of 10,000 partitions, without requests to brokers"
            ),
            "members.scale.100.reassign.seconds": "reassignment of key ranges, an executor less",
            "plan.100k.seconds": "planning of 100,000 partitions, without requests to brokers",
            "plan.100k.ranges.seconds": "planning of 10,000 partitions with 100,000 key ranges",
            "plan.100k.pinned.seconds": "planning of 100,000 partitions, pinned to 100 executors",
            "plan.100k.assign.seconds": "assignment of 100,000 partitions to 100 executors",
        },
    ),
    "consumer": _list(
        "consumer",
        {
            "consumer.arrow.vs_kafka_python": "consumer, Arrow batches, beside kafka-python",
            "consumer.arrow.mrec_per_second": "consumer, Arrow batches",
            "consumer.records.vs_kafka_python": "consumer, record by record, beside kafka-python",
        },
    ),
    "consumer_transaction": _list(
        "consumer_transaction",
        {
            "consumer.transaction.vs_kafka_python": "Arrow batches, beside kafka-python",
            "consumer.transaction.arrow.mrec_per_second": "Arrow batches",
            "consumer.transaction.records.vs_kafka_python": "record by record, beside kafka-python",
        },
    ),
    "state_reader": _list(
        "state_reader",
        {
            "state.reader.get.p50.ms": "`keyrange.state_reader`: a key of a million, p50",
            "state.reader.get.p99.ms": "the same, p99",
            "state.serve.requests_per_second": "`keyrange state serve`: requests for a key",
            "state.serve.requests_per_core_second": "the same for a second of the server's CPU",
        },
    ),
    "volumes": _list(
        "volumes",
        {
            "volumes.check_1000.cpu_seconds": "processor time of a check of 1,000 log dirs",
            "volumes.check_1000.stretch.ms": "the longest that it keeps the interpreter",
            "volumes.batch_delay.p50.ms": "what a check adds to the planning of a batch, p50",
            "volumes.batch_delay.ms": "the same, p99",
            "volumes.plan.beside.p50.ms": "planning beside checks that never cease, p50",
            "volumes.plan.alone.p50.ms": "planning without checks, p50",
            "volumes.longest_mute.seconds": (
                "the longest wait of a producer that a guard slows (bound: 60 s)"
            ),
        },
    ),
}
