"""The rows of an assignment table, and the form in which they are stored.

A row of kind `assignment` holds all that a driver goes on from: who owns which key ranges, who is a
member, and what it waits for. One of kind `command` is what a person asks of it. Both kinds are
numbered from 1, each by itself. Column `document` is JSON with everything, `crc` its CRC32C; the
other columns say parts of the same for SQL, and have to agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.table.state_rows import MS_MAX
from keyrange.members.model.assignment import (
    Assignment,
    Owners,
    Since,
    owners_from_json,
    owners_to_json,
)
from keyrange.storage.stored_checksum import crc32c

_TIME = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("kind", pa.string()),
        ("seq", pa.int64()),
        ("epoch", pa.int64()),
        ("at", _TIME),
        ("run_id", pa.string()),
        ("reason", pa.string()),
        ("who", pa.string()),
        ("why", pa.string()),
        ("document", pa.string()),
        ("crc", pa.int64()),
    ]
)
ASSIGNMENT: Final = "assignment"
COMMAND: Final = "command"
ACTIONS: Final = ("rebalance", "remove", "scale")

REACHED: Final = "yes"
TRIED: Final = "tried"
_VERSION: Final = 1
_NUMBER_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member as the driver saw it: in `state` since `since_ms`, and there last at `seen_ms`.

    `name` is what it is called in Kafka's group, `slot` what is pinned; `source` says where the
    name came from. `executor` is empty for a member that is none of Spark's.
    """

    name: str
    slot: str
    is_static: bool
    state: str
    since_ms: int
    seen_ms: int
    host: str = ""
    executor: str = ""
    cores: float = 1.0
    source: str = ""
    rack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a driver wrote: row `seq` of its table.

    `run_id` is the driver's own, made up when it began. `assignment` is None while there is none
    yet; a row with the epoch of the one before says that something about the members changed.
    `since` says which assignment gave each slot the ranges that it has had without a break.
    `standbys` are the slots that keep copies of the state of ranges that others own.
    `membership` is the state of `reassignment_timing.py` as JSON. `commands_until` is the number
    of the last command that the driver has taken, `member_group` the Kafka group of the members.
    `reached` says whether executors have reached a driver, and it is tried where a run relies on
    that and has not seen it yet; "" where nobody knows.
    """

    seq: int
    group: str
    run_id: str
    at_ms: int
    reason: str
    assignment: Assignment | None = None
    since: Mapping[str, Since] = field(default_factory=dict)
    standbys: Owners = field(default_factory=dict)
    membership: Mapping[str, Any] = field(default_factory=dict)
    members: tuple[StoredMember, ...] = ()
    member_group: str = ""
    commands_until: int = 0
    reached: str = ""

    @property
    def epoch(self) -> int:
        return self.assignment.epoch if self.assignment is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What somebody asks of the driver: `rebalance`, `remove` the member `name`, or `scale`: say
    that there are to be so many `members`, 0 for other actions.

    `run_id` is made up for each command. `number` 0 stands for one that is not written yet.
    """

    group: str
    run_id: str
    action: str
    at_ms: int
    who: str
    why: str
    name: str = ""
    members: int = 0
    number: int = 0

    def __post_init__(self) -> None:
        fits = (self.action == "remove") == bool(self.name)
        fits = fits and (self.action == "scale") == (self.members > 0)
        if self.action not in ACTIONS or not fits:
            raise ValueError(f"{self.action} of {self.name!r}, {self.members} is no command")

    @property
    def text(self) -> str:
        """The action and what it is of."""
        return " ".join(filter(None, (self.action, self.name, str(self.members or ""))))


def rows_of(row: Stored | Command) -> pa.Table:
    """One row of `SCHEMA`. Raises ValueError for what could not be read again."""
    values = _columns(row)
    text = _text(row)
    _parse(json.loads(text))
    values |= {"document": text, "crc": crc32c(text.encode())}
    return pa.Table.from_pylist([values], SCHEMA)


def same(one: Stored | Command, other: Stored | Command) -> bool:
    """Whether two rows are the same one."""
    return _text(one) == _text(other)


def read_rows(table: pa.Table, uri: str) -> list[Stored | Command]:
    """The rows of a table, each as it was written, in no order.

    Raises ASSIGNMENT_DAMAGED where one is not as it was written, UNSUPPORTED_ASSIGNMENT for one of
    a newer version.
    """
    micros = pc.cast(pc.cast(table.column("at"), _TIME), pa.int64())
    table = table.set_column(table.column_names.index("at"), "at", micros)
    return [_read(row, uri) for row in table.to_pylist()]


def _columns(row: Stored | Command) -> dict[str, Any]:
    """What the plain columns say of a row."""
    number = row.seq if isinstance(row, Stored) else row.number
    if not 1 <= number <= _NUMBER_MAX or not 0 <= row.at_ms <= MS_MAX:
        raise ValueError(f"row {number} at {row.at_ms} ms cannot be")
    common = {"group": row.group, "at": row.at_ms * 1000, "run_id": row.run_id, "seq": number}
    if isinstance(row, Stored):
        more = {"epoch": row.epoch, "reason": row.reason, "who": None, "why": None}
        return {**common, "kind": ASSIGNMENT, **more}
    more = {"epoch": None, "reason": row.text, "who": row.who, "why": row.why}
    return {**common, "kind": COMMAND, **more}


def _text(row: Stored | Command) -> str:
    document = _assignment_json(row) if isinstance(row, Stored) else _command_json(row)
    document |= {"v": _VERSION}
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _assignment_json(row: Stored) -> dict[str, Any]:
    return {each.name: getattr(row, each.name) for each in fields(row)} | {
        "kind": ASSIGNMENT,
        "assignment": None if row.assignment is None else row.assignment.to_json(),
        "since": {slot: [each.run, each.epoch] for slot, each in row.since.items()},
        "standbys": owners_to_json(row.standbys),
        "membership": dict(row.membership),
        "members": [asdict(each) | {"cores": float(each.cores)} for each in row.members],
    }


def _command_json(row: Command) -> dict[str, Any]:
    return {"kind": COMMAND} | asdict(row)


# The names of what is stored, with their types.
_COMMAND: Final[Mapping[str, Any]] = {each.name: each.type for each in fields(Command)}
_MEMBER: Final[Mapping[str, Any]] = {each.name: each.type for each in fields(StoredMember)}
_STORED: Final[Mapping[str, Any]] = {
    **{each.name: each.type for each in fields(Stored) if each.name != "assignment"},
    "since": "dict",
    "standbys": "dict",
    "membership": "dict",
    "members": "list",
}


def _read(row: Mapping[str, Any], uri: str) -> Stored | Command:
    where = {"table": uri, "row": row["seq"]}
    try:
        text, crc = row["document"], row["crc"]
        if text is None or crc is None:
            raise ValueError("it has no document")
        # Before anything of it: damage is not to be taken for a newer version.
        if crc32c(text.encode()) != crc:
            raise ValueError("the CRC32C does not match the document")
        document = json.loads(text, parse_constant=_no_number)
        if not isinstance(document, dict):
            raise ValueError("the document is no object")
        version = document.get("v")
        if type(version) is int and version > _VERSION:
            message = f"a row has version {version}, and {_VERSION} is known"
            raise error("UNSUPPORTED_ASSIGNMENT", message, **where)
        found = _parse(document)
        expected = _columns(found)
        if differing := ", ".join(name for name in expected if row[name] != expected[name]):
            raise ValueError(f"columns {differing} and the document do not agree")
        return found
    except (ValueError, RecursionError) as fault:
        raise error("ASSIGNMENT_DAMAGED", str(fault), **where) from None
    except KeyrangeError as failure:
        if failure.condition.name != "INVALID_ASSIGNMENT":
            raise
        raise error("ASSIGNMENT_DAMAGED", failure.message, **where) from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _parse(document: dict[str, Any]) -> Stored | Command:
    """Raises ValueError for what was never written, INVALID_ASSIGNMENT as `Assignment` does."""
    version, kind = document.pop("v", None), document.pop("kind", None)
    if type(version) is not int or version != _VERSION:
        raise ValueError(f"{version!r} is no version")
    if kind == COMMAND:
        return Command(**_fields(document, _COMMAND))
    if kind == ASSIGNMENT:
        return _stored(document)
    raise ValueError(f"{kind!r} is no kind of row")


def _stored(document: dict[str, Any]) -> Stored:
    found = document.pop("assignment", None)
    assignment = None if found is None else Assignment.from_json(found)
    values = _fields(document, _STORED)
    since = {slot: Since(*_pair(each)) for slot, each in values.pop("since").items()}
    standbys = owners_from_json(values.pop("standbys"))
    members = tuple(StoredMember(**_fields(each, _MEMBER)) for each in values.pop("members"))
    return Stored(**values, members=members, assignment=assignment, since=since, standbys=standbys)


def _pair(document: Any) -> tuple[str, int]:
    run, epoch = document
    if type(run) is not str or type(epoch) is not int or epoch < 1:
        raise ValueError("since when a slot has its ranges is not said")
    return run, epoch


def _fields(document: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an object with exactly these names. Raises ValueError."""
    if not isinstance(document, dict) or document.keys() != kinds.keys():
        raise ValueError(f"what has to have {', '.join(kinds)} has others")
    for name, kind in kinds.items():
        # A bool is an int to Python, and none to those who wrote it.
        if type(document[name]).__name__ != kind:
            raise ValueError(f"{name} is no {kind}")
    return document
