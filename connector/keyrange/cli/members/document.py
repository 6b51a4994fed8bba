"""What `keyrange members` prints, as plain documents: `--output json` has them as they are, and the
screens show the same.

Rule of this file: no clock and no table. What is known, and what time it is, comes in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.commits.document import bounds_of
from keyrange.cli.members.member_table import LiveGroup, LiveMember
from keyrange.cli.times import iso
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import SPACE

if TYPE_CHECKING:
    from keyrange.members.table.assignment_schema import Command, Stored, StoredMember

# Of a slot that owns ranges and has no member, and of a member that the driver has not seen.
UNKNOWN: Final = "unknown"


def describe(
    stored: Stored, waiting: Sequence[Command], now_ms: int, live: LiveGroup | None
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
        "next": _next(stored, now_ms),
        "live": None if live is None else {"state": live.state, "members": len(live.members)},
        "members": _members(stored, now_ms, live),
        "partitions": [
            {
                **partition._asdict(),
                "ranges": [
                    {"range": bounds_of(each.span), "slot": each.slot}
                    for each in _owners(stored)[partition]
                ],
            }
            for partition in sorted(_owners(stored))
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
    found = []
    for at, row in enumerate(rows):
        before = rows[at - 1] if at else None
        if before is not None or row.seq == 1:
            found.append((row.at_ms, 1, row.seq, _event(row, before)))
    begin_ms = rows[0].at_ms if rows and rows[0].seq > 1 else 0
    for each in commands:
        if each.at_ms >= begin_ms:
            # What was asked for stands before what came of it at the same millisecond.
            found.append((each.at_ms, 0, each.number, {"kind": "command", **command(each)}))
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


def _members(stored: Stored, now_ms: int, live: LiveGroup | None) -> list[dict[str, Any]]:
    shares = _shares(stored)
    present = {each.told.slot: each for each in live.members} if live is not None else {}
    known = {each.slot for each in stored.members}
    rows = [
        _member(each, shares, present.get(each.slot), live is not None, now_ms)
        for each in stored.members
    ]
    unknown = sorted((shares.keys() | present.keys()) - known)
    rows += [_stranger(slot, shares, present.get(slot), live is not None) for slot in unknown]
    return sorted(rows, key=lambda row: natural(row["slot"]))


def _member(
    member: StoredMember,
    shares: Mapping[str, Mapping[str, Any]],
    here: LiveMember | None,
    asked: bool,
    now_ms: int,
) -> dict[str, Any]:
    return {
        "name": member.name,
        "slot": member.slot,
        "static": member.is_static,
        "host": (here.told.host if here else "") or member.host or None,
        "executor": (here.told.executor if here else "") or member.executor or None,
        "cores": member.cores,
        "source": member.source or None,
        **shares.get(member.slot, _NOTHING),
        "state": member.state,
        "since": iso(member.since_ms),
        "last_seen": iso(now_ms if here else member.seen_ms),
        "last_seen_ms_ago": 0 if here else max(now_ms - member.seen_ms, 0),
        "live": here is not None if asked else None,
    }


def _stranger(
    slot: str, shares: Mapping[str, Mapping[str, Any]], here: LiveMember | None, asked: bool
) -> dict[str, Any]:
    """A slot that the driver's row knows as no member."""
    return {
        "name": here.name if here else slot,
        "slot": slot,
        "static": here.is_static if here else None,
        "host": here.told.host or None if here else None,
        "executor": here.told.executor or None if here else None,
        "cores": here.told.cores if here else None,
        "source": None,
        **shares.get(slot, _NOTHING),
        "state": UNKNOWN,
        "since": None,
        "last_seen": None,
        "last_seen_ms_ago": 0 if here else None,
        "live": here is not None if asked else None,
    }


_NOTHING: Final[Mapping[str, Any]] = {"share": 0.0, "ranges": 0, "partitions": 0}


def _shares(stored: Stored) -> dict[str, dict[str, Any]]:
    """Of each slot that owns something: its share of the hash space of all partitions, and how many
    ranges of how many partitions that is."""
    owners = _owners(stored)
    sizes: dict[str, int] = {}
    ranges: dict[str, int] = {}
    partitions: dict[str, set[TopicPartition]] = {}
    for partition, owned in owners.items():
        for each in owned:
            sizes[each.slot] = sizes.get(each.slot, 0) + each.span.size
            ranges[each.slot] = ranges.get(each.slot, 0) + 1
            partitions.setdefault(each.slot, set()).add(partition)
    return {
        slot: {
            "share": round(sizes[slot] / (len(owners) * SPACE.size), 6),
            "ranges": ranges[slot],
            "partitions": len(partitions[slot]),
        }
        for slot in sizes
    }


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key by which executor-10 comes behind executor-9."""
    import re

    parts = re.split(r"(\d+)", text)
    return tuple((1, int(part), part) if at % 2 else (0, 0, part) for at, part in enumerate(parts))
