"""Whether a user's table takes files of some rows as they are, and which columns it gets to take
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from keyrange.errors import KeyrangeError
from keyrange.storage.delta_log import load_deltalake, metadata_of
from keyrange.storage.delta_partitions import table_schema
from keyrange.storage.logged_files import Action
from keyrange.storage.model.partition_columns import PartitionColumn, generated_column
from keyrange.storage.model.table_columns import Comparison, TableRules, compared, ruled_columns
from keyrange.storage.table_store import RETENTION_OF_TRANSACTIONS

# What a writer that appends files of plain columns may leave alone, or what it is seen by whether
# a table makes use of it.
FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "identityColumns",
        "invariants",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_EXPRESSION: Final = "delta.generationExpression"
_CHANGE_FEED: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


@dataclass(frozen=True, slots=True)
class Merging:
    """What rows are merged by, and features with which who merges them does not."""

    keys: tuple[str, ...]
    unfit: frozenset[str]


class TableFit:
    """delta-rs's table beside rows of a schema. `why` it does not take files of them, None where it
    does; `columns` are what these are to be partitioned by."""

    def __init__(
        self,
        table: Any,
        uri: str,
        schema: pa.Schema,
        given: tuple[PartitionColumn, ...] | None,
        evolves: bool,
        merging: Merging | None = None,
    ) -> None:
        """`given`: the partition columns that the user named, None for the table's. `evolves`:
        whether the table may get columns that it lacks. `merging`: None where files of rows are
        named in its log."""
        self._table, self._uri, self._schema = table, uri, schema
        self._given, self._evolves, self._merging = given, evolves, merging
        self._comparison = Comparison([])
        self.columns: tuple[PartitionColumn, ...] = given or ()
        self.why = next(self._reasons(), None)

    def changes(self) -> list[Action]:
        """What the table's log is to say together with the files."""
        found = self._comparison
        return [metadata_of(self._table, found.fields)] if found.is_changed else []

    def changed(self) -> str:
        """What is changed, in SQL."""
        return self._comparison.statements(self._uri)

    def _reasons(self) -> Iterator[str]:
        """Each reason counts where there is none before it."""
        table = self._table
        yield from _unfit_features(table)
        if self._merging is not None:
            yield from _unfit_for_merges(table, self._merging)
        document = json.loads(table.schema().to_json())
        expressions = _expressions(document)
        yield from self._unfit_partitions(table.metadata().partition_columns, expressions)
        computed = [each.name for each in self.columns if each.unit is not None]
        for name in ruled_columns(document["fields"], computed):
            yield (
                f"column {name} has an expression, an identity, a default, a length or another rule"
            )
        whole = table_schema(self._schema, self.columns)
        rows = json.loads(load_deltalake().Schema.from_arrow(whole).to_json())
        found = self._comparison = compared(document, rows, _rules_of(table))
        if found.wrong:
            yield "; ".join(found.wrong)
        if found.left_out and self._merging is not None:
            yield f"rows lack field {found.left_out[0]}, and a merge takes a column as a whole"
        if found.is_changed and not self._evolves:
            yield _lacking(found, self._uri)

    def _unfit_partitions(
        self, names: Sequence[str], expressions: Mapping[str, str]
    ) -> Iterator[str]:
        if self._given is None:
            generated = {
                name: generated_column(name, expressions[name])
                for name in names
                if name in expressions
            }
            self.columns = tuple(generated.get(name) or PartitionColumn(name) for name in names)
        elif [each.name for each in self._given] != list(names):
            given = [str(each) for each in self._given]
            yield f"it is partitioned by {listed(names)} and would be by {listed(given)}"
        for each in self.columns:
            text = expressions.get(each.name)
            if text is not None and generated_column(each.name, text) != each:
                yield f"column {each.name} is generated as {text} and would be {each}"
        try:
            table_schema(self._schema, self.columns)
        except KeyrangeError as failure:
            yield f"it is partitioned by {listed(names)}: {failure.message}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _lacking(found: Comparison, uri: str) -> str:
    names = [path for path, _ in found.added]
    text = f"it has no column {', '.join(names)}" if names else "its columns are of other types"
    return f"{text}: {found.statements(uri)} makes it fit, and so does into(..., evolve='add')"


def _rules_of(table: Any) -> TableRules:
    settings, protocol = table.metadata().configuration, table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    widens = "typeWidening" in features and _is_on(settings, "delta.enableTypeWidening")
    feed = _CHANGE_FEED if _is_on(settings, "delta.enableChangeDataFeed") else frozenset()
    return TableRules(widens, "timestampNtz" in features, feed)


def _is_on(settings: Mapping[str, Any], name: str) -> bool:
    return str(settings.get(name, "")).lower() == "true"


def _unfit_features(table: Any) -> Iterator[str]:
    """Why a table's features or properties keep files from being named in its log as they are."""
    for unknown in sorted(set(table.protocol().writer_features or ()) - FEATURES):
        yield f"it has feature {unknown}"
    settings = table.metadata().configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        yield "its columns have other names in files"
    if RETENTION_OF_TRANSACTIONS in settings:
        yield f"{RETENTION_OF_TRANSACTIONS} lets it forget which batches it has"
    for name in sorted(settings):
        if name.startswith("delta.constraints."):
            yield f"rows would not be held to {name}"


def _unfit_for_merges(table: Any, merging: Merging) -> Iterator[str]:
    for name in sorted(merging.unfit.intersection(table.protocol().writer_features or ())):
        yield (
            f"it has feature {name}, with which delta-rs does not merge: a session that has Delta "
            "(spark.sql.extensions and spark.sql.catalog.spark_catalog) does"
        )
    if _is_on(table.metadata().configuration, "delta.appendOnly"):
        yield "delta.appendOnly forbids to change rows, which keys are for"


def _expressions(document: Mapping[str, Any]) -> dict[str, str]:
    """The expressions of generated columns."""
    found = {each["name"]: each["metadata"].get(_EXPRESSION) for each in document["fields"]}
    return {name: text for name, text in found.items() if text is not None}
