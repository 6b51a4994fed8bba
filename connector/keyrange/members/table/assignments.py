"""The assignment table in Delta: which executor owns which key ranges, written by the driver.

One append-only table for each query group. A row is one transaction of the table, whose version is
the row's number, so that of two drivers one only can write a number. What people ask of a driver
are rows of another application id: they are taken between batches, and never stand in its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.members.table.assignment_schema import (
    ASSIGNMENT,
    COMMAND,
    SCHEMA,
    Command,
    Stored,
    read_rows,
    rows_of,
    same,
)
from keyrange.storage.conflict_retry import Entry
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.numbered_log import NumberedLog, pages
from keyrange.storage.table_store import Layout, Store, TableConditions

TABLE_CONDITIONS: Final = TableConditions(
    gone="ASSIGNMENT_GONE",
    damaged="ASSIGNMENT_DAMAGED",
    unsupported="UNSUPPORTED_ASSIGNMENT",
    unreadable="ASSIGNMENT_UNREADABLE",
    unwritable="ASSIGNMENT_UNWRITABLE",
    behind="ASSIGNMENT_GONE",
)
LAYOUT: Final = Layout(
    "members", 1, SCHEMA, ("kind", "seq", "epoch", "at"), "seq", TABLE_CONDITIONS
)

_Row = TypeVar("_Row", Stored, Command)


class AssignmentTable:
    """The assignment of one group. What was read last is kept: where nothing was written since,
    every call is one look at the table's log.

    `group` "" stands for whichever group's table it is. All calls raise KeyrangeError:
    FOREIGN_TABLE for a table that is not one of these or is another group's, ASSIGNMENT_DAMAGED,
    UNSUPPORTED_ASSIGNMENT, ASSIGNMENT_GONE where the table or rows of it are gone that were there
    before, ASSIGNMENT_UNREADABLE, ASSIGNMENT_UNWRITABLE.
    """

    def __init__(self, store: Store, group: str = "") -> None:
        self._store = store
        self._group = group
        self._last: Stored | None = None
        self._run_id = ""
        # One log for a table, whichever group's: two groups in one table would be two drivers.
        self._assignments, self._commands = (
            NumberedLog(
                store, TABLE_CONDITIONS, noun, f"keyrange/members/{kind}", "seq", {"kind": kind}
            )
            for kind, noun in ((ASSIGNMENT, "row"), (COMMAND, "command"))
        )

    @property
    def uri(self) -> str:
        return self._store.uri

    def last(self) -> Stored | None:
        """The last row that a driver wrote; None where there is none."""
        known = self._last.seq if self._last is not None else 0
        found = self._assignments.last(known)
        if found > known:
            [self._last] = self._rows(Stored, found, found)
        return self._last

    def append(self, stored: Stored) -> None:
        """Write the row that follows row `stored.seq - 1`. Written once more it changes nothing.

        Raises ASSIGNMENT_CHANGED where another driver has written since this one's last row, or in
        its place. ValueError for a row of another group, or one whose epoch cannot follow.
        """
        if stored.group != self._group:
            raise ValueError(f"the row is one of group {stored.group}")
        rows = rows_of(stored)
        note = {"keyrange.runId": stored.run_id, "keyrange.epoch": str(stored.epoch)}
        # Where the row before is the last one that was seen, the transaction finds by itself
        # whether another has been written since.
        looks = iter([self._last is None or self._last.seq != stored.seq - 1])

        def next_entry() -> Entry | None:
            if next(looks, True):
                self.last()
            if self._is_written(stored):
                return None
            return self._assignments.entry(stored.seq, rows, note)

        if self._assignments.append(next_entry):
            self._last = stored
        self._run_id = stored.run_id

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Stored]:
        """The rows [from_seq, until_seq), oldest first."""
        last, before = self.last(), None
        seen = last.seq if last is not None else 0
        for page in pages(from_seq, until_seq, seen):
            for row in self._rows(Stored, page[0], page[-1]):
                if before is not None and not _follows(row, before):
                    message = f"epoch {row.epoch} cannot follow epoch {before.epoch}"
                    raise error(TABLE_CONDITIONS.damaged, message, table=self.uri, row=row.seq)
                before = row
                yield row

    def append_command(self, command: Command) -> Command:
        """Write a command behind all others; returns it with its number."""
        if command.group != self._group:
            raise ValueError(f"the command is one for group {command.group}")
        numbered = command

        def next_entry() -> Entry | None:
            nonlocal numbered
            last = self._commands.last()
            if numbered.number and last >= numbered.number:
                rows = self._rows(Command, numbered.number, numbered.number)
                if any(same(each, numbered) for each in rows):
                    return None
            numbered = replace(command, number=last + 1)
            note = {"keyrange.command": command.action}
            return self._commands.entry(numbered.number, rows_of(numbered), note)

        self._commands.append(next_entry)
        return numbered

    def commands(self, after: int = 0) -> list[Command]:
        """The commands behind number `after`, in order.

        Raises ASSIGNMENT_CHANGED where this has written rows, and another driver has since.
        """
        last = self._commands.last()
        if self._run_id:
            self._check_not_replaced(self._run_id)
        self._commands.check_reached(last, after)
        return self._rows(Command, after + 1, last)

    def maintain(self) -> None:
        """Compact and vacuum where it is time to. Failures are logged and no more."""
        self._store.maintain()

    def _rows(self, wanted: type[_Row], first: int, last: int) -> list[_Row]:
        """The rows [first, last] of a kind. Raises ASSIGNMENT_DAMAGED where one is not there."""
        log = self._assignments if wanted is Stored else self._commands

        def parse(table: pa.Table) -> list[_Row]:
            return [row for row in read_rows(table, self.uri) if isinstance(row, wanted)]

        rows = log.read(first, last, parse, number_of)
        for row in rows:
            if self._group not in ("", row.group):
                message = f"the table holds the members of group {row.group}, not {self._group}"
                raise error("FOREIGN_TABLE", message, table=self.uri)
            self._group = row.group
        return rows

    def _is_written(self, stored: Stored) -> bool:
        """Whether a row is in the table as it was found last; it may follow there if not.

        Raises ASSIGNMENT_CHANGED.
        """
        last = self._last
        if last is not None and last.seq >= stored.seq:
            if last.seq == stored.seq and same(last, stored):
                return True
            raise self._changed(last, stored.run_id)
        if (last.seq if last is not None else 0) != stored.seq - 1:
            raise ValueError(f"row {stored.seq} cannot follow row {last.seq if last else 0}")
        if self._run_id == stored.run_id and last is not None and last.run_id != stored.run_id:
            raise self._changed(last, stored.run_id)
        if last is not None and not _follows(stored, last):
            raise ValueError(f"epoch {stored.epoch} cannot follow epoch {last.epoch}")
        return False

    def _check_not_replaced(self, run_id: str) -> None:
        known = self._last.seq if self._last is not None else 0
        moved = self._assignments.seen_last() != known
        last = self.last() if moved else self._last
        if last is not None and last.run_id != run_id:
            raise self._changed(last, run_id)

    def _changed(self, last: Stored, run_id: str) -> KeyrangeError:
        message = (
            f"run {last.run_id} has written row {last.seq} with epoch {last.epoch}, and run "
            f"{run_id} is not to write any more"
        )
        return error("ASSIGNMENT_CHANGED", message, table=self.uri, group=last.group)


def number_of(row: Stored | Command) -> int:
    return row.seq if isinstance(row, Stored) else row.number


def _follows(row: Stored, before: Stored) -> bool:
    """An epoch only grows, and is one assignment."""
    if row.epoch == before.epoch:
        return row.assignment == before.assignment
    return row.epoch > before.epoch


def open_assignments(path: str, group: str, storage: Mapping[str, str]) -> AssignmentTable:
    """The assignment of a group, by delta-rs. `storage` are settings of the object store.

    Nothing is opened before the first call. Raises PACKAGE_NOT_FOUND without deltalake.
    """
    return AssignmentTable(DeltaStore(path, LAYOUT, storage), group)
