"""Pinned queries with executors in processes of their own: how tests run, follow and hurt them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from brokers.real_broker import Topics
from keyrange.members.model.assignment import Assignment, moved
from keyrange.members.status import MemberStatus, read_status
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.options.members import MEMBERS_SUFFIX
from keyrange.ranges.sharing.shared_directory import name_of, usual_settings
from queries.ingesting import cmdline
from spark.sources import options
from spark.worker_python import HOST_PYTHON, WORKER_PYTHON

JOB = Path(__file__).with_name("pinned_job.py")
# A machine may be busy: what takes seconds may take minutes.
PATIENCE_S = 400.0
# Nobody is away for so long by accident, and members are taken in together.
STEADY = {
    "splitBy": "keyRange",
    "pin": "prefer",
    "startingOffsets": "earliest",
    "expansion.timeout.ms": "2000",
    "session.timeout.ms": "900000",
    "heartbeat.interval.ms": "500",
    "maxOffsetsPerTrigger": "2000",
}
# Who is gone is missed within seconds, and not when the machine is slow for one.
BRIEF = {
    "session.timeout.ms": "30000",
    "registration.timeout.ms": "10000",
    "expansion.timeout.ms": "1000",
}
CONFS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "640m",
    "spark.python.unix.domain.socket.enabled": "true",
    # Each restart takes the tasks that run there; executors may be lost for ever.
    "spark.task.maxFailures": "10",
    "spark.deploy.maxExecutorRetries": "-1",
}


class Row(NamedTuple):
    """A record as a batch held it, and where it was read: `task` is its number and attempt."""

    n: int
    partition: int
    offset: int
    key: str
    slot: str
    task: str


class PinnedRun:
    """A query of a cluster, as its files, its table and its members show it. `place` has its
    checkpoint and its tables, of a run on another cluster too."""

    def __init__(
        self, cluster: PinnedCluster, name: str, topic: str, place: Path | None = None
    ) -> None:
        self.cluster, self.name, self.topic = cluster, name, topic
        self.home = cluster.home / name
        self.place = place or self.home

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.home / "status.json").read_text())
        except FileNotFoundError:
            return {"failure": None, "batch": -1, "ms": 0, "members": {}}
        return found

    def wait(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Until something holds; fails where the query does."""
        until = time.monotonic() + timeout_s
        while not condition():
            status = self.status()
            assert status["failure"] is None, status["failure"]
            assert self.cluster.process.poll() is None, self.cluster.text()[-3000:]
            assert time.monotonic() < until, (status, self.members(), self.cluster.text()[-2000:])
            time.sleep(0.1)

    def failure(self, timeout_s: float = PATIENCE_S) -> str:
        """What the query fails with."""
        until = time.monotonic() + timeout_s
        while not (found := self.status()["failure"]):
            assert time.monotonic() < until, (self.status(), self.cluster.text()[-2000:])
            time.sleep(0.1)
        return str(found)

    def settle(self, count: int) -> Assignment:
        """Until so many executors are there and have all ranges, and batches are bound by that."""

        def settled() -> bool:
            told, assignment = self.status()["members"], self.assignment()
            names = {each.name for each in self.members().values() if each.state == "STABLE"}
            return (
                assignment is not None
                and len(names) == count
                and set(assignment.slots) == names
                and told.get("reached") == told.get("members") == count
                and told["epoch"] == assignment.epoch
                and told["ownPortions"] > 0
            )

        self.wait(settled)
        assignment = self.assignment()
        assert assignment is not None
        return assignment

    def more_batches(self, count: int = 2) -> None:
        """Until so many batches more are done."""
        until = self.status()["batch"] + count
        self.wait(lambda: self.status()["batch"] >= until)

    def batches(self) -> list[list[Row]]:
        paths = sorted((self.home / "batches").glob("[0-9]*"), key=lambda path: int(path.name))
        return [[Row(*row) for row in json.loads(path.read_text())] for path in paths]

    def check(self, sent: int, in_order: bool = True) -> list[list[Row]]:
        """Wait until all that was sent is delivered: each record once, and with `in_order` each key
        in order and in one task of a batch."""
        self.wait(lambda: sum(map(len, self.batches())) >= sent)
        batches = self.batches()
        assert sorted(row.n for rows in batches for row in rows) == list(range(sent))
        if not in_order:
            return batches
        last: dict[str, int] = {}
        for rows in batches:
            tasks: dict[str, set[str]] = {}
            for row in rows:
                assert last.get(row.key, -1) < row.offset, row
                last[row.key] = row.offset
                tasks.setdefault(row.key, set()).add(row.task)
            assert all(len(each) == 1 for each in tasks.values())
        return batches

    def table(self) -> AssignmentTable:
        return open_assignments(str(self.place / "members"), self.topic, {})

    def assignment(self) -> Assignment | None:
        stored = self.table().last()
        return stored.assignment if stored is not None else None

    def epochs(self) -> list[Assignment]:
        """Every assignment that there was, in order."""
        found: dict[int, Assignment] = {}
        for row in self.table().history():
            if row.assignment is not None:
                found[row.assignment.epoch] = row.assignment
        return list(found.values())

    def reasons(self) -> list[str]:
        """Why ranges were assigned, in order."""
        found: dict[int, str] = {}
        for row in self.table().history():
            if row.assignment is not None:
                found.setdefault(row.assignment.epoch, row.reason)
        return list(found.values())

    def members(self) -> dict[int, MemberStatus]:
        """The members of this query by their executors' process ids."""
        found = {}
        for executor in self.cluster.executors():
            status = self.member(executor)
            if status is not None:
                found[executor.pid] = status
        return found

    def member(self, executor: psutil.Process) -> MemberStatus | None:
        memory = usual_settings(0, 0).memory_directory
        assert memory is not None
        group = name_of(f"{self.topic}{MEMBERS_SUFFIX}")
        for place in memory.glob(f"keyrange-{os.getuid()}/{executor.pid}-*/member-{group}"):
            return read_status(place)
        return None


def share_moved(before: Assignment, after: Assignment) -> float:
    """The share of the hash space of all partitions, 0 to 1, that has another owner."""
    return moved(before, after, dict.fromkeys(before.owners, 1.0))


class PinnedCluster:
    """A driver and its executors. `roots` are processes whose children executors may be, beside the
    driver's. With `hosts` each executor has a slot directory to itself. `environment` and `python`
    are the driver's, and `prefix` stands before its command, such as one that runs it on another
    host."""

    # What follows a query, and where jobs with state write; "" for `home`.
    run_of: type[PinnedRun] = PinnedRun
    lake = ""

    def __init__(
        self,
        topics: Topics,
        home: Path,
        master: str,
        confs: Mapping[str, str],
        roots: Sequence[int] = (),
        hosts: bool = False,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        prefix: Sequence[str] = (),
    ) -> None:
        self.topics, self.home, self.slots = topics, home, home / "slots"
        self.log = home / "job.log"
        path = os.pathsep.join(filter(None, sys.path))
        settings = {
            "master": master,
            "confs": {**CONFS, "spark.executorEnv.PYTHONPATH": path, **confs},
        }
        (home / "settings.json").write_text(json.dumps(settings))
        for answer in (home / "answers").glob("*"):
            answer.unlink()
        self.slots.mkdir(mode=0o700, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, python, "-P", str(JOB), str(home)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=home,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": HOST_PYTHON if hosts else WORKER_PYTHON,
                    "KEYRANGE_TEST_SLOTS": str(self.slots),
                    **(environment or {}),
                },
                start_new_session=True,
            )
        self._roots = (self.process.pid, *roots)
        self._commands = 0

    def do(self, what: str, **values: Any) -> None:
        """Have the driver carry out a command."""
        self._commands += 1
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **values}).encode() + b"\n")
        self.process.stdin.flush()
        self.answered(self._commands)

    def answered(self, number: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while not (self.home / "answers" / str(number)).exists():
            assert self.process.poll() is None, self.text()[-3000:]
            assert time.monotonic() < until, self.text()[-3000:]
            time.sleep(0.05)

    def start(
        self, name: str, topic: str, pause_s: float = 0, shuffle: bool = False, **given: str
    ) -> PinnedRun:
        self._forget(name)
        given = self._options(name, topic, given)
        self.do("start", name=name, options=given, pause_s=pause_s, shuffle=shuffle)
        return self.run_of(self, name, topic)

    def start_counting(
        self,
        name: str,
        topic: str,
        pause_s: float = 0,
        after: PinnedRun | None = None,
        **given: str,
    ) -> PinnedRun:
        """A job with state, which takes `pause_s` for each record. It goes on from where `after`
        stands."""
        self._forget(name)
        run = self.run_of(self, name, topic, after.place if after else None)
        tables = {
            "commitMode": "individual",
            "commitTable": str(run.place / "commits"),
            "memberTable": str(run.place / "members"),
        }
        options = self._options(name, topic, tables | given)
        place = f"{self.lake}/{name}" if self.lake else str(run.place)
        self.do("start_counting", name=name, place=place, options=options, pause_s=pause_s)
        return run

    def _forget(self, name: str) -> None:
        (self.home / name / "status.json").unlink(missing_ok=True)

    def _options(self, name: str, topic: str, given: Mapping[str, str]) -> dict[str, str]:
        values = {
            **STEADY,
            "memberTable": str(self.home / name / "members"),
            "memberGroup": topic,
            "slot.directory": str(self.slots),
            **given,
        }
        return options(self.topics, topic, **values)

    def executors(self) -> list[psutil.Process]:
        """The executors' JVMs, in order of their age."""
        found = []
        for root in self._roots:
            for process in _descendants(root):
                program, *rest = cmdline(process) or [""]
                if Path(program).name == "java" and any("ExecutorBackend" in each for each in rest):
                    found.append(process)
        return sorted(found, key=lambda each: each.create_time())

    def has_executors(self, count: int) -> None:
        """Until there are so many."""
        until = time.monotonic() + PATIENCE_S
        while len(self.executors()) != count:
            assert time.monotonic() < until, self.text()[-3000:]
            time.sleep(0.1)

    def to_two(self, lost: psutil.Process) -> None:
        """kill -9 of one of three that does not come back."""
        self.do("executors", count=2)
        self.kill_executor(lost)
        self.has_executors(2)

    def kill_executor(self, executor: psutil.Process) -> None:
        """kill -9; returns when it is gone."""
        with suppress(ProcessLookupError):
            os.kill(executor.pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while executor.is_running() and executor.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.02)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        """kill -9 of the driver with all that it has started."""
        for pid in [self.process.pid, *(each.pid for each in _descendants(self.process.pid))]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(120)
        if self.process.stdin is not None:
            self.process.stdin.close()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


@contextmanager
def pinned_cluster(
    topics: Topics,
    home: Path,
    master: str = "local-cluster[2,1,640]",
    confs: Mapping[str, str] | None = None,
    roots: Sequence[int] = (),
    hosts: bool = False,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> Iterator[PinnedCluster]:
    """A driver that is ready for queries."""
    cluster = PinnedCluster(topics, home, master, confs or {}, roots, hosts, environment, python)
    try:
        cluster.answered(0)
        yield cluster
    finally:
        cluster.close()
