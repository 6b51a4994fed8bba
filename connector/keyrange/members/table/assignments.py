"""The assignment table in Delta: which executor owns which key ranges, written by the driver.

One append-only table for each query group. A row is one transaction of the table, whose version is
the row's number, so that of two drivers one only can write a number. What people ask of a driver
are rows of another application id: they are taken between batches, and never stand in its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from keyrange.errors import KeyrangeError, error
from keyrange.members.table.assignment_rows import (
    ASSIGNMENT,
    COMMAND,
    SCHEMA,
    Command,
    Stored,
    read_rows,
    rows_of,
    same,
)
from keyrange.storage.delta_rs import DeltaRsStore
from keyrange.storage.store import Bounds, Conflict, Layout, Store, TableConditions, Transaction

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

# One log for a table, whichever group's: two groups in one table would be two drivers.
_APP_IDS: Final = {kind: f"keyrange/members/{kind}" for kind in (ASSIGNMENT, COMMAND)}
_TRIES = 10
# How many rows of a history are held at a time.
_HISTORY_AT_A_TIME = 100
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
        if store.skips_in_silence:
            raise ValueError("a store that leaves rows out in silence cannot tell two drivers")
        self._store = store
        self._group = group
        self._last: Stored | None = None
        self._run_id = ""
        # The last numbers in a table that knows no transactions, as after it was copied.
        self._copied: dict[str, int] = {}

    @property
    def uri(self) -> str:
        return self._store.uri

    def last(self) -> Stored | None:
        """The last row that a driver wrote; None where there is none."""
        found = self._number(ASSIGNMENT) if self._store.refresh() else 0
        known = self._last.seq if self._last is not None else 0
        if found < known:
            raise self._gone(f"its last row is {found}, and row {known} was there")
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
        # Where the row before is the last one that was seen, the transaction finds by itself
        # whether another has been written since.
        if self._last is None or self._last.seq != stored.seq - 1:
            self.last()
        rows = rows_of(stored)
        for _ in range(_TRIES):
            if self._is_written(stored):
                self._run_id = stored.run_id
                return
            after = stored.seq - 1 or None
            transaction = Transaction(_APP_IDS[ASSIGNMENT], stored.seq, after)
            note = {"keyrange.runId": stored.run_id, "keyrange.epoch": str(stored.epoch)}
            try:
                self._store.write(rows, [transaction], note)
            except Conflict:
                self.last()
                continue
            except KeyrangeError as failure:
                self._see(failure)
                if not self._is_written(stored):
                    raise
            self._last, self._run_id = stored, stored.run_id
            return
        raise self._outrun(stored.seq)

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Stored]:
        """The rows [from_seq, until_seq), oldest first."""
        last = self.last()
        end = last.seq + 1 if last is not None else 1
        until = end if until_seq is None else min(until_seq, end)
        before: Stored | None = None
        for at in range(max(from_seq, 1), until, _HISTORY_AT_A_TIME):
            for row in self._rows(Stored, at, min(at + _HISTORY_AT_A_TIME, until) - 1):
                if before is not None and not _follows(row, before):
                    message = f"epoch {row.epoch} cannot follow epoch {before.epoch}"
                    raise error("ASSIGNMENT_DAMAGED", message, table=self.uri, row=row.seq)
                before = row
                yield row

    def append_command(self, command: Command) -> Command:
        """Write a command behind all others; returns it with its number."""
        if command.group != self._group:
            raise ValueError(f"the command is one for group {command.group}")
        numbered = command
        for _ in range(_TRIES):
            before = self._last_command()
            numbered = replace(command, number=before + 1)
            transaction = Transaction(_APP_IDS[COMMAND], numbered.number, before or None)
            try:
                self._store.write(
                    rows_of(numbered), [transaction], {"keyrange.command": command.action}
                )
            except Conflict:
                continue
            except KeyrangeError as failure:
                self._see(failure)
                written = [each for each in self.commands(before) if same(each, numbered)]
                if not written:
                    raise
            return numbered
        raise self._outrun(numbered.number)

    def commands(self, after: int = 0) -> list[Command]:
        """The commands behind number `after`, in order.

        Raises ASSIGNMENT_CHANGED where this has written rows, and another driver has since.
        """
        last = self._last_command()
        if self._run_id:
            self._check_not_replaced(self._run_id)
        if last < after:
            raise self._gone(f"its last command is {last}, and command {after} was there")
        return self._rows(Command, after + 1, last) if last > after else []

    def maintain(self) -> None:
        """Compact and vacuum where it is time to. Failures are logged and no more."""
        self._store.maintain()

    def _last_command(self) -> int:
        return self._number(COMMAND) if self._store.refresh() else 0

    def _number(self, kind: str) -> int:
        """The number of the last row of a kind, in the table as it was found last."""
        written = self._store.version_of(_APP_IDS[kind])
        if written is not None:
            return written
        if kind not in self._copied:
            self._copied[kind] = self._store.greatest("seq", {"kind": (kind, kind)}) or 0
        return self._copied[kind]

    def _rows(self, wanted: type[_Row], first: int, last: int) -> list[_Row]:
        """The rows [first, last] of a kind. Raises ASSIGNMENT_DAMAGED where one is not there."""
        kind = ASSIGNMENT if wanted is Stored else COMMAND
        bounds: Bounds = {"kind": (kind, kind), "seq": (first, last)}
        read = read_rows(self._store.read(bounds), self.uri)
        found = {number_of(each): each for each in read if isinstance(each, wanted)}
        if len(read) != last + 1 - first or found.keys() != set(range(first, last + 1)):
            message = f"the table does not hold each {kind} from {first} to {last} once"
            raise error("ASSIGNMENT_DAMAGED", message, table=self.uri)
        for row in found.values():
            if self._group not in ("", row.group):
                message = f"the table holds the members of group {row.group}, not {self._group}"
                raise error("FOREIGN_TABLE", message, table=self.uri)
            self._group = row.group
        return [found[number] for number in sorted(found)]

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
        moved = self._number(ASSIGNMENT) != known
        last = self.last() if moved else self._last
        if last is not None and last.run_id != run_id:
            raise self._changed(last, run_id)

    def _see(self, failure: KeyrangeError) -> None:
        """Look at the table again after a write that failed: it may have landed all the same."""
        try:
            self.last()
        except KeyrangeError as second:
            if second.condition.name != TABLE_CONDITIONS.unreadable:
                raise
            message = f"{failure.message}; whether the row was written all the same cannot be seen"
            raise error(failure.condition.name, f"{message} either: {second.message}") from None

    def _changed(self, last: Stored, run_id: str) -> KeyrangeError:
        message = (
            f"run {last.run_id} has written row {last.seq} with epoch {last.epoch}, and run "
            f"{run_id} is not to write any more"
        )
        return error("ASSIGNMENT_CHANGED", message, table=self.uri, group=last.group)

    def _gone(self, what: str) -> KeyrangeError:
        message = f"rows of the table are gone: {what}"
        return error("ASSIGNMENT_GONE", message, table=self.uri)

    def _outrun(self, number: int) -> KeyrangeError:
        message = "other writers were faster every time"
        return error("ASSIGNMENT_UNWRITABLE", message, table=self.uri, row=number)


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
    return AssignmentTable(DeltaRsStore(path, LAYOUT, storage), group)
