"""One detached broker per directory, for many short runs: `keyrange broker start|stop|status`.

Rule of this file: whether the broker lives is asked of the kernel, not of a file. The broker
inherits a locked descriptor, so the lock is free exactly when it is dead, and a pid that was used
again is never signalled. The state file beside it only says how to reach what is alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.embedded.settings import BrokerSettings
from keyrange.errors import error
from keyrange.ranges.sharing.locks import lock_within
from keyrange.ranges.sharing.shared_directory import put_in_place

_STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running detached broker. `bootstrap_servers` is its PLAINTEXT address."""

    pid: int
    bootstrap_servers: str
    version: str
    directory: str


def default_directory() -> Path:
    """Where the detached broker lives when no directory is named."""
    return jars.cache_dir() / "broker"


def start(directory: Path, settings: BrokerSettings, report: jars.Report) -> Daemon:
    """Start the broker of a directory, or return the one that runs there already.

    Its data stays over stop and start. Raises BROKER_DIRECTORY_UNUSABLE, and as
    `EmbeddedCluster.start` does.
    """
    with _usable(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory / "start.lock", wait_s=math.inf):
        running = status(directory)
        if running is not None:
            return running
        with _lock(directory / "alive.lock", wait_s=_STOP_TIMEOUT_S) as alive:
            if alive is None:
                raise error("BROKER_NOT_STARTED", "another broker is ending", directory=directory)
            with _usable(directory):
                broker = EmbeddedBroker(
                    settings, directory / "data", report, detached=True, inherited=(alive,)
                )
            broker.start()
            daemon = Daemon(broker.pid, broker.bootstrap_servers, settings.version, str(directory))
            put_in_place(directory / "broker.json", json.dumps(dataclasses.asdict(daemon)))
            return daemon


def status(directory: Path) -> Daemon | None:
    """The broker that runs in a directory, or None."""
    if not directory.is_dir():
        return None
    # Shared: two that ask at the same time must not take each other for the broker.
    with _lock(directory / "alive.lock", wait_s=0, mode=fcntl.LOCK_SH) as free:
        if free is not None:
            return None
    try:
        return Daemon(**json.loads((directory / "broker.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None  # it is just starting


def stop(directory: Path) -> Daemon | None:
    """End the broker of a directory (SIGTERM, after 30 s SIGKILL); None when none ran."""
    daemon = status(directory)
    if daemon is None:
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon.pid, number)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            if status(directory) is None:
                (directory / "broker.json").unlink(missing_ok=True)
                return daemon
            time.sleep(0.05)
    raise error("BROKER_NOT_STARTED", f"process {daemon.pid} does not end")


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """What is done in here makes or writes a directory that a person has named."""
    try:
        yield
    except OSError as failure:
        is_file = isinstance(failure, FileExistsError)
        why = "it is no directory" if is_file else f"{failure.strerror} ({failure.filename})"
        raise error(
            "BROKER_DIRECTORY_UNUSABLE", f"the broker cannot keep its data in {directory}: {why}"
        ) from None


@contextlib.contextmanager
def _lock(path: Path, wait_s: float, mode: int = fcntl.LOCK_EX) -> Iterator[int | None]:
    """Hold a lock file; yields None when it is still held elsewhere after `wait_s` seconds."""
    with _usable(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield descriptor if lock_within(descriptor, mode, wait_s) else None
    finally:
        os.close(descriptor)
