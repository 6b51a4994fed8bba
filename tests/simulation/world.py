"""All that is durable in a simulation, and the processes' surroundings."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch

from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from keyrange.kafka import cluster, retry_deadline
from keyrange.members.coordinator_client import GroupView
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.status import MemberStatus, now_ms
from keyrange.options import parse_options
from keyrange.ranges.sharing.shared_directory import HostSettings
from keyrange.work.record_alarm import RecordTimeout
from simulation import frames
from simulation.clock import Clock
from simulation.faults import Faults
from simulation.log import SimulatedCluster, SimulatedSizes
from simulation.members import SimulatedMember
from simulation.said import Said
from simulation.store import ScriptedStore, Table
from simulation.substitutes import InlineExecutor, InlineThread, sockets, substituted
from simulation.timed import FaultyTable
from simulation.topics import Topics

OUTPUT = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("generation", IntegerType())
    .add("key", StringType())
)
_SESSION_MS = 10_000


@dataclass
class Sink:
    """A table that takes each batch of an application once."""

    batches: list[tuple[str, int, list[tuple[Any, ...]]]] = field(default_factory=list)

    def last(self, application: str) -> int:
        return max((batch for name, batch, _ in self.batches if name == application), default=-1)

    def write(self, application: str, batch: int, rows: list[tuple[Any, ...]]) -> None:
        if batch > self.last(application):
            self.batches.append((application, batch, rows))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for _, _, rows in self.batches for row in rows]


class World:
    """What outlives the processes, and what they find around them."""

    # The one that is simulated at this moment.
    now: ClassVar[World]

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._chance = Random(seed + 2)
        self.clock = Clock()
        self.faults = Faults(Random(seed + 1), self.clock)
        self.topics = Topics()
        self.said = Said(self.topics)
        self.tables: dict[str, Table] = {}
        self.sink: Any = Sink()
        # The cores of each executor, and who of them is in the members' group.
        self.executors: dict[str, int] = {"": 2}
        self.executor = ""
        self.shares = False
        # Whether some records take long.
        self.is_slow = False
        shared_memory = Path("/dev/shm")
        self.home = Path(tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None))

    @contextmanager
    def installed(self) -> Iterator[None]:
        """keyrange runs in this world meanwhile."""
        World.now = self
        try:
            with ExitStack() as stack:
                for each in (self.clock.installed(), substituted(_OTHERS), self.said.installed()):
                    stack.enter_context(each)
                stack.enter_context(frames.functions())
                stack.enter_context(sockets())
                # How long a client waits for another try, and which broker it asks first.
                for each in (cluster, retry_deadline):
                    stack.enter_context(patch.object(each, "random", self._chance))
                # Which of two runs or files has the name that comes first.
                stack.enter_context(patch.object(uuid, "uuid4", self._uuid4))
                yield
        finally:
            shutil.rmtree(self.home)

    def _uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def enter(self, executor: str) -> None:
        """What follows runs in an executor's process."""
        from keyrange.members import executor_member

        self.executor = executor
        # Each has a process of its own: what one has greeted, another has not.
        executor_member._greeting.clear()

    def table(self, uri: str) -> Table:
        return self.tables.setdefault(uri, Table())


class _Client(SimulatedCluster):
    """A client of the present world: connections are kept from task to task."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @property
    def _topics(self) -> Topics:
        return World.now.topics

    @property
    def _faults(self) -> Faults:
        return World.now.faults


class _Alarm:
    """Calls functions, whose time is up where the clock says so afterwards."""

    def __init__(self, needed: bool = True) -> None: ...

    def __enter__(self) -> _Alarm:
        return self

    def __exit__(self, *_: object) -> None: ...

    def now_ms(self) -> float:
        return World.now.clock.monotonic() * 1000

    def call(self, function: Any, argument: Any, timeout_ms: float | None) -> Any:
        before_ms = self.now_ms()
        result = function(argument)
        if timeout_ms is not None and self.now_ms() - before_ms > timeout_ms:
            raise RecordTimeout("the record's time is up")
        return result


def _open_store(uri: str, layout: Any, storage: Mapping[str, str]) -> ScriptedStore:
    return ScriptedStore(World.now.table(uri), World.now.faults, uri, layout)


def _host(memory_bytes: int, spill_bytes: int) -> HostSettings:
    world = World.now
    if spill_bytes and not world.shares:
        raise OSError("there is no room on this host")
    home = world.home / f"host-{world.executor}"
    home.mkdir(exist_ok=True)
    return HostSettings(memory_bytes, spill_bytes, None, home)


def _members(*_: Any, **__: Any) -> GroupView:
    found = [
        Peer(f"{slot}-1", slot, MemberMetadata(slot, "h", slot, cores).to_bytes(), "h")
        for slot, cores in sorted(World.now.executors.items())
        if slot
    ]
    return GroupView("Stable" if found else "Empty", tuple(found))


@lru_cache(maxsize=64)
def _parsed(given: tuple[tuple[str, str], ...], mode: Any) -> Any:
    return parse_options(dict(given), mode)


def _parse(given: Mapping[str, str], mode: Any = None) -> Any:
    """What the same options mean is found out once."""
    return _parsed(tuple(sorted(given.items())), mode)


def _status(*given: Any) -> MemberStatus:
    slot = World.now.executor
    run = getattr(given[0], "run", "")
    held_ms = now_ms() + _SESSION_MS
    return MemberStatus(slot, True, "here", "STABLE", f"{slot}-1", held_until_ms=held_ms, run=run)


_OTHERS = {
    "keyrange.storage.sink_table:SinkTable": FaultyTable,
    "keyrange.kafka.cluster:Cluster": _Client,
    "keyrange.kafka.record_sizes:RecordSizes": SimulatedSizes,
    "keyrange.kafka.groups:epoch_ends": lambda _, __, epochs, *___: _Client(None).epoch_ends(
        epochs
    ),
    "keyrange.members.coordinator_client:describe_members": _members,
    "keyrange.members.coordinator_client:remove_member": lambda *_: True,
    "keyrange.members.coordinator_client:check_session_timeout": lambda *_: None,
    "keyrange.consumer.member:MemberThread": SimulatedMember,
    "keyrange.storage.delta_store:DeltaStore": _open_store,
    "keyrange.options:parse_options": _parse,
    "keyrange.work.record_alarm:RecordAlarm": _Alarm,
    "keyrange.ranges.sharing.shared_directory:usual_settings": _host,
    "keyrange.members.launch:ensure_member": _status,
    "keyrange.members.status:read_status": _status,
    "concurrent.futures:ThreadPoolExecutor": InlineExecutor,
    "threading:Thread": InlineThread,
}
