"""Starting an executor's member process, once, by whichever of its tasks comes first.

The process is no child of the worker that starts it: it outlives it, and ends with the executor.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from keyrange.errors import error
from keyrange.members.executor import Owner, executor_process
from keyrange.members.status import MemberSetup, MemberStatus, now_ms, read_status, to_json
from keyrange.ranges.sharing.locks import take_lock
from keyrange.ranges.sharing.shared_directory import is_alive, make_private, name_of

MODULE: Final = "keyrange.members.process"
_LAUNCH_LOCK: Final = "launch"
_LOG: Final = "member.log"
_LOG_BYTES_MAX: Final = 1 << 20
_START_TIMEOUT_S: Final = 20.0
_END_TIMEOUT_S: Final = 5.0
# A process that dies at once, as where a library is missing, is not started for every task.
_PAUSE_MS: Final = 10_000
# Fenced or refused: a person has to do something about it.
_FINAL: Final = frozenset(("FENCED", "FAILED"))


def member_directory(setup: MemberSetup, directory: Path) -> Path:
    """Where the member of a group keeps its files, in its executor's directory."""
    return directory / f"member-{name_of(setup.member_group)}"


def ensure_member(
    setup: MemberSetup, directory: Path, owner: Owner | None = None
) -> MemberStatus | None:
    """How the executor's member stands; it is started where there is none.

    `directory` is the executor's own, `owner` the process to end with (the executor's JVM). While
    the member is up this reads one small file. None: another task is starting it at this moment, or
    it has died at once and is given a pause. A fenced or refused one is started again only for
    another run, or another setup.

    Raises MEMBER_NOT_STARTED with what the process printed last, OSError where the directory is
    gone.
    """
    path = member_directory(setup, directory)
    status = read_status(path)
    if status is not None and _stands(status, setup):
        return status
    make_private(path)
    lock = take_lock(path / _LAUNCH_LOCK)
    if lock is None:
        return None
    try:
        status = read_status(path)
        if status is not None and _stands(status, setup):
            return status
        if status is not None:
            _end(status)
        if not _may_start(status, setup):
            return None
        _start(setup, path, owner or executor_process())
        return read_status(path)
    finally:
        os.close(lock)


def _stands(status: MemberStatus, setup: MemberSetup) -> bool:
    if status.setup != setup.mark:
        return False
    if status.state in _FINAL:
        return status.run == setup.run
    return not status.ended and _lives(status)


def _lives(status: MemberStatus) -> bool:
    return status.pid > 0 and is_alive(status.pid, status.started)


def _may_start(status: MemberStatus | None, setup: MemberSetup) -> bool:
    """Not where a process of the same setup was started a moment ago, and died without a word."""
    if status is None or status.setup != setup.mark or status.ended:
        return True
    return now_ms() - status.since_ms >= _PAUSE_MS or status.joined > 0


def _end(status: MemberStatus) -> None:
    """End a process that may be paused or deaf, and wait until it is gone."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + _END_TIMEOUT_S
        while _lives(status):
            if time.monotonic() >= until:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(status.pid, number)
            time.sleep(0.02)


def _start(setup: MemberSetup, path: Path, owner: Owner) -> None:
    """Start the process; returns when it has said that it is there.

    The new process forks once and its parent ends, so that nobody has to wait for it later.
    """
    log_path = path / _LOG
    if log_path.exists() and log_path.stat().st_size > _LOG_BYTES_MAX:
        log_path.unlink()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log_path.open("ab") as log:
        starter = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        starter.communicate(to_json(setup, owner).encode(), timeout=_START_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.wait()
    if starter.returncode:
        raise error(
            "MEMBER_NOT_STARTED",
            f"the member process ended with {starter.returncode}: {_last_line(log_path)}",
        )


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-2_000:].decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:500] if lines else "it said nothing"
