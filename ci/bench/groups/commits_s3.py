"""Group `commits_s3`: how many calls of the object store a batch makes, and how long it waits.

`keyrange.job` with whole batches, and with individual commits where each batch gives some records
up. Table, checkpoint and commit table are on an S3 server of this machine, which counts. The first
batches are left out: they open what stays open. Spark's own calls are not counted, and those for
its checkpoint are not slowed down where each call takes 50 ms.
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
SPARK = "Spark"
DELAY_MS = 50.0
KINDS = ("GET", "HEAD", "LIST", "PUT", "DELETE")
INDIVIDUAL = {
    "commitMode": "individual",
    "maxDeliveries": "2",
    "redelivery.backoff": "10ms",
    "availableNow.redelivery": "drain",
}
WAYS = {"whole": digest_record, "individual": digest_or_fail}
NAME = "commits.s3.calls_per_batch"
WAIT = "commits.s3.batch.p50"


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
    batches = bench.pick(full=12, quick=8, tiny=4)
    rows = 200 * batches
    records = topics.records(spark, rows, 200, PARTITIONS)
    topic = topics.filled(bench.bootstrap_servers, "s3", records, PARTITIONS)
    for way in WAYS:
        found: dict[str, list[float]] = {}
        for _ in range(bench.runs):
            calls, _ = _calls(bench, spark, server, topic, way, rows // batches)
            for name, count in _per_batch(calls, batches).items():
                found.setdefault(name, []).append(count)
        shown = ", ".join(f"{name} {median(counts):.1f}" for name, counts in found.items())
        bench.progress(f"{way}: {shown}")
        for name, counts in found.items():
            yield from_runs(f"{NAME}.{way}{name}", counts, "calls")
        if way == "individual":
            yield from _waits(bench, spark, server, topic, way, rows // batches)
    topics.delete_topic(bench.bootstrap_servers, topic)


def _waits(
    bench: Bench, spark: SparkSession, server: S3Server, topic: str, way: str, batch_rows: int
) -> Iterator[Figure]:
    """How much longer a batch takes where each call takes a while, than on this machine, and than
    where no call does: Spark's calls for its checkpoint are in the first alone."""
    above: dict[str, list[float]] = {"": [], ".calls": []}
    for _ in range(bench.runs):
        server.set_faults(delay_ms=DELAY_MS, matching=r"^\w+ (?!\S*/checkpoint/)")
        _, slow_ms = _calls(bench, spark, server, topic, way, batch_rows)
        server.set_faults()
        _, quick_ms = _calls(bench, spark, server, topic, way, batch_rows)
        _, local_ms = _calls(bench, spark, server, topic, way, batch_rows, bench.directory)
        above[""].append(median(slow_ms) - median(local_ms))
        above[".calls"].append(median(slow_ms) - median(quick_ms))
    shown = f"{median(above['']):.0f} ms above local, {median(above['.calls']):.0f} by the calls"
    bench.progress(f"{way}: at {DELAY_MS:.0f} ms a call {shown}")
    for name, each in above.items():
        yield from_runs(f"{WAIT}.{way}{name}", each, "ms")


def _calls(
    bench: Bench,
    spark: SparkSession,
    server: S3Server,
    topic: str,
    way: str,
    batch_rows: int,
    local: Path | None = None,
) -> tuple[list[Call], list[float]]:
    """All calls of a query, and how long its batches took in ms, without the first ones."""
    name = f"{way}-{uuid.uuid4().hex[:8]}"
    own, hadoops = (
        (f"{local}/{name}",) * 2 if local else (f"s3://{BUCKET}/{name}", f"s3a://{BUCKET}/{name}")
    )
    options = bench.reading(topic) | {"maxOffsetsPerTrigger": str(batch_rows)}
    if way == "individual":
        options |= INDIVIDUAL | {"commitTable": f"{own}/commits"}
    job = keyrange.job(options, WAYS[way], DIGESTED)
    writer = job.into(f"{hadoops}/table", f"{hadoops}/checkpoint", spark=spark)
    server.calls()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    took_ms = [float(each["durationMs"]["triggerExecution"]) for each in query.recentProgress]
    return server.calls(), took_ms[FIRST:-1]


def _per_batch(calls: list[Call], batches: int) -> Mapping[str, float]:
    """What a batch calls in all and by kind, from the end of the first ones to that of the last one
    with records of its own."""
    ends = [_end_of(calls, batch_id) for batch_id in (FIRST - 1, batches - 1)]
    own = [each.kind for each in calls[ends[0] : ends[1]] if each.client != SPARK]
    counted = Counter(own)
    kinds = {f".{kind.lower()}": counted[kind] / (batches - FIRST) for kind in KINDS}
    return {"": len(own) / (batches - FIRST), **kinds}


def _end_of(calls: list[Call], batch_id: int) -> int:
    """Where Spark wrote that a batch is finished. Raises RuntimeError where it did not."""
    for at, call in enumerate(calls):
        if call.kind == "PUT" and call.key.endswith(f"/checkpoint/commits/{batch_id}"):
            return at
    raise RuntimeError(f"batch {batch_id} was not finished")


GROUP = Group(
    order=8,
    run=run,
    targets={
        f"{NAME}.individual": at_most(16),
        f"{NAME}.individual.list": at_most(0.05),
        f"{NAME}.whole": at_most(10),
        f"{WAIT}.individual": at_most(400),
    },
)
