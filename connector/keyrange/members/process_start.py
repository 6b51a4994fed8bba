"""What a member process is told at its start, by whoever starts it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from keyrange.members.executor_names import NameSettings
from keyrange.ranges.sharing.shared_directory import start_time

# What of the client's properties tells two setups apart: no secret is among them.
_TELLING: Final = ("bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism")


@dataclass(frozen=True, slots=True)
class MemberSetup:
    """A member of one query's group.

    `kafka` are the client's properties, without the prefix `kafka.`; they go to the process over a
    pipe. `executor` and `cores` are told to the group. `run` is the run of the query that asks: a
    member that was fenced or refused is tried again in another run, and not before.
    """

    names: NameSettings
    member_group: str
    kafka: Mapping[str, str] = field(repr=False)
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    cores: float = 1.0
    executor: str = ""
    run: str = ""

    @property
    def mark(self) -> str:
        """The same for setups that one process may serve."""
        kafka = {name: self.kafka[name] for name in _TELLING if name in self.kafka}
        document = asdict(replace(self, kafka=kafka, run=""))
        text = json.dumps(document, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that a member ends with: an executor's JVM."""

    pid: int
    started: str


def to_json(setup: MemberSetup, owner: Owner) -> str:
    return json.dumps({"setup": asdict(setup), "owner": asdict(owner)})


def from_json(text: str) -> tuple[MemberSetup, Owner]:
    document = json.loads(text)
    values = document["setup"]
    names = NameSettings(**values.pop("names"))
    return MemberSetup(names=names, **values), Owner(**document["owner"])


def executor_process() -> Owner:
    """The JVM among the ancestors of this process, or where there is none the parent.

    Between a worker of Spark and its executor stands the daemon that has forked it.
    """
    parent = os.getppid()
    while parent > 1:
        if _command(parent) == "java":
            return Owner(parent, start_time(parent))
        parent = _parent(parent)
    return Owner(os.getppid(), start_time(os.getppid()))


def _parent(pid: int) -> int:
    """Field 4 of proc_pid_stat(5); 0 where it cannot be told."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
