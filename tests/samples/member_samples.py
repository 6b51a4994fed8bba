"""Tables of members as drivers leave them behind, for the tests that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keyrange.members.model.assignment import Assignment, Owned
from keyrange.members.table.assignment_schema import Command, Stored, StoredMember
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition

NOW_MS = 1_780_000_000_000
GROUP = "orders"
PARTITIONS = tuple(TopicPartition("flights", number) for number in range(3))
SLOTS = ("orders-0", "orders-1", "orders-2")


def owned(*slots: str) -> tuple[Owned, ...]:
    """The space in even parts, one for each slot."""
    spans = split_evenly(SPACE, len(slots))
    return tuple(Owned(span, slot) for span, slot in zip(spans, slots, strict=True))


def assignment(
    epoch: int, owners: Mapping[TopicPartition, tuple[Owned, ...]] | None = None
) -> Assignment:
    """Of the slots, each owns a partition, unless others are named."""
    usual = {partition: owned(slot) for partition, slot in zip(PARTITIONS, SLOTS, strict=True)}
    return Assignment(epoch, usual if owners is None else owners)


def member(slot: str, state: str = "ASSIGNED", at_ms: int = NOW_MS, **more: Any) -> StoredMember:
    number = slot.rsplit("-", 1)[-1]
    values: dict[str, Any] = {
        "name": slot,
        "slot": slot,
        "is_static": True,
        "state": state,
        "since_ms": at_ms,
        "seen_ms": at_ms,
        "host": f"10.0.0.{number}",
        "executor": number,
        "cores": 2.0,
        "source": "env:METADATA_NAME",
    }
    return StoredMember(**(values | more))


def stored(
    seq: int,
    epoch: int = 1,
    run_id: str = "run-1",
    members: Sequence[StoredMember] | None = None,
    **more: Any,
) -> Stored:
    values: dict[str, Any] = {
        "group": GROUP,
        "at_ms": NOW_MS + 1_000 * seq,
        "reason": f"because of {seq}",
        "assignment": assignment(epoch) if epoch else None,
        "membership": {"version": 1, "forced": False, "members": {}},
        "members": tuple(map(member, SLOTS) if members is None else members),
        "member_group": "orders.members",
    }
    return Stored(seq=seq, run_id=run_id, **(values | more))


def command(action: str = "rebalance", name: str = "", **more: Any) -> Command:
    values: dict[str, Any] = {
        "group": GROUP,
        "run_id": f"cli-{action}-{name}",
        "at_ms": NOW_MS + 5_500,
        "who": "ada",
        "why": "a 'new' rack\nwas added",
    }
    return Command(action=action, name=name, **(values | more))


def table_at(path: Path, group: str = GROUP, **storage: str) -> AssignmentTable:
    return open_assignments(str(path), group, storage)


def append_all(table: AssignmentTable, rows: Sequence[Stored]) -> None:
    for each in rows:
        table.append(each)
