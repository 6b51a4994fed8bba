"""`python -m bench.simulated_executors`: executors without Spark, for a driver that is measured.

A process of its own, so that the driver's processor time is the driver's alone. It reads orders
from its standard input, a line of JSON each, and answers each with a line. The first ones of the
executors have member processes as real executors have; the others are threads that take part in the
group in the same way.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from keyrange.kafka.cluster import Cluster
from keyrange.members.binding.caller import Caller, greet
from keyrange.members.coordinator_client import run_member
from keyrange.members.executor import Owner
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import ensure_member
from keyrange.members.model.group_member import GroupMember
from keyrange.members.model.group_member_states import GroupState
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.model.member_settings import MemberSettings
from keyrange.members.model.task_greeting import Address
from keyrange.members.read_tasks import read_bound_task
from keyrange.members.status import MemberSetup
from keyrange.options.kafka_properties import parse_client_options
from keyrange.options.value_parsers import Violations
from keyrange.ranges.sharing.shared_directory import start_time

_SESSION_MS = 60_000
_HEARTBEAT_MS = 3_000


class _Thread:
    """What `run_member` has for its surroundings. `closed_by` is a descriptor that becomes readable
    when the member is to end."""

    def __init__(self, closed_by: int) -> None:
        self._closed_by = closed_by

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def look(self, member: GroupMember) -> None:
        if _ready([self._closed_by], 0):
            member.close(self.now_ms())

    def wait(self, timeout_ms: float, answer_from: int = -1) -> bool:
        watched = [each for each in (self._closed_by, answer_from) if each >= 0]
        return answer_from in _ready(watched, timeout_ms)

    def told(self, *_: object) -> None:
        return


def _ready(descriptors: list[int], timeout_ms: float) -> set[int]:
    """Those that can be read, or that the other side has closed."""
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return {each for each, _ in poll.poll(timeout_ms)}


class TimedCaller(Caller):
    """A caller that notes how long its answers take, in seconds."""

    def __init__(self, *arguments: Any, taken: list[float]) -> None:
        super().__init__(*arguments)
        self._taken = taken

    def _ask(self, question: Any) -> dict[str, Any]:
        started = time.perf_counter()
        answer = super()._ask(question)
        self._taken.append(time.perf_counter() - started)
        return answer


class Executors:
    """All executors of one query, each with some cores."""

    def __init__(
        self, names: list[str], processes: int, cores: int, group: str, servers: str, home: str
    ) -> None:
        self._names, self._cores = names, cores
        self._kafka = {"bootstrap.servers": servers}
        self._group = group
        self._directory = Path(home)
        # Member processes end with it.
        self._owner = subprocess.Popen(["sleep", "100000"])
        for name in names[:processes]:
            self._start_process(name)
        threads = names[processes:]
        self._closed_by, self._open = os.pipe()
        self._pool = ThreadPoolExecutor(max(len(threads), 1), thread_name_prefix="member")
        self._members = [self._pool.submit(self._take_part, name) for name in threads]

    def close(self) -> None:
        """End all members. Raises what one has failed with."""
        self._owner.kill()
        self._owner.wait()
        os.close(self._open)
        self._pool.shutdown()
        os.close(self._closed_by)
        for member in self._members:
            member.result()

    def check(self) -> None:
        """Raises what a member has failed with; none ends before `close`."""
        for member in self._members:
            if member.done():
                member.result()

    def greet(self, host: str, port: int, secret: str) -> None:
        self._address = Address(host, port, bytes.fromhex(secret))
        for name in self._names:
            greet(self._address, name)

    def read(
        self, plan: str, batch: int, tasks: int, read_s: float, slow_s: float
    ) -> dict[str, Any]:
        """Run a batch's tasks on all cores. Returns how long each question took (`waited_s`), and
        how many portions and partitions were read; raises what a task or a member raises. The
        first executor takes longer for what it reads."""
        places = [name for _ in range(self._cores) for name in self._names]
        numbers = iter(range(tasks))
        lock, waited_s = threading.Lock(), list[float]()
        portions: list[Mapping[str, Any]] = []

        def work(name: str) -> None:
            while True:
                with lock:
                    task = next(numbers, None)
                if task is None:
                    return
                caller = TimedCaller(self._address, plan, task, batch, taken=waited_s)
                for portion in caller.portions(lambda: name):
                    time.sleep(slow_s if name == self._names[0] else read_s)
                    portions.append(portion)

        with ThreadPoolExecutor(len(places)) as pool:
            for done in [pool.submit(work, name) for name in places]:
                done.result()
        self.check()
        read = {
            split.topic_partition for each in portions for split in read_bound_task(each).splits
        }
        return {"waited_s": waited_s, "portions": len(portions), "partitions": len(read)}

    def _start_process(self, name: str) -> None:
        directory = self._directory / name
        directory.mkdir(mode=0o700)
        setup = MemberSetup(
            NameSettings(self._group, policy="static", name=name),
            f"{self._group}.members",
            self._kafka,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            cores=float(self._cores),
        )
        ensure_member(setup, directory, Owner(self._owner.pid, start_time(self._owner.pid)))

    def _take_part(self, name: str) -> None:
        metadata = MemberMetadata(name, "host", name, float(self._cores), "option", os.getpid())
        settings = MemberSettings(
            f"{self._group}.members",
            name,
            _SESSION_MS,
            _HEARTBEAT_MS,
            300_000,
            metadata.to_bytes(),
        )
        client = parse_client_options(self._kafka, Violations())
        member, cluster = GroupMember(settings), Cluster(client)
        try:
            run_member(member, cluster, _Thread(self._closed_by))
        finally:
            cluster.close()
        if member.state is not GroupState.CLOSED:
            raise RuntimeError(f"the member {name} is {member.state}: {member.failure}")


def main() -> None:
    executors = Executors(**json.loads(sys.stdin.readline()))
    try:
        for answer in _answers(executors):
            print(json.dumps(answer), flush=True)
    finally:
        executors.close()


def _answers(executors: Executors) -> Iterator[Any]:
    yield "ready"
    for line in sys.stdin:
        order = json.loads(line)
        yield getattr(executors, order.pop("do"))(**order)


if __name__ == "__main__":
    main()
