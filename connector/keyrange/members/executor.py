"""Which executor a task runs in, as far as a Python worker can tell.

Spark tells its workers neither its id nor its cores; an executor's JVM was started with both in its
arguments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from keyrange.ranges.sharing.shared_directory import (
    directory_of_process,
    start_time,
    usual_settings,
)

DRIVER: Final = "driver"
_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a member ends with: an executor's JVM."""

    pid: int
    started: str


def executor_process() -> Owner:
    """The JVM among the ancestors of this process, or where there is none the parent.

    Between a worker of Spark and its executor stands the daemon that has forked it.
    """
    process = os.getppid()
    while process > 1:
        command, parent = _stat(process)
        if command == "java":
            return Owner(process, start_time(process))
        process = parent
    return Owner(os.getppid(), start_time(os.getppid()))


def _stat(pid: int) -> tuple[str, int]:
    """Command and parent: fields 2 and 4 of proc_pid_stat(5); "" and 0 where they are not told."""
    try:
        named, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return named.partition("(")[2], int(rest.split()[1])
    except (OSError, IndexError, ValueError):
        return "", 0


def executor_directory() -> Path:
    """The private directory of this worker's executor; it is swept when that is gone.

    Raises OSError where it cannot be made.
    """
    return directory_of_process(usual_settings(0, 0), executor_process().pid)


@cache
def this_executor(jvm_pid: int, master: str | None) -> tuple[str, int]:
    """Id and cores of the executor whose JVM is process `jvm_pid`, as `read_executor`; `master` is
    Spark's, where it is known."""
    try:
        content = Path(f"/proc/{jvm_pid}/cmdline").read_bytes()
    except OSError:
        content = b""
    return read_executor(content.decode(errors="replace").split("\0"), os.environ, master)


def read_executor(
    arguments: Sequence[str], environment: Mapping[str, str], master: str | None
) -> tuple[str, int]:
    """What the JVM's arguments and the worker's environment say: Spark's id of the executor, which
    is `driver` in local mode and another one after a restart, and its cores."""
    given = dict(pairwise(arguments))
    local = _LOCAL.fullmatch(master or "")
    cores = given.get("--cores") or environment.get("SPARK_EXECUTOR_CORES", "")
    if not cores and local is not None:
        cores = local[1]
    count = int(cores) if cores.isdigit() else os.cpu_count() or 1
    return given.get("--executor-id", DRIVER), max(count, 1)


def task_attempt() -> int:
    """How often this process's task was begun before, 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


def task_property(name: str) -> str | None:
    """A property of this process's task: a setting of the session, or what Spark says of the query.

    None where it is not set, and outside of a task.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.getLocalProperty(name) if context is not None else None
