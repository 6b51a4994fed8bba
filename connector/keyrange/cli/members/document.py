"""What `keyrange members` prints, as plain documents: `--output json` has them as they are, and the
screens show the same. And what commands share that look at a table of members: the table, and what
the broker says of the members of its group.

Rule of this file: no clock and nothing of Spark; only commands that are told to ask a broker do so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.document import bounds_of
from keyrange.cli.source_options import connected, of_kafka, storage_of
from keyrange.cli.values import iso
from keyrange.members.model.join_metadata import MemberMetadata, read_metadata
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition

if TYPE_CHECKING:
    from keyrange.members.coordinator_client import GroupView
    from keyrange.members.model.group_messages import Peer
    from keyrange.members.table.assignment_admin import Members
    from keyrange.members.table.assignment_schema import Command, Stored, StoredMember

MembersTableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE", help="The table of the members: a directory or a URI such as s3://..."
    ),
]


def open_table(path: str, named: Mapping[str, str]) -> Members:
    """As `assignment_admin.open_members`, with the settings of the object store among options."""
    from keyrange.members.table import assignment_admin

    return assignment_admin.open_members(path, storage_of(named))


@dataclass(frozen=True, slots=True)
class LiveMember:
    """A member that the broker knows now, and what it tells of itself."""

    name: str
    is_static: bool
    told: MemberMetadata


def ask(named: Mapping[str, str], stored: Stored) -> GroupView:
    """Ask for the members of the group that a driver's row names.

    `named` are the query's options. Raises what the source raises for them.
    """
    from keyrange.members.coordinator_client import describe_members

    with connected({**of_kafka(named), "subscribe": "none"}) as (_, cluster):
        return describe_members(cluster, stored.member_group or f"{stored.group}.members")


def live_member(view: Peer) -> LiveMember:
    """A member with what it says of itself; what is none of keyrange's has only its ids."""
    name = view.instance_id or view.member_id
    told = read_metadata(view.metadata) or MemberMetadata(name)
    told = replace(told, host=told.host or view.client_host)
    return LiveMember(name, view.instance_id is not None, told)


# Of a slot that owns ranges and has no member, and of a member that the driver has not seen.
UNKNOWN: Final = "unknown"


def describe(
    stored: Stored, waiting: Sequence[Command], now_ms: int, live: GroupView | None
) -> dict[str, Any]:
    """The members of a group and what they own, as of one row; `live` is what the broker says."""
    return {
        "group": stored.group,
        "member_group": stored.member_group or None,
        "seq": stored.seq,
        "epoch": stored.epoch,
        "at": iso(stored.at_ms),
        "age_ms": max(now_ms - stored.at_ms, 0),
        "reason": stored.reason,
        "run_id": stored.run_id,
        "expected": stored.membership.get("expected"),
        "next": _next(stored, now_ms),
        "live": None if live is None else {"state": live.state, "members": len(live.members)},
        "members": _members(stored, now_ms, live),
        "partitions": [
            {
                **partition._asdict(),
                "ranges": [{"range": bounds_of(each.span), "slot": each.slot} for each in owned],
            }
            for partition, owned in sorted(_owners(stored).items())
        ],
        "waiting": [command(each) for each in waiting],
    }


# Whom a reassignment puts out or takes in.
_DUE_STATES: Final = frozenset({"JOINING", "RESIZED", "ABSENT", "REMOVED"})


def _next(stored: Stored, now_ms: int) -> dict[str, Any] | None:
    """When key ranges will be assigned anew if nothing else happens, as the driver said last; None
    where it waits for nothing, or has not said so."""
    due_in_ms = stored.membership.get("dueInMs")
    if type(due_in_ms) is not int:
        return None
    at_ms = stored.at_ms + due_in_ms
    return {
        "at": iso(at_ms),
        "in_ms": at_ms - now_ms,
        "because": [
            {"name": each.name, "state": each.state}
            for each in stored.members
            if each.state in _DUE_STATES
        ],
    }


def command(asked: Command) -> dict[str, Any]:
    """Something that somebody asks of the driver."""
    return {
        "number": asked.number,
        "action": asked.action,
        "name": asked.name or None,
        "members": asked.members or None,
        "at": iso(asked.at_ms),
        "who": asked.who,
        "why": asked.why,
    }


def owner(stored: Stored, partition: TopicPartition | None, key_hash: int | None) -> dict[str, Any]:
    """Who owns a place of a partition: slot, host and executor, each None where it is not known."""
    slot = None
    if stored.assignment is not None and partition is not None and key_hash is not None:
        slot = stored.assignment.owner_of(partition, key_hash)
    member = next((each for each in stored.members if each.slot == slot), None)
    return {
        "slot": slot,
        "host": member.host or None if member else None,
        "executor": member.executor or None if member else None,
        "epoch": stored.epoch,
        "state": member.state if member else None,
    }


def events(
    rows: Sequence[Stored], commands: Sequence[Command], since_ms: int = 0
) -> list[dict[str, Any]]:
    """What happened, newest first, and what was asked for meanwhile. Of rows, oldest first, the
    first one only says what was before the second, unless nothing was before it."""
    begin_ms = rows[0].at_ms if rows and rows[0].seq > 1 else 0
    # What was asked for stands before what came of it at the same millisecond.
    found = [
        (each.at_ms, 0, each.number, {"kind": "command", **command(each)})
        for each in commands
        if each.at_ms >= begin_ms
    ]
    found += [
        (row.at_ms, 1, row.seq, _event(row, before))
        for before, row in zip((None, *rows), rows, strict=False)
        if before is not None or row.seq == 1
    ]
    wanted = [each for each in found if each[0] >= since_ms]
    return [event for *_, event in sorted(wanted, key=lambda each: each[:3], reverse=True)]


def _event(row: Stored, before: Stored | None) -> dict[str, Any]:
    epoch = before.epoch if before is not None else 0
    was = {each.name: each.state for each in before.members} if before is not None else {}
    return {
        "kind": "assignment" if row.epoch > epoch else "members",
        "seq": row.seq,
        "epoch": row.epoch,
        "at": iso(row.at_ms),
        "reason": row.reason,
        "run_id": row.run_id,
        "moved": _moved(before, row) if row.epoch > epoch else None,
        "members": len(row.members),
        "changed": [
            {"name": each.name, "state": each.state, "was": was.get(each.name)}
            for each in row.members
            if was.get(each.name) != each.state
        ],
        "left": sorted(was.keys() - {each.name for each in row.members}),
    }


def _moved(before: Stored | None, row: Stored) -> float | None:
    """The share of the hash space of all partitions that changed its owner; None of the first."""
    from keyrange.members.model.assignment import moved

    if before is None or before.assignment is None or row.assignment is None:
        return None
    weights = dict.fromkeys(row.assignment.owners, 1.0)
    return round(moved(before.assignment, row.assignment, weights), 6)


def _owners(stored: Stored) -> Mapping[TopicPartition, Sequence[Any]]:
    return stored.assignment.owners if stored.assignment is not None else {}


def _members(stored: Stored, now_ms: int, live: GroupView | None) -> list[dict[str, Any]]:
    shares = _shares(stored)
    there = map(live_member, live.members) if live is not None else ()
    present = {each.told.slot: each for each in there}
    unknown = (shares.keys() | present.keys()) - {each.slot for each in stored.members}
    slots = [*((each.slot, each) for each in stored.members), *((slot, None) for slot in unknown)]
    return [
        _member(slot, member, shares.get(slot, _NOTHING), present.get(slot), live, now_ms)
        for slot, member in sorted(slots, key=lambda each: natural(each[0]))
    ]


def _member(
    slot: str,
    member: StoredMember | None,
    share: Mapping[str, Any],
    here: LiveMember | None,
    live: GroupView | None,
    now_ms: int,
) -> dict[str, Any]:
    """A slot, with the member that the driver's row knows in it, and the one that is there now."""
    seen_ago = max(now_ms - member.seen_ms, 0) if member else None
    return {
        "name": member.name if member else here.name if here else slot,
        "slot": slot,
        "static": member.is_static if member else here.is_static if here else None,
        "host": (here and here.told.host) or (member and member.host) or None,
        "executor": (here and here.told.executor) or (member and member.executor) or None,
        "cores": member.cores if member else here.told.cores if here else None,
        "source": (member and member.source) or None,
        **share,
        "state": member.state if member else UNKNOWN,
        "since": iso(member.since_ms) if member else None,
        "last_seen": iso(now_ms if here else member.seen_ms) if member else None,
        "last_seen_ms_ago": 0 if here else seen_ago,
        "live": here is not None if live else None,
    }


_NOTHING: Final[Mapping[str, Any]] = {"share": 0.0, "ranges": 0, "partitions": 0}


def _shares(stored: Stored) -> dict[str, dict[str, Any]]:
    """Of each slot that owns something: its share of the hash space of all partitions, and how many
    ranges of how many partitions that is."""
    owners = _owners(stored)
    owned: dict[str, list[tuple[TopicPartition, int]]] = {}
    for partition, ranges in owners.items():
        for each in ranges:
            owned.setdefault(each.slot, []).append((partition, each.span.size))
    return {
        slot: {
            "share": round(sum(size for _, size in of_slot) / (len(owners) * SPACE.size), 6),
            "ranges": len(of_slot),
            "partitions": len({partition for partition, _ in of_slot}),
        }
        for slot, of_slot in owned.items()
    }


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which executor-10 comes behind executor-9."""
    parts = re.split(r"(\d+)", text)
    return tuple((1, int(part), part) if at % 2 else (0, 0, part) for at, part in enumerate(parts))
