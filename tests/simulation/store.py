"""Tables in memory by the rules of `keyrange.storage.table_store.Store`, each of whose calls may
fail: before anything is done, or after it was (then nobody knows), or late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import error
from keyrange.storage.table_store import Bounds, Conflict, Layout, Transaction
from simulation.faults import Faults


@dataclass
class Table:
    """What is durable: the rows of each version, and who wrote which transaction in which."""

    versions: list[pa.Table] = field(default_factory=list)
    transactions: list[dict[str, int]] = field(default_factory=list)
    _extents: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)

    def rows(self, version: int | None = None) -> pa.Table:
        return pa.concat_tables(self.versions[:version])

    def rows_within(self, bounds: Bounds, version: int) -> list[pa.Table]:
        """The rows of each version within all bounds."""
        return [
            rows for at in range(version) if (rows := self._within(bounds, at)) is not None and rows
        ]

    def _within(self, bounds: Bounds, at: int) -> pa.Table | None:
        rows = self.versions[at]
        for name, (least, greatest) in bounds.items():
            low, high = self._extent(at, name)
            if low is None or _below(high, least) or _below(greatest, low):
                return None
            if _below(low, least):
                rows = rows.filter(pc.greater_equal(rows.column(name), least))
            if _below(greatest, high):
                rows = rows.filter(pc.less_equal(rows.column(name), greatest))
        return rows

    def _extent(self, at: int, name: str) -> tuple[Any, Any]:
        """The least and the greatest value of a column: it spares looking at all rows."""
        if (at, name) not in self._extents:
            found = pc.min_max(self.versions[at].column(name)).as_py()
            self._extents[at, name] = (found["min"], found["max"])
        return self._extents[at, name]


class ScriptedStore:
    """A process's handle of a table: it knows the version that it looked at last."""

    def __init__(self, table: Table, faults: Faults, uri: str, layout: Layout) -> None:
        self._table, self._faults = table, faults
        self._uri, self._layout = uri, layout
        self._version: int | None = None

    @property
    def uri(self) -> str:
        return self._uri

    def refresh(self) -> bool:
        self._reading("refresh")
        self._version = len(self._table.versions) or None
        return self._version is not None

    def version_of(self, app_id: str) -> int | None:
        return None if self._version is None else self._known(app_id, self._version)

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        self._reading("read")
        schema = self._layout.schema
        names = list(columns or schema.names)
        if self._version is None:
            return pa.schema([schema.field(name) for name in names]).empty_table()
        found = self._table.rows_within(bounds, self._version)
        return pa.concat_tables(found or [schema.empty_table()]).select(names)

    def greatest(self, column: str, bounds: Bounds) -> Any:
        return pc.max(self.read(bounds, [column]).column(column)).as_py()

    def write(
        self, rows: pa.Table, transactions: Sequence[Transaction], note: Mapping[str, str]
    ) -> None:
        if self._version is None:
            self.refresh()
        for each in transactions:
            known = self.version_of(each.app_id)
            if known is not None and known != each.after:
                raise Conflict
        self._faults.at(f"write to {self._uri}")
        if self._faults.happens(self._faults.chances.fails, f"failed write to {self._uri}"):
            raise self._unwritable()
        for each in transactions:
            if self._known(each.app_id, None) != self.version_of(each.app_id):
                self._version = None
                raise Conflict
        self._table.versions.append(rows.select(self._layout.schema.names))
        self._table.transactions.append({each.app_id: each.version for each in transactions})
        self._version = len(self._table.versions)
        if self._faults.happens(self._faults.chances.lands, f"ambiguous write to {self._uri}"):
            raise self._unwritable()
        self._faults.at(f"written to {self._uri}")

    def maintain(self) -> None:
        self._faults.at(f"maintenance of {self._uri}")

    def _known(self, app_id: str, version: int | None) -> int | None:
        """The last transaction under an application id up to a version; None: of all."""
        found = [each[app_id] for each in self._table.transactions[:version] if app_id in each]
        return found[-1] if found else None

    def _reading(self, call: str) -> None:
        self._faults.at(f"{call} of {self._uri}")
        if self._faults.happens(self._faults.chances.fails, f"failed {call} of {self._uri}"):
            raise error(self._layout.conditions.unreadable, "the store is away", table=self._uri)

    def _unwritable(self) -> Exception:
        self._version = None
        return error(self._layout.conditions.unwritable, "the store is away", table=self._uri)


def _below(value: Any, bound: Any) -> bool:
    return value is not None and bound is not None and value < bound
