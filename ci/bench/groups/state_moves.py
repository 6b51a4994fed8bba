"""Group `state_moves`: how long records wait when half of the key ranges of a job with state go to
another host: to one that has no copies of it, and from one that is lost.

Hosts are workers of a standalone cluster on this machine, each with a directory to itself. One side
prepares (`warmup.timeout.ms`, `state.standby.replicas`), the other does not. A pause is the longest
time from a record's timestamp to when the table has it, from the change until some seconds behind
the new assignment, above the median of such times in ten seconds before. The host that key ranges
move to has run tasks before: what an executor takes to start is Spark's, and the same for all.

What a standby costs is measured where copies are made, in this process: CPU for a second of a query
that changes 100,000 of a million keys in each, and commits once in a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from bench import spark as sparks
from bench import standalone, topics
from bench.companions import companion
from bench.figures import Figure, from_runs, ratio
from bench.groups.latency_delta import watched
from bench.queries import wait
from bench.registry import Bench, Group
from bench.state_writer import StateWriter
from bench.time_tables import MOVES_TARGETS
from bench.visible import added_files
from keyrange.keyed_state.cache import StateCache
from keyrange.keyed_state.copying import Copying
from keyrange.members.table.assignment_admin import open_members, write_command
from keyrange.members.table.assignments import open_assignments
from keyrange.model.key_ranges import SPACE

PARTITIONS = 4
_VALUE_BYTES = 1_024
_RATE = 500
_SIDES: Mapping[str, Mapping[str, str]] = {
    "prepared": {"state.standby.replicas": "1"},
    "cold": {"warmup.timeout.ms": "0"},
}
_BRIEF = {
    # As long as it takes to see how batches are before.
    "expansion.timeout.ms": "15000",
    "pin.wait.ms": "1000",
    "registration.timeout.ms": "10000",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
}


@dataclass
class Pauses:
    """In ms, by what has happened."""

    move: list[float] = field(default_factory=list)
    lost_host: list[float] = field(default_factory=list)


def keep(record: Any, state: Any) -> Any:
    """The last whole value of the key, and how many records it had."""
    blob, n = state.kept.get(default=(b"", 0))
    state.kept.update((record.value if len(record.value) == _VALUE_BYTES else blob, n + 1))
    return record.timestamp, n


def run(bench: Bench) -> Iterator[Figure]:
    pauses = {side: Pauses() for side in _SIDES}
    for number in range(bench.pick(full=3, quick=1, tiny=1)):
        for side in sorted(_SIDES, reverse=number % 2 == 1):
            _run(bench, side, number, pauses[side])
    prepared, cold = pauses["prepared"], pauses["cold"]
    for name in ("move", "lost_host"):
        ours, theirs = getattr(prepared, name), getattr(cold, name)
        yield ratio(f"state.{name}.pause.prepared_vs_cold", ours, theirs)
        yield from_runs(f"state.{name}.pause.prepared.ms", ours, "ms")
        yield from_runs(f"state.{name}.pause.cold.ms", theirs, "ms")
    shares, sizes = _standby(bench)
    yield from_runs("state.standby.core_share", shares, "cores")
    yield from_runs("state.standby.mb_per_second", sizes, "MB/s")


def _standby(bench: Bench) -> tuple[list[float], list[float]]:
    """Of each second of some, and the bytes of files that it reads in one."""
    keys = bench.pick(full=1_000_000, quick=1_000_000, tiny=2_000)
    changed = bench.pick(full=100_000, quick=100_000, tiny=200)
    writer, random = StateWriter(str(bench.directory / "standby")), np.random.default_rng(7)
    writer.change(range(keys))
    caches = {at: StateCache(bench.directory / "copies" / str(at)) for at in writer.runs}
    copying = Copying(writer.directory, 0, time.sleep)

    def copy() -> None:
        for at, runs in writer.runs.items():
            for run in runs:
                copying.copy(caches[at], run)
            caches[at].sweep(SPACE, runs)

    copy()
    seconds = bench.pick(full=20, quick=10, tiny=3)
    shares, sizes = [], []
    for _ in range(bench.runs):
        cpu_s = read = 0.0
        for _ in range(seconds):
            writer.change(random.choice(keys, changed, replace=False).tolist())
            began, before = time.thread_time(), copying.read_bytes
            copy()
            cpu_s += time.thread_time() - began
            read += copying.read_bytes - before
        shares.append(cpu_s / seconds)
        sizes.append(read / seconds / 1e6)
        bench.progress(f"a standby takes {shares[-1]:.3f} cores, and reads {sizes[-1]:.1f} MB/s")
    return shares, sizes


def _run(bench: Bench, side: str, number: int, pauses: Pauses) -> None:
    home = bench.directory / f"{side}-{number}"
    home.mkdir()
    keys = bench.pick(full=1_000_000, quick=200_000, tiny=2_000)
    confs = {**standalone.CONFS, "spark.cores.max": "2"}
    topic = topics.create_topic(bench.bootstrap_servers, "moves", PARTITIONS)
    with standalone.cluster(home) as cluster:
        for _ in range(2):
            cluster.add_worker()
        with sparks.session(home, cluster.master, confs=confs) as spark:
            _load(spark, bench.bootstrap_servers, topic, keys)
            query = _start(bench, spark, home, topic, side)
            watch = _Watch(home, query, topic)
            wait(query, lambda: watch.rows() >= keys)
            trickle = (bench.bootstrap_servers, topic, PARTITIONS, _RATE, keys)
            seen = watched(home / "table", watch.seen_s)
            with companion("bench.producer", *trickle), seen:
                _hurt(bench, cluster, watch, pauses, side)
            query.stop()
    topics.delete_topic(bench.bootstrap_servers, topic)
    bench.progress(f"{side}: move {pauses.move[-1]:.0f} ms, lost host {pauses.lost_host[-1]:.0f}")


def _hurt(
    bench: Bench, cluster: standalone.Cluster, watch: _Watch, pauses: Pauses, side: str
) -> None:
    steady_s = bench.pick(full=10.0, quick=8.0, tiny=3.0)
    watch.settles(2, steady_s)
    watch.remove(cluster.hosts[-1])
    watch.settles(1, 0.0)
    # It joins again, as a new member with a new disk.
    cluster.forget_state(1)
    time.sleep(steady_s)
    began = time.time()
    watch.settles(2, steady_s)
    pauses.move.append(watch.pause_ms(began))
    if side == "prepared":
        watch.stays(cluster.state_bytes)
    else:
        # It has owned all of them before.
        cluster.forget_state(0)
    watch.settles(2, steady_s)
    began = time.time()
    cluster.lose_worker(cluster.hosts[-1])
    watch.settles(1, steady_s)
    pauses.lost_host.append(watch.pause_ms(began))


def _load(spark: SparkSession, servers: str, topic: str, keys: int) -> None:
    """A record of each key, with a value that no codec makes smaller."""
    parts = ", ".join(f"unhex(sha2(concat(id, '-{n}'), 512))" for n in range(_VALUE_BYTES // 64))
    records = spark.range(0, keys, 1, 2).selectExpr(
        "concat('key-', lpad(id, 8, '0')) AS key",
        f"concat({parts}) AS value",
        f"CAST(id % {PARTITIONS} AS INT) AS partition",
    )
    topics.fill(records, servers, topic, "none")


def _start(bench: Bench, spark: SparkSession, home: Path, topic: str, side: str) -> StreamingQuery:
    options = {
        **bench.reading(topic),
        "commitMode": "individual",
        "commitTable": str(home / "commits"),
        "memberTable": str(home / "members"),
        "memberGroup": topic,
        "memberNames": "static",
        "splitBy": "keyRange",
        "pin": "prefer",
        "maxOffsetsPerTrigger": "200000",
        **_BRIEF,
        **_SIDES[side],
    }
    state = {"kept": keyrange.ValueState("blob binary, n long")}
    job = keyrange.job(options, keep, "timestamp timestamp, n long", state=state)
    return job.into(str(home / "table"), str(home / "checkpoint"), spark=spark).start()


class _Watch:
    """What a query has done, by its tables."""

    def __init__(self, home: Path, query: StreamingQuery, group: str) -> None:
        self._home, self._query, self._group = home, query, group
        # Of each version of the table when it could be read.
        self.seen_s: dict[int, float] = {}

    def rows(self) -> int:
        table = str(self._home / "table")
        if not DeltaTable.is_deltatable(table):
            return 0
        return int(DeltaTable(table).to_pyarrow_dataset().count_rows())

    def settles(self, slots: int, steady_s: float) -> None:
        """Until so many slots have all key ranges, and some seconds longer."""
        table = open_assignments(str(self._home / "members"), self._group, {})

        def has() -> bool:
            last = table.last()
            owners = last.assignment if last is not None else None
            return owners is not None and len(owners.slots) == slots

        wait(self._query, has, every_s=0.5)
        time.sleep(steady_s)

    def remove(self, name: str) -> None:
        members = open_members(str(self._home / "members"), {})
        [slot] = [each for each in members.last.assignment.slots if each.endswith(name)]
        write_command(members, "remove", slot, "bench", "its key ranges are to come back", 0)

    def stays(self, measure: Callable[[], int]) -> None:
        """Until something has not changed by a hundredth for some seconds."""
        last = [-1.0]

        def is_same() -> bool:
            now, before = float(measure()), last[0]
            last[0] = now
            return abs(now - before) <= before / 100

        wait(self._query, is_same, every_s=4.0)

    def pause_ms(self, since_s: float) -> float:
        waits = {at: self._longest_ms(version, at) for version, at in list(self.seen_s.items())}
        before = [wait for at, wait in waits.items() if since_s - 10 <= at < since_s and wait]
        behind = [wait for at, wait in waits.items() if at >= since_s]
        return max(max(behind) - median(before), 1.0)

    def _longest_ms(self, version: int, at: float) -> float:
        """How long the oldest record of a version waited."""
        longest = 0.0
        for path in added_files(self._home / "table", version):
            stamps = pq.ParquetFile(path).read(["timestamp"]).column(0)
            if len(stamps):
                longest = max(longest, at * 1e3 - min(stamps.to_pylist()).timestamp() * 1e3)
        return longest


GROUP = Group(
    order=10,
    run=run,
    targets=MOVES_TARGETS,
)
