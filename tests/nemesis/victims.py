"""The processes of a run, by what they are, wherever they hang in the tree of processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress

import psutil

from queries.ingesting import cmdline

# What every process that a job starts inherits; its value is the run.
MARK = "NEMESIS_RUN"


def everyone(run: str) -> list[psutil.Process]:
    """All processes of a run's jobs that live, the oldest first."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) != run or process.status() == psutil.STATUS_ZOMBIE:
                continue
            found.append((process.create_time(), process.pid, process))
        except psutil.Error:
            continue
    return [process for _, _, process in sorted(found, key=lambda each: each[:2])]


def role(process: psutil.Process) -> str:
    """driver, executor, worker, member, consumer; or other."""
    words = " ".join(cmdline(process))
    if "CoarseGrainedExecutorBackend" in words:
        return "executor"
    if "keyrange.members.process" in words:
        return "member"
    if "nemesis.consume" in words:
        return "consumer"
    if "deploy.SparkSubmit" in words or "/jobs/" in words:
        return "driver"
    if "pyspark.daemon" in words and _is_forked(process):
        return "worker"
    return "other"


def of_role(run: str, wanted: str) -> list[psutil.Process]:
    return [process for process in everyone(run) if role(process) == wanted]


def with_children(process: psutil.Process) -> list[psutil.Process]:
    """A process and what it has started, members aside: they outlive it by design."""
    try:
        below = process.children(recursive=True)
    except psutil.Error:
        below = []
    return [process, *(each for each in below if role(each) != "member")]


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _is_forked(process: psutil.Process) -> bool:
    """Whether a worker of an executor: its parent is the daemon, whose parent is the executor."""
    try:
        daemon = process.parent()
        executor = daemon.parent() if daemon is not None else None
    except psutil.Error:
        return False
    return (
        daemon is not None
        and executor is not None
        and "pyspark.daemon" in " ".join(cmdline(daemon))
        and "CoarseGrainedExecutorBackend" in " ".join(cmdline(executor))
    )
