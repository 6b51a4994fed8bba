"""Stand-ins for executors, and the member processes that they have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from brokers.real_broker import wait_until
from keyrange.embedded.broker import EmbeddedCluster
from keyrange.kafka.cluster import Cluster
from keyrange.members.coordinator_client import GroupView, describe_members
from keyrange.members.executor import Owner
from keyrange.members.executor_names import NameSettings
from keyrange.members.launch import ensure_member, member_directory
from keyrange.members.status import MemberSetup, MemberStatus, read_status
from keyrange.options.kafka_properties import ClientSettings
from keyrange.ranges.sharing.shared_directory import is_alive, start_time

# Short, and still long enough for a machine that is busy.
SESSION_MS = 6_000


def end_member(setup: MemberSetup, directory: Path) -> None:
    """SIGTERM to the member of a setup's group, if there is one; returns when it is gone."""
    status = read_status(member_directory(setup, directory))
    if status is not None and is_alive(status.pid, status.started):
        os.kill(status.pid, signal.SIGTERM)
        wait_until(lambda: not is_alive(status.pid, status.started))


@dataclass
class Executor:
    """A process that stands for an executor's JVM, with a directory of its own."""

    process: subprocess.Popen[bytes]
    directory: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start(self, setup: MemberSetup) -> MemberStatus | None:
        owner = Owner(self.process.pid, start_time(self.process.pid))
        return ensure_member(setup, self.directory, owner)

    def status(self, setup: MemberSetup) -> MemberStatus:
        return read_status(member_directory(setup, self.directory)) or MemberStatus()

    def until(self, setup: MemberSetup, state: str) -> MemberStatus:
        """Wait for a state; fails where the member ends in another one."""

        def reached() -> bool:
            status = self.status(setup)
            assert status.state == state or not status.ended, status
            return status.state == state

        wait_until(reached)
        return self.status(setup)


Start = Callable[[], Executor]


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Start]:
    """Makes executors; their members are gone at the end of the test."""
    made: list[Executor] = []

    def make() -> Executor:
        directory = tmp_path / f"executor-{len(made)}"
        directory.mkdir(mode=0o700)
        made.append(Executor(subprocess.Popen(["sleep", "600"]), directory))
        return made[-1]

    yield make
    statuses = [
        status
        for each in made
        for path in each.directory.glob("member-*")
        if (status := read_status(path)) is not None
    ]
    for each in made:
        each.kill()
    wait_until(lambda: not any(is_alive(each.pid, each.started) for each in statuses))


def setup_at(cluster: EmbeddedCluster, name: str = "", **values: Any) -> MemberSetup:
    """A member of a group of its own; without a name a dynamic one."""
    group = f"orders-{uuid.uuid4().hex[:12]}"
    names = NameSettings(group, policy="static" if name else "dynamic", name=name)
    setup = MemberSetup(
        names,
        f"{group}.members",
        {"bootstrap.servers": cluster.bootstrap_servers},
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
    )
    return replace(setup, **values)


def named(setup: MemberSetup, name: str) -> MemberSetup:
    """The setup of another executor of the same group."""
    return replace(setup, names=replace(setup.names, name=name))


@contextlib.contextmanager
def client_of(cluster: EmbeddedCluster) -> Iterator[Cluster]:
    servers = [each.split(":") for each in cluster.bootstrap_servers.split(",")]
    addresses = tuple((host, int(port)) for host, port in servers)
    client = Cluster(ClientSettings(bootstrap_servers=addresses))
    try:
        yield client
    finally:
        client.close()


def described(cluster: EmbeddedCluster, setup: MemberSetup) -> GroupView:
    """A group as its coordinator has it."""
    with client_of(cluster) as client:
        return describe_members(client, setup.member_group)
