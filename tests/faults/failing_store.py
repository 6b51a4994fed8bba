"""An assignment table in memory whose calls fail when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.members.table.assignments import TABLE_CONDITIONS
from keyrange.storage.table_store import Bounds, Conflict, Transaction


class Fault(StrEnum):
    """How a call fails: BEFORE it did anything; AFTER it, as where the answer is lost; LATE where a
    write lands behind the next call that is made."""

    BEFORE = "BEFORE"
    AFTER = "AFTER"
    LATE = "LATE"


class FailingStore:
    """A `Store`. `fault` is asked before each call, by the call's name; None for none."""

    def __init__(self, fault: Callable[[str], Fault | None] = lambda _: None) -> None:
        self.fault = fault
        self.rows: pa.Table | None = None
        self.versions: dict[str, int] = {}
        self.calls: list[str] = []
        self._late: Callable[[], None] | None = None

    @property
    def uri(self) -> str:
        return "memory"

    def refresh(self) -> bool:
        self._call("refresh", TABLE_CONDITIONS.unreadable)
        return self.rows is not None

    def version_of(self, app_id: str) -> int | None:
        return self.versions.get(app_id)

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        self._call("read", TABLE_CONDITIONS.unreadable)
        assert self.rows is not None
        found = self.rows.filter(within(bounds))
        return found if columns is None else found.select(columns)

    def greatest(self, column: str, bounds: Bounds) -> Any:
        """Asked of a kind of rows that has no transaction yet."""
        self._call("greatest", TABLE_CONDITIONS.unreadable)
        assert self.rows is not None
        found = self.rows.filter(within(bounds)).column(column).to_pylist()
        return max(found, default=None)

    def write(
        self,
        rows: pa.Table,
        transactions: Sequence[Transaction],
        note: Mapping[str, str],
    ) -> None:
        fault = self._next("write")
        if fault is Fault.BEFORE:
            raise _failed(TABLE_CONDITIONS.unwritable)
        if fault is Fault.LATE:
            self._late = lambda: self._land(rows, transactions)
            raise _failed(TABLE_CONDITIONS.unwritable)
        self._land(rows, transactions)
        if fault is Fault.AFTER:
            raise _failed(TABLE_CONDITIONS.unwritable)

    def maintain(self) -> None:
        pass

    def _land(self, rows: pa.Table, transactions: Sequence[Transaction]) -> None:
        for each in transactions:
            if self.versions.get(each.app_id) != each.after:
                raise Conflict
        self.versions |= {each.app_id: each.version for each in transactions}
        self.rows = rows if self.rows is None else pa.concat_tables([self.rows, rows])

    def _next(self, name: str) -> Fault | None:
        late, self._late = self._late, None
        self.calls.append(name)
        fault = self.fault(name)
        if late is not None:
            with suppress(Conflict):
                late()
        return fault

    def _call(self, name: str, condition: str) -> None:
        if self._next(name) is not None:
            raise _failed(condition)


def _failed(condition: str) -> KeyrangeError:
    return error(condition, "the store has failed")


def within(bounds: Bounds) -> pc.Expression | None:
    """Bounds as a filter."""
    found: pc.Expression | None = None
    for name, (least, greatest) in bounds.items():
        for value, compare in ((least, pc.Expression.__ge__), (greatest, pc.Expression.__le__)):
            if value is not None:
                term = compare(pc.field(name), pc.scalar(value))
                found = term if found is None else found & term
    return found
