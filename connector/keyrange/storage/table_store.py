"""A Delta table as a place for rows: what the commit table and the dead letters ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from keyrange.errors import error

# For each column the least and the greatest value that is asked for, both included; None for none.
Bounds = Mapping[str, tuple[Any, Any]]

KIND = "keyrange.table"
VERSION = "keyrange.version"
# Forgotten transactions could be written twice. delta-rs does not write down when one was made, and
# Spark forgets those at once where this property is set.
RETENTION_OF_TRANSACTIONS = "delta.setTransactionRetentionDuration"


class Conflict(Exception):
    """Another commit has been written under the same application id meanwhile."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """What rows are written under: `version` of `app_id`, and the version before it, None for
    none."""

    app_id: str
    version: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConditions:
    """The conditions of the catalogue by which the failures of one kind of table are known."""

    # The table was deleted or replaced, or files that its log names were.
    gone: str
    # The stored rows, or the log itself, contradict themselves.
    damaged: str
    # A newer version wrote it.
    unsupported: str
    # The store fails, or cannot be reached.
    unreadable: str
    unwritable: str
    # Rows are gone that were there before: an older copy stands in the table's place.
    behind: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table is to look like, and how its failures are named. `kind` and `version` stand in
    its properties. Delta keeps the least and greatest value of the columns in `indexed` for each
    file; compaction puts together what is near in `order`, one of them."""

    kind: str
    version: int
    schema: pa.Schema
    indexed: tuple[str, ...]
    order: str
    conditions: TableConditions

    def properties(self) -> dict[str, str]:
        return {
            KIND: self.kind,
            VERSION: str(self.version),
            "delta.appendOnly": "true",
            "delta.dataSkippingStatsColumns": ",".join(self.indexed),
            "delta.checkpointInterval": "100",
            # Every commit lists the log: ten thousand files there cost it half as much again, fifty
            # thousand five times as much. The history is in the rows, and a reader that falls
            # behind opens the table anew.
            "delta.logRetentionDuration": "interval 30 minutes",
            "delta.enableExpiredLogCleanup": "true",
            # A reader that began before a compaction has so long to finish; Delta does not want it
            # to be longer than the other one.
            "delta.deletedFileRetentionDuration": "interval 30 minutes",
        }

    def check(self, properties: Mapping[str, str | None], columns: pa.Schema, uri: str) -> None:
        """Raises FOREIGN_TABLE for a table that is not one of this kind or was altered,
        `unsupported` for one of a newer version."""
        if properties.get(KIND) != self.kind:
            message = f"the table is not one of keyrange's {self.kind}"
            raise error("FOREIGN_TABLE", message, table=uri)
        version = properties.get(VERSION) or ""
        if not version.isdigit() or int(version) > self.version:
            message = f"the table has version {version!r}, and {self.version} is known"
            raise error(self.conditions.unsupported, message, table=uri)
        if properties.get(RETENTION_OF_TRANSACTIONS) is not None:
            message = f"property {RETENTION_OF_TRANSACTIONS} is set, and may not be"
            raise error("FOREIGN_TABLE", message, table=uri)
        differing = {(each.name, _plain(each.type)) for each in self.schema}
        differing ^= {(each.name, _plain(each.type)) for each in columns}
        if differing:
            names = ", ".join(sorted({name for name, _ in differing}))
            raise error("FOREIGN_TABLE", f"columns of the table were altered: {names}", table=uri)


class Store(Protocol):
    """One table. All calls but `refresh` mean the table as the last `refresh` found it, and what
    was written since. They raise KeyrangeError of the conditions that the table's layout names."""

    @property
    def uri(self) -> str: ...

    def refresh(self) -> bool:
        """See what others have written; False where there is no table.

        Raises `gone` where there was one before, and it is gone or another.
        """
        ...

    def version_of(self, app_id: str) -> int | None:
        """The version of the last transaction under an application id; None where none is known."""
        ...

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows within all bounds, in no order."""
        ...

    def greatest(self, column: str, bounds: Bounds) -> Any:
        """The greatest value of a column among the rows within all bounds; None without rows."""
        ...

    def write(
        self, rows: pa.Table, transactions: Sequence[Transaction], note: Mapping[str, str]
    ) -> None:
        """Append rows, and make the table where there is none. `note` goes into the log.

        Raises Conflict where another transaction than its `after` was the last of one, or the
        table is not the one that it was, `unwritable` where the store failed: the rows may have
        been written all the same.
        """
        ...

    def maintain(self) -> None:
        """Compact what is small, drop what nobody reads, where it is time to do so."""
        ...


def _plain(kind: pa.DataType) -> str:
    """A type without what each engine calls in its own way: time zones, elements of lists."""
    if pa.types.is_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name} {_plain(each.type)}' for each in kind)}>"
    if pa.types.is_timestamp(kind):
        return f"timestamp<{kind.unit}, {'zoned' if kind.tz else 'local'}>"
    return str(kind)
