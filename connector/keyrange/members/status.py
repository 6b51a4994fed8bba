"""What a member process and its executor's tasks say to each other: its setup, over a pipe at its
start, and files in a private directory.

`member.json` is the process's: who it is and how it stands with its group, written whole and then
put in place. `progress/` is the tasks': a file for each task that runs, which holds when it last
handed over rows. A task holds a lock on its file, so that one whose process was killed is known.

Times are ms of the system's monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import struct
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Final, Self

from keyrange.members.executor import Owner
from keyrange.members.executor_names import NameSettings
from keyrange.ranges.sharing.locks import lock_within
from keyrange.ranges.sharing.shared_directory import put_in_place

STATUS_FILE: Final = "member.json"
_PROGRESS: Final = "progress"
_TEXT_CHARACTERS_MAX: Final = 2_000
# Two such texts, each character of which may take twelve bytes in JSON, and the rest.
_STATUS_BYTES_MAX: Final = 65_536
_TIME: Final = struct.Struct("<q")
# What of the client's properties tells two setups apart: no secret is among them.
_TELLING: Final = ("bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism")

# States of a member process that has ended for good, beside those of a member.
GONE: Final = frozenset(("CLOSED", "FENCED", "FAILED"))


def now_ms() -> int:
    """For what waits: a clock that nobody sets, one for all processes of a host."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class MemberSetup:
    """A member of one query's group.

    `kafka` are the client's properties, without the prefix `kafka.`; they go to the process over a
    pipe. `executor`, `cores` and `rack` are told to the group. `run` is the run of the query that
    asks: a member that was fenced or refused is tried again in another run, and not before.
    """

    names: NameSettings
    member_group: str
    kafka: Mapping[str, str] = field(repr=False)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    cores: float = 1.0
    executor: str = ""
    rack: str = ""
    run: str = ""

    @property
    def mark(self) -> str:
        """The same for setups that one process may serve."""
        kafka = {name: self.kafka[name] for name in _TELLING if name in self.kafka}
        document = asdict(replace(self, kafka=kafka, run=""))
        text = json.dumps(document, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


def to_json(setup: MemberSetup, owner: Owner) -> str:
    return json.dumps({"setup": asdict(setup), "owner": asdict(owner)})


def from_json(text: str) -> tuple[MemberSetup, Owner]:
    document = json.loads(text)
    values = document["setup"]
    names = NameSettings(**values.pop("names"))
    return MemberSetup(names=names, **values), Owner(**document["owner"])


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """How a member stands.

    `name` is its slot's, "" until it is found, and `source` says where it is from. `state` is one
    of `GroupMember`'s, or STARTING. `failure` says why it is FENCED, FAILED or IDLE_GIVEN_UP, and
    `trouble` what went wrong last and has passed. `since_ms` is when it came into its state,
    `held_until_ms` until when the coordinator keeps the name for it, 0 where it does not. `joined`
    counts how often it has become a member of a generation. `pid` and `started` are the process's;
    `setup` tells setups apart, and `run` the runs of a query that asked for it first.
    """

    name: str = ""
    is_static: bool = False
    source: str = ""
    state: str = "STARTING"
    member_id: str = ""
    generation: int = -1
    pid: int = 0
    started: str = ""
    failure: str = ""
    trouble: str = ""
    since_ms: int = 0
    held_until_ms: int = 0
    joined: int = 0
    setup: str = ""
    run: str = ""

    @property
    def ended(self) -> bool:
        """Whether the process has ended, or is about to, and says why."""
        return self.state in GONE

    def holds_name(self, at_ms: int) -> bool:
        """Whether the coordinator has confirmed the name within the session: a process that was
        stopped cannot say that it has lost its name."""
        return at_ms < self.held_until_ms


_FIELDS: Final = {each.name: each.type for each in fields(MemberStatus)}


def write_status(directory: Path, status: MemberStatus) -> None:
    """Put a status in place: a reader sees the old one or the new one, whole. What went wrong is
    cut where it is long."""
    texts = {name: getattr(status, name)[:_TEXT_CHARACTERS_MAX] for name in ("failure", "trouble")}
    put_in_place(directory / STATUS_FILE, json.dumps(asdict(status) | texts))


def read_status(directory: Path) -> MemberStatus | None:
    """The status; None where there is none, or what is there is not one."""
    try:
        with (directory / STATUS_FILE).open("rb") as file:
            document = json.loads(file.read(_STATUS_BYTES_MAX))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    known = {name: value for name, value in document.items() if name in _FIELDS}
    if any(type(value).__name__ != _FIELDS[name] for name, value in known.items()):
        return None
    return MemberStatus(**known)


class TaskProgress:
    """That a task runs, and when it last yielded; a context manager around its rows.

    Made by a task for a member's directory. Nothing is raised where the directory is gone: a task
    does not depend on its executor's member.
    """

    _numbers: Final = itertools.count()

    def __init__(self, directory: Path) -> None:
        self._path = directory / _PROGRESS / f"{os.getpid()}-{next(self._numbers)}"
        self._file = -1

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._file = os.open(
                self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            fcntl.flock(self._file, fcntl.LOCK_SH)
            self.yielded()
        return self

    def yielded(self) -> None:
        """Rows were handed over, and taken. Some microseconds."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.pwrite(self._file, _TIME.pack(now_ms()), 0)

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def oldest_progress(directory: Path) -> int | None:
    """When the running task that has yielded nothing for the longest did so last; None where no
    task runs. Files of tasks that are gone are removed."""
    oldest: int | None = None
    try:
        paths = list((directory / _PROGRESS).iterdir())
    except OSError:
        return None
    for path in paths:
        last = _last_yield(path)
        if last is not None:
            oldest = last if oldest is None else min(oldest, last)
    return oldest


def _last_yield(path: Path) -> int | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A task that has just made its file writes its first time after it has the lock.
        if lock_within(file, fcntl.LOCK_EX, 0) and os.fstat(file).st_size > 0:
            path.unlink(missing_ok=True)
            return None
        content = os.pread(file, _TIME.size, 0)
    except OSError:
        return None
    finally:
        os.close(file)
    # Empty: the task has made it this moment, and not written to it.
    return _TIME.unpack(content)[0] if len(content) == _TIME.size else None
