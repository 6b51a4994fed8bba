"""The job as users run it, and who starts it again when its driver has ended."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from nemesis.facts import End, Start
from nemesis.kinds import KINDS
from nemesis.schedule import Met, explained
from nemesis.tables import newest_version
from nemesis.victims import MARK, everyone, send
from nemesis.work import SCHEMA
from nemesis.world import World
from queries.ingesting import JOBS, TESTS, Ingest
from spark import jvms
from spark.standalone import StandaloneCluster
from spark.worker_python import WORKER_PYTHON

_PAUSE_S = 2.0
_LEARNS_S = 60.0
_TABLE_JOB = Path(__file__).parent / "jobs" / "table_job.py"
_CONDITION = re.compile(r"\b([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)\b")
_CONFS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.python.unix.domain.socket.enabled": "true",
    # Each restart of an executor takes the tasks that run there; they may be lost for ever.
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
}


class Supervisor:
    """Keeps one driver running, and says how each one ended."""

    def __init__(self, world: World, cluster: StandaloneCluster | None, met: Sequence[Met]) -> None:
        """Without a cluster each driver has executors of its own."""
        self._world, self.cluster = world, cluster
        self._master = "local-cluster[2,1,1024]" if cluster is None else cluster.master
        self._met = met
        self.running: list[Ingest] = []
        self._began_s: dict[Path, float] = {}
        self.ends: list[End] = []
        self._due = 0.0
        # Until then one of two drivers may have stopped the other.
        self._two_until_s = 0.0
        self.asked_to_stop = False
        # What the options of the next driver differ in.
        self.changes: dict[str, str] = {}

    def start(self) -> None:
        world = self._world
        more = ["--bootstrap-servers", world.bootstrap, "--table", world.store.hadoop_uri("table")]
        more += ["--checkpoint", world.store.hadoop_uri("checkpoint"), "--trigger", "0 seconds"]
        more += ["--log-format", "json"]
        options = {**world.mode.options(), **world.client_options(), "failOnDataLoss": "false"}
        options |= {"commitTable.onFreshStart": "resume"} if world.mode.individual else {}
        if world.mode.pinned:
            options |= {"memberTable": world.store.uri("members"), "memberGroup": world.run}
            options |= {"pin.driver.host": "127.0.0.1"}
        if (world.mode.pinned or world.mode.has_state) and self.cluster is None:
            # Hosts of a cluster have each its own.
            options |= {"slot.directory": str(world.slots)}
        options |= self.changes | dict(world.values.options)
        fields = world.values.fields
        start = Start(newest_version(world.store.seen("table")), fields, alone=not self.running)
        if options["splitBy"] == "partition":
            options.pop("keyRangesPerPartition", None)
        for name, value in options.items():
            more += ["--option", f"{name}={value}"]
        if world.mode.individual:
            more += _function(world)
            for name in world.mode.tables:
                more += [f"--{name}", world.store.hadoop_uri(name)]
            if world.copies_topic:
                more += ["--copies-topic", world.copies_topic, "--sends", world.mode.sends]
            more += ["--commit-table", world.store.uri("commits")]
        job = f"{world.mode.job}.py"
        if world.mode.writer == "tasks":
            job = str(_TABLE_JOB)
            more += ["--merges", world.mode.merges]
            more += ["--evolve", "add" if world.mode.evolves else "none"]
        elif world.mode.individual:
            more += ["--written-by", world.mode.writer]
        environment = own_environment(world)
        confs = (
            _CONFS
            | world.store.confs
            | {f"spark.executorEnv.{name}": v for name, v in environment.items()}
        )
        if world.mode.executors == "standalone":
            confs["spark.executor.memory"] = "700m"
        run = Ingest(
            world.topics,
            world.topic,
            world.logs,
            self._master,
            *more,
            confs=confs,
            job=job,
            environment=environment,
        )
        world.starts.append(start)
        self.running.append(run)
        self._began_s[run.log] = world.now

    def tick(self) -> None:
        """Note who has ended, and start the job again where nobody is left."""
        world = self._world
        two = self._ends_of_two()
        for run in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(run)
            if self.asked_to_stop:
                continue
            why, text = cause_of(run.process.returncode, run.text())
            allowed = two | explained(self._met, world.now, self._began_s[run.log])
            end = End(world.now, why, f"{text} ({run.log.name})", allowed)
            self.ends.append(end)
            world.say(f"the driver ended with {why}: {text[:300]}")
            self._due = world.now + _PAUSE_S
        if not self.running and not self.asked_to_stop and world.now >= self._due:
            self.start()

    def _ends_of_two(self) -> frozenset[str]:
        """Where two run one stops the other, however long the second one takes to begin. Each may
        stop the other: the one that is left learns it with its next commit."""
        if len(self.running) > 1:
            self._two_until_s = self._world.now + _LEARNS_S
        is_told = self._world.now < self._two_until_s
        return KINDS["second-driver"].ends if is_told else frozenset()

    def pids(self) -> list[psutil.Process]:
        """The drivers' own processes: the JVM and Python, without executors."""
        found = []
        for run in self.running:
            try:
                jvm = psutil.Process(run.process.pid)
                found += [jvm, *(each for each in jvm.children() if _is_python(each))]
            except psutil.Error:
                continue
        return found

    def stop(self, timeout_s: float = 120) -> int | None:
        """Ask the driver to end, as an orchestrator does; its exit code, None where it did not. Of
        two the code of the one that the other had not stopped before."""
        self.asked_to_stop = True
        code: int | None = None
        two = self._ends_of_two()
        # Python hears it first in a container, too: spark-submit is no init process there.
        send((each for each in self.pids() if _is_python(each)), signal.SIGTERM)
        for run in self.running:
            try:
                ended = run.process.wait(timeout_s)
            except Exception:
                return None
            if ended == 0 or cause_of(ended, run.text())[0] not in two:
                code = max(ended, code or 0, key=abs)
        return code

    def kill(self) -> None:
        """kill -9 of everything that the job has started."""
        send(everyone(self._world.run), signal.SIGKILL)
        for run in self.running:
            run.process.wait(60)


def _function(world: World) -> list[str]:
    """What the job makes of records."""
    mode, more = world.mode, list[str]()
    if mode.writer != "tasks":
        return ["--function", "nemesis.work:work", "--schema", SCHEMA]
    if mode.time != "none":
        more += ["--time", mode.time, "--late", mode.late]
    more += ["--rows"] if mode.has_rows else []
    more += [] if mode.table else ["--only-topic"]
    more += ["--keeps-state"] if mode.keeps_state else []
    if mode.values == "avro":
        more += ["--fields", str(world.values.fields if mode.evolves else 0)]
    return more


def own_environment(world: World) -> dict[str, str]:
    """What the processes of a job have in their environment."""
    clock = str(Path(__file__).with_name("clock"))
    path = os.pathsep.join([clock, TESTS, str(JOBS), *filter(None, sys.path)])
    return {
        MARK: world.run,
        "NEMESIS_CLOCK": str(world.clock),
        "PYTHONPATH": path,
        "SPARK_LOCAL_DIRS": str(world.home / "local"),
        "TMPDIR": str(world.home / "tmp"),
        "PYSPARK_PYTHON": WORKER_PYTHON,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": jvms.tool_options(),
    }


def _is_python(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
        return "java" not in words[0] and any("/jobs/" in word for word in words)
    except psutil.Error:
        return False


def cause_of(code: int, log: str) -> tuple[str, str]:
    """Why a driver ended, in a word and in its own words."""
    if code in (-9, 137):
        return "KILLED", "killed"
    said = list(_errors(log))
    text = said[-1] if said else next(iter(reversed(log.splitlines())), "")
    if "No space left on device" in log[-20_000:]:
        return "NO_SPACE", text[:500]
    if "CONCURRENT" in log[-20_000:] or "concurrently" in log[-20_000:]:
        return "CONCURRENT_QUERY", text[:500]
    found = _CONDITION.search(text)
    return (found[1] if found else f"EXIT_{code}"), text[:500]


def _errors(log: str) -> Iterator[str]:
    """The messages of a driver's errors. spark-submit hands on what Python writes in pieces of
    1 KiB, between which the JVM's own lines may come: of a line that was cut so, what there is."""
    for line in log.splitlines():
        if line.startswith('{"at"') and '"level": "ERROR"' in line:
            try:
                yield json.loads(line)["message"]
            except ValueError:
                yield line
