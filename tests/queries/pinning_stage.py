"""A pinning whose Kafka group and clocks a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from keyrange.members import pinning as module
from keyrange.members.coordinator_client import GroupView
from keyrange.members.model.group_messages import Peer
from keyrange.members.model.join_metadata import MemberMetadata
from keyrange.members.pinning import Pinning
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SIZES = dict.fromkeys(PARTITIONS, 1000.0)


class Stage:
    """A pinning whose Kafka group and clocks a test sets."""

    def __init__(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: list[str] = []
        # Host and rack, of those that are not on host h.
        self.places: dict[str, tuple[str, str]] = {}
        self.state = "Stable"
        self.now_ms = 1_000_000
        self.removed: list[str] = []
        self.table = table
        monkeypatch.setattr(module, "describe_members", lambda *_: self.group())
        monkeypatch.setattr(
            module, "remove_member", lambda _, __, name: self.removed.append(name) or True
        )
        monkeypatch.setattr(module, "passed_ms", lambda: self.now_ms)
        self.made: list[Pinning] = []

    def group(self) -> GroupView:
        """In a rebalance the coordinator tells nobody's metadata."""
        is_stable = self.state == "Stable"
        places = {name: self.places.get(name, ("h", "")) for name in self.there}
        told = {
            name: MemberMetadata(name, host, "0", 2.0, rack=rack).to_bytes()
            for name, (host, rack) in places.items()
        }
        members = [
            Peer(f"id-{name}", name, data if is_stable else b"", "/10.0.0.1")
            for name, data in told.items()
        ]
        return GroupView(self.state, tuple(members))

    def pinning(self, **given: str) -> Pinning:
        self.given = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "splitBy": "keyRange",
            "pin": "prefer",
            "memberTable": str(self.table),
            "memberGroup": "g",
            "heartbeat.interval.ms": "1",
            "expansion.timeout.ms": "1000",
            "registration.timeout.ms": "60000",
            **given,
        }
        parsed = parse_options(self.given, "stream")
        made = Pinning(parsed, None)  # type: ignore[arg-type]  # what it asks is set above
        self.made.append(made)
        return made

    def look(self, pinning: Pinning, *there: str, after_ms: int = 0) -> None:
        self.there = list(there)
        self.now_ms += after_ms
        pinning._look_again_at = 0.0
        pinning.look()

    def rows(self) -> AssignmentTable:
        return open_assignments(str(self.table), "g", {})


def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """For a fixture of a test's own."""
    stage = Stage(tmp_path / "members", monkeypatch)
    yield stage
    for each in stage.made:
        each.close()


def assigned(stage: Stage, *names: str, **given: str) -> Pinning:
    """A pinning whose members are taken in."""
    pinning = stage.pinning(**given)
    pinning.take_in(SIZES, PARTITIONS)
    stage.look(pinning, *names)
    stage.look(pinning, *names, after_ms=1000)
    return pinning


def owners(pinning: Pinning) -> dict[TopicPartition, list[str]]:
    assert pinning.assignment is not None
    return {
        partition: [each.slot for each in owned]
        for partition, owned in pinning.assignment.owners.items()
    }
