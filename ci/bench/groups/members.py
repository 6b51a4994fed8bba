"""Group `members`: what it takes to keep key ranges with their executors, and how well they stay.

Two executors of one core each on this host, restarted with kill -9 under load; and the cost of
planning and binding by itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench import spark as sparks
from bench import topics
from bench.figures import Figure, at_least, at_most, from_runs
from bench.registry import Bench, Group
from keyrange.members.binding.caller import Caller
from keyrange.members.binding.service import BindingService
from keyrange.members.model.assignment import Assignment, assign, moved
from keyrange.members.model.late_binding import PinRule
from keyrange.members.model.pinned_plan import Shape, plan_pinned
from keyrange.members.table.assignments import open_assignments
from keyrange.model.offset_splits import write_split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options.members import MEMBERS_SUFFIX
from keyrange.ranges.sharing.shared_directory import name_of

PARTITIONS = 4
_PORTIONS = 64
_MEMBER = "keyrange.members.process"


def run(bench: Bench) -> Iterator[Figure]:
    yield from _binding(bench)
    with sparks.session(bench.directory, "local-cluster[2,1,1024]", confs=_confs()) as spark:
        yield from _owners(bench, spark)
        yield from _rolling(bench, spark)


def _binding(bench: Bench) -> Iterator[Figure]:
    """Planning a batch of 64 portions and binding its 64 tasks, over the socket."""
    partitions = [TopicPartition("bench", number) for number in range(_PORTIONS)]
    slots = {f"g-{number}": 4.0 for number in range(8)}
    assignment = assign(dict.fromkeys(partitions, 1.0), slots, None, 1)
    ranges = dict.fromkeys(partitions, OffsetRange(0, 1_000_000))
    service = BindingService("127.0.0.1", 0)
    plans: list[float] = []
    asks: list[float] = []
    try:
        for number in range(-1, bench.pick(full=20, quick=10, tiny=2)):
            started = time.perf_counter()
            portions = plan_pinned(
                ranges,
                assignment.owners,
                dict.fromkeys(partitions, 100.0),
                lambda _: [],
                Shape(dict.fromkeys(slots, _PORTIONS // len(slots))),
                lambda: str,
            )
            documents = [{"splits": [write_split(s) for s in each.splits]} for each in portions]
            owners = [each.slot for each in portions]
            plan = service.add(owners, documents, slots, len(portions), PinRule())
            planned = time.perf_counter()
            for task, slot in enumerate(owners):
                next(Caller(service.address, plan, task).portions(lambda slot=slot: slot))
            if number >= 0:
                plans.append((planned - started) * 1e3)
                asks.append((time.perf_counter() - planned) * 1e3 / len(owners))
    finally:
        service.close()
    yield from_runs("members.plan.ms", plans, "ms")
    yield from_runs("members.bind.ms_per_task", asks, "ms")


def _confs() -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # Each restart takes the tasks that ran there, and executors may be lost for ever.
        "spark.task.maxFailures": "50",
        "spark.deploy.maxExecutorRetries": "-1",
    }


@dataclass
class _Query:
    """A running query over records that keep coming, and what it says of its members."""

    query: StreamingQuery
    table: Path
    group: str

    def metrics(self) -> dict[str, Any]:
        progress = self.query.lastProgress
        if progress is None:
            return {}
        latest = progress["sources"][0]["latestOffset"]
        document = json.loads(latest) if isinstance(latest, str) else latest
        found: dict[str, Any] = (document or {}).get("@keyrange", {}).get("metrics", {})
        return dict(found.get("members", {}))

    def wait(self, condition: Callable[[], bool], timeout_s: float = 240) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            failure = self.query.exception()
            if failure is not None:
                raise RuntimeError(str(failure))
            if time.monotonic() > until:
                raise TimeoutError(f"the members never came to it: {self.metrics()}")
            time.sleep(0.1)

    def settled(self) -> Assignment:
        """The assignment as soon as both executors have their ranges, and batches go by that."""
        table = open_assignments(str(self.table), self.group, {})
        found: list[Assignment] = []

        def now() -> bool:
            stored, told = table.last(), self.metrics()
            if stored is None or stored.assignment is None:
                return False
            found[:] = [stored.assignment]
            there = {each.slot for each in stored.members if each.state == "ASSIGNED"}
            return (
                there == set(stored.assignment.slots)
                and told.get("reached") == told.get("members") == len(there) == 2
                and told["epoch"] == stored.epoch
            )

        self.wait(now)
        return found[0]

    def go_on(self) -> None:
        """Until two more batches are done."""
        until = self.query.lastProgress["batchId"] + 2
        self.wait(lambda: self.query.lastProgress["batchId"] >= until)

    def batches(self, count: int) -> list[dict[str, Any]]:
        """The metrics of as many batches that are bound, from the next one on."""
        found: dict[int, dict[str, Any]] = {}
        first = self.query.lastProgress["batchId"] + 2

        def enough() -> bool:
            progress = self.query.lastProgress
            if progress["batchId"] >= first and progress["numInputRows"]:
                entry = {**self.metrics(), "ms": progress["durationMs"]["addBatch"]}
                found.setdefault(progress["batchId"], entry)
            return len(found) >= count

        self.wait(enough)
        return list(found.values())


@contextmanager
def _query(
    bench: Bench, spark: SparkSession, name: str, every: str = "0 seconds", **given: str
) -> Iterator[_Query]:
    """A query over a topic that has enough for all its batches, one of them `every` so often."""
    home = bench.directory / name
    home.mkdir()
    rows = bench.pick(full=2_000_000, quick=600_000, tiny=200_000)
    records = topics.records(spark, rows, 200, PARTITIONS)
    topic = topics.filled(bench.bootstrap_servers, name, records, PARTITIONS)
    frame = (
        spark.readStream.format("keyrange")
        .options(
            **{
                **bench.reading(topic),
                "splitBy": "keyRange",
                "maxOffsetsPerTrigger": str(bench.pick(full=20_000, quick=10_000, tiny=1_000)),
                "memberTable": str(home / "members"),
                "memberGroup": topic,
                "slot.directory": str(home / "slots"),
                "expansion.timeout.ms": "1000",
                "session.timeout.ms": "30000",
                "heartbeat.interval.ms": "500",
                **given,
            }
        )
        .load()
    )
    query = (
        frame.mapInArrow(_uneven, "rows long")
        .writeStream.format("noop")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(processingTime=every)
        .start()
    )
    try:
        yield _Query(query, home / "members", topic)
    finally:
        query.stop()


def _uneven(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Work that takes some tasks three times as long as others."""
    for batch in batches:
        key = batch.column("key")[0].as_py() or b""
        time.sleep(0.01 * (1 + 2 * (sum(key) % 2)))
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


def _owners(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    count = bench.pick(full=20, quick=10, tiny=1)
    shares: list[float] = []
    delays: dict[str, list[float]] = {}
    for pin, splits in (("off", 1), ("prefer", 2), ("prefer", 4)):
        name = f"owners-{pin}-{splits}"
        with _query(bench, spark, name, pin=pin, splitsPerCore=str(splits)) as query:
            if pin != "off":
                query.settled()
            else:
                query.wait(lambda q=query: q.query.lastProgress is not None)
            batches = query.batches(count)
        delays[f"{pin}.{splits}"] = [batch["ms"] for batch in batches]
        if pin != "off":
            own = sum(batch["ownPortions"] for batch in batches)
            all_of = own + sum(b["foreignPortions"] + b["unownedPortions"] for b in batches)
            shares.append(own / all_of)
            bench.progress(f"{splits} splits a core: {own} of {all_of} with their owner")
            if splits == 4:
                yield from _processes(query, bench.pick(full=60, quick=20, tiny=3))
    yield from_runs("members.owner_share", [min(shares)], "ratio")
    for side, found in delays.items():
        yield from_runs(f"members.batch.{side}.ms", found, "ms")


def _rolling(bench: Bench, spark: SparkSession) -> Iterator[Figure]:
    """Each executor killed in turn and back under its name: what moved, and how often."""
    restarts = bench.pick(full=20, quick=4, tiny=1)
    for kind in ("static", "dynamic"):
        given = {"pin": "prefer", "memberNames": kind, "maxOffsetsPerTrigger": "2000"}
        # It must not run out of records while executors come back.
        with _query(bench, spark, f"rolling-{kind}", "1 second", **given) as query:
            before = query.settled()
            for number in range(restarts):
                killed_at = time.time()
                _kill_oldest()
                # Its member ends with it, and another one comes with the next executor.
                query.wait(lambda q=query, at=killed_at: _came_after(q.group, at))
                query.go_on()
                after = query.settled()
                bench.progress(f"{kind}: restart {number + 1} of {restarts}, epoch {after.epoch}")
            share = moved(before, after, dict.fromkeys(after.owners, 1.0))
            suffix = "" if kind == "static" else ".dynamic"
            yield from_runs(f"members.rolling.moved_ranges{suffix}", [share], "share")
            count = float(after.epoch - before.epoch)
            yield from_runs(f"members.rolling.reassignments{suffix}", [count], "times")


def _jvms() -> list[psutil.Process]:
    """The executors' JVMs of this process's cluster, in order of their age."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any("CoarseGrainedExecutorBackend" in each for each in process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda each: each.create_time())


def _kill_oldest() -> None:
    """The one that was not restarted for the longest: so all are killed in turn."""
    os.kill(_jvms()[0].pid, signal.SIGKILL)


def _came_after(group: str, at: float) -> bool:
    return any(each.create_time() > at for each in _member_processes(group))


def _member_processes(group: str) -> list[psutil.Process]:
    """Those of one query: a member stays until its executor ends."""
    place = name_of(f"{group}{MEMBERS_SUFFIX}")
    found = []
    for process in psutil.process_iter():
        command = " ".join(_command(process))
        if _MEMBER in command and place in command:
            found.append(process)
    return found


def _processes(query: _Query, seconds: float) -> Iterator[Figure]:
    """What member processes cost while batches run, which is no less than while none does."""
    members = _member_processes(query.group)
    spent = [-_cpu_seconds(each) for each in members]
    started = time.perf_counter()
    time.sleep(seconds)
    passed = time.perf_counter() - started
    shares = [(s + _cpu_seconds(each)) / passed for s, each in zip(spent, members, strict=True)]
    sizes = [each.memory_info().rss / 2**20 for each in members]
    yield from_runs("members.process.rss_mb", sizes, "MB")
    yield from_runs("members.process.core_share", shares, "cores")


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


GROUP = Group(
    order=9,
    run=run,
    targets={
        "members.plan.ms": at_most(20),
        "members.bind.ms_per_task": at_most(5),
        "members.owner_share": at_least(0.95),
        "members.process.rss_mb": at_most(60),
        "members.process.core_share": at_most(0.01),
        "members.rolling.moved_ranges": at_most(0),
        "members.rolling.reassignments": at_most(0),
    },
)
