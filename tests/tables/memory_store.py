"""A Delta table in memory, and what others do while one handle calls.

`Shared` is the table itself. A `MemoryStore` is one handle on it: like delta-rs it refuses a
transaction that is not the next one of its application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.individual_commits.table.commit_schema import SCHEMA
from keyrange.storage.table_store import Bounds, Conflict, Transaction


@dataclass
class Shared:
    """The rows of a table by version, and its transactions. `hook` is called before every call of
    a store, with what is called, and `landed` with the rows of every write."""

    parts: list[pa.Table] = field(default_factory=list)
    firsts: list[dict[str, Any]] = field(default_factory=list)
    transactions: dict[str, int] = field(default_factory=dict)
    hook: Callable[[str], None] = lambda _: None
    landed: Callable[[pa.Table], None] = lambda _: None

    def add(self, rows: pa.Table) -> None:
        self.parts.append(rows)
        self.firsts.append(rows.slice(0, 1).to_pylist()[0])
        self.landed(rows)


_EMPTY = SCHEMA.empty_table()


class MemoryStore:
    """One handle on a table, which sees it as its last `refresh` found it."""

    uri = "memory"

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._seen = 0
        self._transactions: dict[str, int] = {}

    def refresh(self) -> bool:
        self._shared.hook("refresh")
        self._look()
        return bool(self._shared.parts)

    def _look(self) -> None:
        self._seen = len(self._shared.parts)
        self._transactions = dict(self._shared.transactions)

    def version_of(self, app_id: str) -> int | None:
        return self._transactions.get(app_id)

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        self._shared.hook("read")
        parts = zip(self._shared.parts[: self._seen], self._shared.firsts, strict=False)
        # A part is one commit, whose rows agree in what is asked for.
        found = [rows for rows, first in parts if _is_within(first, bounds)]
        if columns:
            found = [rows.select(columns) for rows in found]
        return pa.concat_tables(found) if found else _EMPTY.select(columns or SCHEMA.names)

    def greatest(self, column: str, bounds: Bounds) -> Any:
        return pc.max(self.read(bounds, [column]).column(column)).as_py()

    def write(
        self,
        rows: pa.Table,
        transactions: Sequence[Transaction],
        note: Mapping[str, str],
    ) -> None:
        self._shared.hook("write")
        known = self._shared.transactions
        for each in transactions:
            if known.get(each.app_id) not in (None, each.after):
                raise Conflict
        known.update({each.app_id: each.version for each in transactions})
        self._shared.add(rows)
        self._look()

    def maintain(self) -> None:
        """Nothing grows here that would have to be kept small."""


def _is_within(row: Mapping[str, Any], bounds: Bounds) -> bool:
    for name, (least, greatest) in bounds.items():
        value = row[name]
        if value is None or (least is not None and value < least):
            return False
        if greatest is not None and value > greatest:
            return False
    return True
