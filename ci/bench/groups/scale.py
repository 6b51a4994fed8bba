"""Group `scale`: what a hundred executors and a hundred thousand partitions cost the driver.

No Spark: the driver's side is what plans a pinned query and answers its tasks, and the executors
are those of `bench.simulated_executors`, in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from bench.figures import Figure, at_most, from_runs, percentile
from bench.registry import Bench, Group
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Broker, ClusterView, Leader, Topic
from keyrange.members.model.assignment import assign
from keyrange.members.model.pinned_plan import Shape
from keyrange.members.pinning import Pinning
from keyrange.members.read_tasks import BoundTask, write_bound_task
from keyrange.members.table.assignment_schema import Command
from keyrange.members.table.assignments import open_assignments
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.source.planning import NewRecords
from keyrange.source.tasks import PinnedTaskPlans, TaskMaker, TaskPlans

_TOPIC = "scale"
_BROKERS = 30
_CORES = 4
_RECORDS = 100_000
_BYTES = 100.0
# What a member process takes, with room beside it.
_PROCESS_BYTES = 80 * 2**20


def run(bench: Bench) -> Iterator[Figure]:
    yield from _plans(bench)
    yield from _members(bench)


def _plans(bench: Bench) -> Iterator[Figure]:
    """Plans alone: of many partitions, of many key ranges, and of those of a hundred executors."""
    many = bench.pick(full=100_000, quick=100_000, tiny=1_000)
    partitions = _partitions(many)
    few = partitions[: many // 10]
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": _TOPIC}
    by_range = given | {"splitBy": "keyRange", "parallelism": "400"}
    by_partition = parse_options(given)
    ten_each = parse_options(by_range | {"keyRangesPerPartition": "10"})
    found: dict[str, list[float]] = {"": [], ".ranges": [], ".assign": [], ".pinned": []}
    slots = {f"executor-{number:03d}": float(_CORES) for number in range(100)}
    maker = task_maker(partitions)
    for _ in range(bench.runs):
        found[""].append(_seconds_to_plan(partitions, by_partition, maker))
        found[".ranges"].append(_seconds_to_plan(few, ten_each, maker))
        started = time.perf_counter()
        assignment = assign(dict.fromkeys(partitions, 1.0), slots, None, 1)
        found[".assign"].append(time.perf_counter() - started)
        ranges, sizes = _ranges(partitions), _sizes(partitions)
        shape = Shape(dict.fromkeys(slots, _CORES))
        started = time.perf_counter()
        units = NewRecords(ranges, ten_each).portions(assignment.owners, shape, sizes, _no_sample)
        documents = [write_bound_task(maker.task(each.splits)) for each in units or ()]
        found[".pinned"].append(time.perf_counter() - started)
        if sum(len(each["splits"]) for each in documents) < many:
            raise RuntimeError("not every partition was planned")
    for name, seconds in found.items():
        yield from_runs(f"plan.100k{name}.seconds", seconds, "s")


def _seconds_to_plan(
    partitions: Sequence[TopicPartition], options: SourceOptions, maker: TaskMaker
) -> float:
    ranges, sizes = _ranges(partitions), _sizes(partitions)
    started = time.perf_counter()
    TaskPlans().plan(NewRecords(ranges, options), sizes, _no_sample, maker)
    return time.perf_counter() - started


def _partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition(_TOPIC, number) for number in range(count)]


def _ranges(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetRange]:
    return dict.fromkeys(partitions, OffsetRange(0, _RECORDS))


def _sizes(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, float]:
    return dict.fromkeys(partitions, _BYTES)


def _no_sample(_: TopicPartition) -> Sequence[int]:
    return ()


def task_maker(partitions: Sequence[TopicPartition]) -> TaskMaker:
    """Tasks of a cluster that is not there."""
    brokers = {n: Broker(n, f"broker-{n}.example", 9092) for n in range(_BROKERS)}
    leaders = {p.partition: Leader(p.partition % _BROKERS, 3, (1, 2, 3)) for p in partitions}
    view = ClusterView("scale", brokers, {_TOPIC: Topic("ab" * 16, leaders)})
    return TaskMaker(view, view.topic_ids(), dict.fromkeys(partitions, 3))


@dataclass
class _Executors:
    """The other process, which does as it is told."""

    process: subprocess.Popen[str]

    def do(self, **order: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the executors ended when they were to {order.get('do', 'start')}")
        return json.loads(answer)


@contextmanager
def _executors(bench: Bench, names: list[str], group: str, processes: int) -> Iterator[_Executors]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.simulated_executors"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            home = str(bench.directory)
            executors = _Executors(process)
            executors.do(
                names=names,
                processes=processes,
                cores=_CORES,
                group=group,
                servers=bench.bootstrap_servers,
                home=home,
            )
            yield executors
        finally:
            # It ends with its input.
            process.communicate(timeout=60)
        if process.returncode:
            raise RuntimeError("an executor failed when the executors were to end")


def _members(bench: Bench) -> Iterator[Figure]:
    """Batches of 10,000 partitions that 400 tasks of 100 executors read."""
    count = bench.pick(full=100, quick=100, tiny=4)
    partitions = _partitions(bench.pick(full=10_000, quick=10_000, tiny=40))
    room = int(psutil.virtual_memory().available / 2 / _PROCESS_BYTES)
    processes = min(bench.pick(full=100, quick=10, tiny=1), count, room)
    names = [f"executor-{number:03d}" for number in range(count)]
    options = _options(bench)
    cluster = Cluster(options.client)
    plans = PinnedTaskPlans(options, Pinning(options, cluster))
    try:
        with _executors(bench, names, options.members.group, processes) as executors:
            driver = _Driver(bench, plans, executors, partitions)
            bench.progress(f"{count} executors, {processes} of them with member processes")
            driver.settle(count)
            yield from driver.batches(bench.pick(full=6, quick=4, tiny=1))
            yield _reassign(options, plans, names[-1])
    finally:
        plans.close()
        cluster.close()


def _options(bench: Bench) -> SourceOptions:
    return parse_options(
        {
            "kafka.bootstrap.servers": bench.bootstrap_servers,
            "subscribe": _TOPIC,
            "splitBy": "keyRange",
            "pin": "prefer",
            "splitsPerCore": "2",
            "memberTable": str(bench.directory / "members"),
            "memberGroup": _TOPIC,
            "memberNames": "static",
            "expansion.timeout.ms": "1000",
            "heartbeat.interval.ms": "1000",
        }
    )


class _Driver:
    """The process that plans, which is this one."""

    def __init__(
        self,
        bench: Bench,
        plans: PinnedTaskPlans,
        executors: _Executors,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self._bench, self._plans, self._executors = bench, plans, executors
        self._maker = task_maker(partitions)
        self._sizes = _sizes(partitions)
        self._partitions = len(partitions)
        self._reads = NewRecords(_ranges(partitions), _options(bench))

    def settle(self, count: int) -> None:
        """Until all executors are there, and have key ranges."""
        until = time.monotonic() + 300
        is_greeted = False
        while True:
            self._executors.do(do="check")
            self._plans.look()
            [first, *_] = self._plan()
            if isinstance(first, BoundTask) and self._told()["reached"] == count:
                return
            if not is_greeted and self._told()["members"] == count:
                address = first.greeting.address
                self._executors.do(
                    do="greet", host=address.host, port=address.port, secret=address.secret.hex()
                )
                is_greeted = True
            if time.monotonic() > until:
                raise TimeoutError(f"the members never came to it: {self._told()}")
            time.sleep(0.5)

    def _told(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._plans.metrics()["members"]
        return found

    def _plan(self) -> Sequence[Any]:
        return self._plans.plan(self._reads, self._sizes, _no_sample, self._maker)

    def _check(self, read: Mapping[str, Any]) -> None:
        """A batch of which something was not read, or was not counted, measures nothing."""
        told = self._told()
        counted = sum(told[f"{whose}Portions"] for whose in ("own", "foreign", "unowned"))
        if (read["partitions"], read["portions"]) != (self._partitions, counted):
            raise RuntimeError(
                f"{read['partitions']} of {self._partitions} partitions were read, in "
                f"{read['portions']} portions of which {counted} were counted"
            )

    def batches(self, count: int) -> Iterator[Figure]:
        """Batches in which 99 of 100 executors wait for the last one."""
        read_s, slow_s = self._bench.pick(full=(1.0, 4.0), quick=(1.0, 4.0), tiny=(0.01, 0.1))
        shares, looks, plans, rates, asks = [], [], [], [], []
        for batch in range(count):
            started, cpu = time.perf_counter(), time.process_time()
            self._plans.look()
            looked = time.perf_counter()
            tasks = self._plan()
            planned = time.perf_counter()
            read = self._executors.do(
                do="read",
                plan=tasks[0].plan,
                batch=batch,
                tasks=len(tasks),
                read_s=read_s,
                slow_s=slow_s,
            )
            ended = time.perf_counter()
            self._check(read)
            waited_s = read["waited_s"]
            shares.append((time.process_time() - cpu) / (ended - started))
            looks.append((looked - started) * 1e3)
            plans.append(planned - looked)
            rates.append(len(waited_s) / (ended - planned))
            asks += waited_s
        yield from_runs("members.scale.100.driver_core_share", shares, "cores")
        yield from_runs("members.scale.100.look.ms", looks, "ms")
        yield from_runs("members.scale.100.plan.seconds", plans, "s")
        yield from_runs("members.scale.100.questions_per_second", rates, "1/s")
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            waited = [percentile(asks, share) * 1e3]
            yield from_runs(f"members.scale.100.answer.{name}.ms", waited, "ms")


def _reassign(options: SourceOptions, plans: PinnedTaskPlans, name: str) -> Figure:
    """One executor is taken out: its key ranges are dealt out to the others, and written down."""
    members = options.members
    table = open_assignments(members.table, members.group, {})
    command = Command(
        group=members.group,
        run_id="bench",
        action="remove",
        at_ms=0,
        who="bench",
        why="measured",
        name=name,
    )
    table.append_command(command)
    time.sleep(members.heartbeat_interval_ms / 1000)
    started = time.perf_counter()
    plans.look()
    seconds = time.perf_counter() - started
    last = table.last()
    if last is None or last.assignment is None or name in last.assignment.slots:
        raise RuntimeError("the executor still has key ranges")
    return from_runs("members.scale.100.reassign.seconds", [seconds], "s")


GROUP = Group(
    order=10,
    run=run,
    targets={
        "plan.100k.seconds": at_most(1),
        "members.scale.100.driver_core_share": at_most(0.5),
    },
)
