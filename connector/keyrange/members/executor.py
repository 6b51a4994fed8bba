"""Which executor a task runs in, as far as a Python worker can tell.

Spark tells its workers neither; an executor's JVM was started with both in its arguments.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

DRIVER: Final = "driver"
_LOCAL: Final = re.compile(r"local\[(\d+|\*)(?:,\s*\d+)?\]")


@dataclass(frozen=True, slots=True)
class Executor:
    """The executor of this worker. `id` is Spark's, `driver` in local mode; it is another one after
    a restart."""

    host: str
    id: str
    cores: int


@cache
def this_executor(jvm_pid: int, master: str | None) -> Executor:
    """The executor whose JVM is process `jvm_pid`; `master` is Spark's, where it is known."""
    try:
        content = Path(f"/proc/{jvm_pid}/cmdline").read_bytes()
    except OSError:
        content = b""
    arguments = content.decode(errors="replace").split("\0")
    return read_executor(arguments, os.environ, master, socket.gethostname())


def read_executor(
    arguments: Sequence[str], environment: Mapping[str, str], master: str | None, host: str
) -> Executor:
    """What the JVM's arguments and the worker's environment say."""
    given = dict(pairwise(arguments))
    local = _LOCAL.fullmatch(master or "")
    cores = given.get("--cores") or environment.get("SPARK_EXECUTOR_CORES", "")
    if not cores and local is not None:
        cores = local[1]
    count = int(cores) if cores.isdigit() else os.cpu_count() or 1
    return Executor(host, given.get("--executor-id", DRIVER), max(count, 1))


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
