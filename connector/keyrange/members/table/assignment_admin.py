"""What people do to an assignment table by hand: look into it, and ask something of the driver."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from keyrange.errors import invalid_options
from keyrange.members.table.assignment_schema import Command, Stored
from keyrange.members.table.assignments import AssignmentTable, open_assignments


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a group as its driver wrote them last; `waiting` are the commands that it has
    not taken yet."""

    path: str
    table: AssignmentTable
    last: Stored
    waiting: tuple[Command, ...]

    def recent(self, limit: int) -> list[Stored]:
        """The last rows, oldest first, and the one before them where there is one."""
        return list(self.table.history(self.last.seq - limit))


def open_members(path: str, storage: Mapping[str, str]) -> Members:
    """The members in the table at `path`.

    Raises INVALID_OPTIONS where no driver has written one there, and what an `AssignmentTable`
    raises.
    """
    table = open_assignments(path, "", storage)
    last = table.last()
    if last is None:
        raise invalid_options(f"there is no table of members at {path}")
    return Members(path, table, last, tuple(table.commands(last.commands_until)))


def write_command(
    members: Members, action: str, name: str, who: str, why: str, now_ms: int, count: int = 0
) -> Command:
    """Ask the driver for something; `name` is the member that is to be removed, `count` how many
    there are to be.

    Returns the command with its number. Raises INVALID_OPTIONS for a member that is not known.
    """
    if name:
        check_known(members, name)
    command = Command(
        group=members.last.group,
        run_id=str(uuid.uuid4()),
        action=action,
        name=name,
        members=count,
        at_ms=now_ms,
        who=_storable(who),
        why=_storable(why),
    )
    return members.table.append_command(command)


def check_known(members: Members, name: str) -> None:
    """Raises INVALID_OPTIONS for a name that no member and no slot has."""
    last = members.last
    slots = last.assignment.slots if last.assignment is not None else []
    known = {*slots, *(each.name for each in last.members)}
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise invalid_options(f"{members.path} holds no member {name}; its members are: {names}")


def _storable(text: str) -> str:
    """What a terminal gave, without what is no UTF-8."""
    return text.encode("utf-8", "replace").decode()
