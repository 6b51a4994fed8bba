"""Group `commits_s3`: how many calls of the object store a batch makes.

`keyrange.job` with whole batches, and with individual commits where each batch gives some records
up. Table, checkpoint and commit table are on an S3 server of this machine, which counts. The calls
of the first batches are left out: they open what stays open. Spark's own calls are not counted.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

import keyrange
from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_most, from_runs
from bench.registry import Bench, Group
from bench.work import DIGESTED, digest_or_fail, digest_record

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests"))

from platforms.s3_server import BUCKET, Call, S3Server  # noqa: E402
from platforms.s3a import confs_of  # noqa: E402

# moto is installed there alone.
PYTHON = ROOT / ".venv-platforms" / "bin" / "python"
PARTITIONS = 2
# So many batches begin a run, and their calls do not count.
FIRST = 2
CLIENTS = {"delta_rs": "delta-rs", "arrow": "Arrow"}
KINDS = ("GET", "HEAD", "LIST", "PUT", "DELETE")
INDIVIDUAL = {
    "commitMode": "individual",
    "maxDeliveries": "2",
    "redelivery.backoff": "10ms",
    "availableNow.redelivery": "drain",
}
WAYS = {"whole": digest_record, "individual": digest_or_fail}
NAME = "commits.s3.calls_per_batch"


def run(bench: Bench) -> Iterator[Figure]:
    if not PYTHON.exists():
        bench.progress("left out: the S3 server is in .venv-platforms, made by ci/platforms.sh")
        return
    with S3Server(str(PYTHON)) as server:
        # Spark's processes find the server by them, and delta-rs and Arrow in this one.
        os.environ.update(server.environment)
        with sparks.session(bench.directory, confs=confs_of(server)) as spark:
            yield from _measure(bench, spark, server)


def _measure(bench: Bench, spark: SparkSession, server: S3Server) -> Iterator[Figure]:
    batches = bench.pick(full=22, quick=12, tiny=4)
    rows = 200 * batches
    topic = topics.create_topic(bench.bootstrap_servers, "s3", PARTITIONS)
    topics.fill(
        topics.records(spark, rows, 200, PARTITIONS), bench.bootstrap_servers, topic, "none"
    )
    for way in WAYS:
        found: dict[str, list[float]] = {}
        for _ in range(bench.runs):
            calls = _calls(bench, spark, server, topic, way, rows // batches)
            for name, count in _per_batch(calls, batches).items():
                found.setdefault(name, []).append(count)
        shown = ", ".join(f"{name} {median(counts):.1f}" for name, counts in found.items())
        bench.progress(f"{way}: {shown}")
        for name, counts in found.items():
            yield from_runs(f"{NAME}.{way}.{name}", counts, "calls")
    topics.delete_topic(bench.bootstrap_servers, topic)


def _calls(
    bench: Bench, spark: SparkSession, server: S3Server, topic: str, way: str, batch_rows: int
) -> list[Call]:
    """All calls of a query."""
    home = f"{BUCKET}/{way}-{uuid.uuid4().hex[:8]}"
    options = {
        "kafka.bootstrap.servers": bench.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(batch_rows),
    }
    if way == "individual":
        options |= INDIVIDUAL | {"commitTable": f"s3://{home}/commits"}
    job = keyrange.job(options, WAYS[way], DIGESTED)
    writer = job.into(f"s3a://{home}/table", f"s3a://{home}/checkpoint", spark=spark)
    server.calls()
    writer.trigger(availableNow=True).start().awaitTermination()
    return server.calls()


def _per_batch(calls: list[Call], batches: int) -> Mapping[str, float]:
    """What a batch calls by client and kind, from the end of the first ones to that of the last
    one with records of its own."""
    ends = [_end_of(calls, batch_id) for batch_id in (FIRST - 1, batches - 1)]
    counted = Counter((each.client, each.kind) for each in calls[ends[0] : ends[1]])
    return {
        f"{name}.{kind.lower()}": counted[client, kind] / (batches - FIRST)
        for name, client in CLIENTS.items()
        for kind in KINDS
    }


def _end_of(calls: list[Call], batch_id: int) -> int:
    """Where Spark wrote that a batch is finished. Raises RuntimeError where it did not."""
    for at, call in enumerate(calls):
        if call.kind == "PUT" and call.key.endswith(f"/checkpoint/commits/{batch_id}"):
            return at
    raise RuntimeError(f"batch {batch_id} was not finished")


GROUP = Group(
    name="commits_s3",
    order=8,
    run=run,
    targets={f"{NAME}.whole.delta_rs.list": at_most(3), f"{NAME}.whole.arrow.list": at_most(1.2)},
)
