"""Rows in files that are no part of a Delta table until Spark's Delta or delta-rs writes them into
it: what both writers have to know."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Protocol

from keyrange.storage.data_files import DataFile, check_there
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.directory import Directory
from keyrange.storage.last_rows import CHANGE
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.model.writer_rules import WriterRules

# In the statistics of such a file: the columns that some of its rows leave as they are.
_KEPT: Final = "keptColumns"


@dataclass(frozen=True)
class Staged:
    """Files in the directory `location` with rows of a table and their `CHANGE`. `columns` are the
    table's among them, `schema` is Spark's JSON of these; `storage`: settings of the object
    store. `keys`: those by which rows are merged; none where they are appended. `evolves`: the
    table lacks columns or types of theirs, and is to get them. `transactions`: the new versions of
    some applications that are written with them, the first of which is that of the batch, and
    `note`, what the log is to keep."""

    location: str
    files: Sequence[DataFile]
    keys: tuple[str, ...]
    schema: Mapping[str, Any]
    partition_by: tuple[PartitionColumn, ...] = ()
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    evolves: bool = False
    transactions: Mapping[str, int] = field(default_factory=dict)
    note: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        own = [each["name"] for each in self.schema["fields"]]
        return own + [each.name for each in self.partition_by if each.unit is not None]

    @property
    def pruning(self) -> list[str]:
        """The partition columns of which a key alone says what they are: other partitions have no
        row of it."""
        return [each.name for each in self.partition_by if (each.source or each.name) in self.keys]

    @property
    def may_be_null(self) -> set[str]:
        """The keys of which an empty text is null in the table: partition columns are read so."""
        texts = {each["name"] for each in self.schema["fields"] if each["type"] == "string"}
        return {each.name for each in self.partition_by if each.name in texts & {*self.keys}}

    def bounds(self) -> dict[str, tuple[Any, Any]]:
        """The least and the greatest value of keys, where all files tell them."""
        told = [json.loads(each.statistics) for each in self.files]
        return {
            name: (
                min(each["minValues"][name] for each in told),
                max(each["maxValues"][name] for each in told),
            )
            for name in self.keys
            if all(
                isinstance(each[which].get(name), int)
                for each in told
                for which in ("minValues", "maxValues")
            )
        }

    @property
    def kept(self) -> dict[str, str]:
        """The columns that some rows leave as they are, each with a name for the column that says
        of a row whether it does."""
        told = (json.loads(each.statistics).get(_KEPT, ()) for each in self.files)
        names = sorted(set(chain.from_iterable(told)))
        return {name: f"{CHANGE}_kept_{number}" for number, name in enumerate(names)}

    def check(self, batch_id: int) -> None:
        """Raises VERDICT_DAMAGED where a file is not there as it was written."""
        left = "it is not written into the table yet"
        directory = Directory(self.location, self.storage)
        check_there(directory, self.files, batch_id, left, path=self.location)


def with_kept(file: DataFile, names: Iterable[str]) -> DataFile:
    """A file with the columns that some of its rows leave as they are."""
    statistics = json.loads(file.statistics) | {_KEPT: [*names]}
    return replace(file, statistics=json.dumps(statistics))


class Unfit(Exception):
    """Another writer has to write the rows, for what is said of the table."""


class StagedWriter(Protocol):
    """Writes staged rows into a table."""

    @property
    def rules(self) -> WriterRules: ...

    @property
    def evolves(self) -> bool:
        """Whether a table gets what it lacks of the rows' columns in the same transaction."""
        ...

    def write(self, log: DeltaLog, staged: Staged) -> Merged:
        """One transaction of the table, as its log was looked at. Raises Conflict where another
        writer has come between, Unfit, ROWS_REFUSED, and what else fails as it is: it may be there
        all the same."""
        ...
