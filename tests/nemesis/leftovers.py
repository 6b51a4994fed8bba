"""What a run has left behind: processes, files in shared memory, secrets in logs, descriptors."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from nemesis.driver import own_environment
from nemesis.victims import everyone, role
from nemesis.world import MEMORY, World

# An executor notices that its driver is gone, and a member that its executor is.
_PATIENCE_S = 60.0
_SWEEP_S = 180.0
# How many descriptors or threads more than at its beginning a process may have.
_GROWTH_MAX = 40
_WARM_S = 40.0
# Schemas of registries are kept on a host for a day, for whoever comes next.
_SCHEMAS = "schemas"
_SWEEP = """
from keyrange.ranges.sharing.shared_directory import ExecutorDirectory, usual_settings
ExecutorDirectory(usual_settings(0, 0))
"""


class Usage:
    """How many descriptors and threads the Python processes of a run have, now and then.

    What a process keeps it has at two looks: delta-rs opens all entries of a log at once for a
    moment."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, float], tuple[int, int]] = {}
        # The last look, and the one before.
        self._last: dict[tuple[int, float], tuple[tuple[int, int], tuple[int, int], str]] = {}
        self._threads: dict[tuple[int, float], Counter[str]] = {}
        # Where the executors write their logs.
        self.directories: set[Path] = set()

    def look(self, run: str, is_warm: bool) -> None:
        for process in everyone(run):
            try:
                what = role(process)
                if what == "executor":
                    self.directories.add(Path(process.cwd()))
                name = (process.pid, process.create_time())
                # A JVM has as many threads as it likes.
                is_own = "java" not in process.name()
                if is_warm and is_own and time.time() - name[1] > _WARM_S:
                    threads = _threads_of(process.pid)
                    found = (process.num_fds(), threads.total())
                    self._first.setdefault(name, found)
                    before, *_ = self._last.get(name, (found,))
                    self._last[name] = (found, before, what)
                    self._threads[name] = threads
            except psutil.Error:
                continue

    def grown(self, connections: int) -> Iterator[tuple[str, str]]:
        """`connections` are those to the store that may be open."""
        for name, (*looks, what) in self._last.items():
            before = self._first[name]
            fds, threads = map(min, *looks)
            if fds > before[0] + _GROWTH_MAX + connections:
                yield "descriptors", f"{what} {name[0]}: {before[0]} at first, {fds} in the end"
            if threads > before[1] + _GROWTH_MAX:
                said = f"{before[1]} at first, {threads} in the end"
                yield "threads", f"{what} {name[0]}: {said}: {dict(self._threads[name])}"


def _threads_of(pid: int) -> Counter[str]:
    """How many threads of each name a process has, without those that delta-rs keeps: as many as it
    ever had a use for at once, up to some 90."""
    names = Counter[str]()
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            names[path.read_text().strip()] += 1
    del names["tokio-rt-worker"]
    return names


def processes_left(world: World) -> Iterator[tuple[str, str]]:
    until = time.monotonic() + _PATIENCE_S
    while (left := everyone(world.run)) and time.monotonic() < until:
        time.sleep(0.5)
    for process in left:
        try:
            command = " ".join(process.cmdline())[-200:]
        except psutil.Error:
            continue
        yield "process left", f"{role(process)} {process.pid}: {command}"


def memory_left(world: World) -> Iterator[tuple[str, str]]:
    """What is in shared memory when the next process has swept what the dead have left."""
    if not world.private:
        return
    sweep = [sys.executable, "-P", "-c", _SWEEP]
    for _ in range(2):
        subprocess.run(sweep, env=own_environment(world), check=True, timeout=_SWEEP_S)
    for path in sorted(MEMORY.glob("keyrange-*/*")):
        if path.name != _SCHEMAS and not _is_sweeper(path):
            yield "memory left", str(path)


def _is_sweeper(path: Path) -> bool:
    """Whether it is the directory of the process that swept, whose parent is this one."""
    return path.name.startswith(f"{psutil.Process().pid}-")


def secrets_told(world: World, directories: set[Path]) -> Iterator[tuple[str, str]]:
    """Logs that hold the password."""
    for path in _logs(world, directories):
        if world.password.encode() in path.read_bytes():
            yield "secret in a log", str(path)


def _logs(world: World, directories: set[Path]) -> Iterator[Path]:
    # The brokers' own properties hold it, as they have to.
    roots = [world.logs, world.lake, world.slots, world.home / "tmp", *directories]
    if world.private:
        roots.append(MEMORY)
    for root in roots:
        if root.exists():
            yield from (path for path in root.rglob("*") if path.is_file())
    yield from (world.home / "brokers").rglob("*.log")
