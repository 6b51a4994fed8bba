"""Whether a user's table takes files of some rows as they are, and which columns it gets to take
them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from keyrange.errors import KeyrangeError
from keyrange.storage.data_files import DataFile
from keyrange.storage.delta_log import is_on, load_deltalake
from keyrange.storage.delta_partitions import table_schema
from keyrange.storage.log_actions import Action, metadata_of
from keyrange.storage.model.partition_columns import PartitionColumn, generated_column
from keyrange.storage.model.table_columns import Comparison, TableRules, ruled_columns
from keyrange.storage.model.writer_rules import OWN, WriterRules
from keyrange.storage.table_store import RETENTION_OF_TRANSACTIONS

# Who else takes what does not fit files.
BY_SPARK: Final = (
    ": a query that is started in a session with Delta (spark.sql.extensions and "
    "spark.sql.catalog.spark_catalog) has that write the table"
)
_EXPRESSION: Final = "delta.generationExpression"
_IDENTITY_GIVEN: Final = "delta.identity.allowExplicitInsert"
# Of a text whether it is CHAR or VARCHAR.
_LENGTH: Final = "__CHAR_VARCHAR_TYPE_STRING"
# By these Delta writes, behind each commit, what others read in place of the table's log.
_MANIFESTS: Final = "delta.compatibility.symlinkFormatManifest.enabled"
_CHANGE_FEED: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


class TableFit:
    """delta-rs's table beside rows of a schema. `why` it does not take files of them, None where it
    does, and the `condition` of that; `columns` are what these are to be partitioned by."""

    def __init__(
        self,
        table: Any,
        uri: str,
        schema: pa.Schema,
        given: tuple[PartitionColumn, ...] | None,
        evolves: bool,
        keys: tuple[str, ...] = (),
        by: WriterRules = OWN,
    ) -> None:
        """`given`: the partition columns that the user named, None for the table's. `evolves`:
        whether the table may get columns that it lacks. `keys`: those by which rows are merged,
        none where they are appended; `by` whom."""
        self._table, self._uri, self._schema = table, uri, schema
        self._given, self._evolves, self._keys, self._by = given, evolves, keys, by
        # It is there where no reason came before it: nobody asks for it otherwise.
        self._comparison: Comparison
        self.columns: tuple[PartitionColumn, ...] = given or ()
        self.condition = "SINK_UNSUITABLE"
        self.why = next(self._reasons(), None)

    @property
    def is_changed(self) -> bool:
        """Whether the table gets columns or types."""
        return self._comparison.is_changed

    def changes(self) -> list[Action]:
        """What the table's log is to say together with the files."""
        found = self._comparison
        return [metadata_of(self._table, found.fields)] if found.is_changed else []

    def changed(self) -> str:
        """What is changed, in SQL."""
        return self._comparison.statements(self._uri)

    def why_not(self, files: Sequence[DataFile]) -> str | None:
        """Why it does not take files that may be of a table that was another one."""
        names = self._table.metadata().partition_columns
        for each in files:
            if each.partition_values.keys() != set(names):
                own = listed(list(each.partition_values))
                return f"it is partitioned by {listed(names)}, and file {each.name} by {own}"
        return None

    def _reasons(self) -> Iterator[str]:
        """Each reason counts where there is none before it."""
        table, keeps_rules = self._table, self._by.keeps_rules
        settings = table.metadata().configuration
        if RETENTION_OF_TRANSACTIONS in settings:
            yield f"{RETENTION_OF_TRANSACTIONS} lets it forget which batches it has"
        if self._keys and is_on(settings, "delta.appendOnly"):
            yield "delta.appendOnly forbids to change rows, which keys are for"
        if not keeps_rules:
            yield from _unfit_features(table, self._by)
        document = json.loads(table.schema().to_json())
        expressions = _expressions(document)
        yield from self._unfit_partitions(table.metadata().partition_columns, expressions)
        computed = [each.name for each in self.columns if each.unit is not None]
        if keeps_rules:
            yield from self._given_identities(document)
            yield from self._padded_keys(document)
        else:
            for name in ruled_columns(document["fields"], computed):
                yield (
                    f"column {name} has an expression, an identity, a default, a length or "
                    "another rule"
                )
        whole = table_schema(self._schema, self.columns)
        rows = json.loads(load_deltalake().Schema.from_arrow(whole).to_json())
        found = self._comparison = Comparison(document, rows, _rules_of(table, self._by))
        if found.wrong:
            if found.types_differ:
                self.condition = "SINK_TYPES_DIFFER"
            yield "; ".join(found.wrong)
        if found.left_out and self._keys:
            yield f"rows lack field {found.left_out[0]}, and a merge takes a column as a whole"
        if found.is_changed and not self._evolves:
            yield _lacking(found, self._uri)

    def _given_identities(self, document: Mapping[str, Any]) -> Iterator[str]:
        for each in document["fields"]:
            if (
                each["metadata"].get(_IDENTITY_GIVEN) is False
                and each["name"] in self._schema.names
            ):
                yield f"column {each['name']} is GENERATED ALWAYS AS IDENTITY, and rows have it"

    def _padded_keys(self, document: Mapping[str, Any]) -> Iterator[str]:
        for each in document["fields"]:
            kind = each["metadata"].get(_LENGTH, "")
            if each["name"] in self._keys and kind.startswith("char"):
                yield f"column {each['name']} is {kind}, and Delta does not merge by such a column"

    def _unfit_partitions(
        self, names: Sequence[str], expressions: Mapping[str, str]
    ) -> Iterator[str]:
        if self._by.keeps_rules:
            # It computes them by itself, in the time zone of its session.
            own = self._schema.names
            plain = [name for name in names if name in own or name not in expressions]
            given = {each.name: each for each in self._given or ()}
            if given and [*given] not in (plain, [*names]):
                yield self._other_partitions(names)
            self.columns = tuple(given.get(name) or PartitionColumn(name) for name in plain)
        elif self._given is None:
            generated = {
                name: generated_column(name, expressions[name])
                for name in names
                if name in expressions
            }
            self.columns = tuple(generated.get(name) or PartitionColumn(name) for name in names)
        elif [each.name for each in self._given] != list(names):
            yield self._other_partitions(names)
        for each in self.columns:
            text = expressions.get(each.name)
            if text is not None and generated_column(each.name, text) != each:
                yield f"column {each.name} is generated as {text} and would be {each}"
            elif text is not None and self._by.other_zone and self._is_instant(each.source):
                yield (
                    f"column {each.name} is generated as {text} in time zone "
                    f"{self._by.other_zone}, and {self._by.name} computes it in UTC"
                )
            elif self._keys and self._by.other_zone and self._is_instant(each.name):
                # Of rows that are there. Earlier versions of Delta wrote no zone.
                yield (
                    f"times of column {each.name} may be of time zone {self._by.other_zone}, and "
                    f"{self._by.name} reads them in UTC"
                )
        try:
            table_schema(self._schema, self.columns)
        except KeyrangeError as failure:
            yield f"it is partitioned by {listed(names)}: {failure.message}"

    def _is_instant(self, name: str) -> bool:
        """Whether the day of a column of rows depends on the time zone."""
        at = self._schema.get_field_index(name)
        kind = self._schema.field(at).type if at >= 0 else pa.null()
        return pa.types.is_timestamp(kind) and kind.tz is not None

    def _other_partitions(self, names: Sequence[str]) -> str:
        given = [str(each) for each in self._given or ()]
        return f"it is partitioned by {listed(names)} and would be by {listed(given)}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _lacking(found: Comparison, uri: str) -> str:
    names = [path for path, _ in found.added]
    text = f"it has no column {', '.join(names)}" if names else "its columns are of other types"
    return f"{text}: {found.statements(uri)} makes it fit, and so does into(..., evolve='add')"


def _rules_of(table: Any, by: WriterRules) -> TableRules:
    settings, protocol = table.metadata().configuration, table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return TableRules(
        widens="typeWidening" in features and is_on(settings, "delta.enableTypeWidening"),
        has_ntz="timestampNtz" in features,
        reserved=_CHANGE_FEED if is_on(settings, "delta.enableChangeDataFeed") else frozenset(),
        any_name=_mapping(settings) != "none",
        holds_nulls=by.keeps_rules,
    )


def _mapping(settings: Mapping[str, Any]) -> str:
    return str(settings.get("delta.columnMapping.mode", "none")).lower()


def _unfit_features(table: Any, by: WriterRules) -> Iterator[str]:
    """Why a table's features or properties keep a writer that knows some from writing to it."""
    named = set(table.protocol().writer_features or ())
    for feature in sorted(named - (by.features or frozenset())):
        known = feature in (OWN.features or ())
        yield f"it has feature {feature}" + (f", with which {by.name} does not merge" * known)
    settings = table.metadata().configuration
    if _mapping(settings) != "none":
        yield "its columns have other names in files"
    if is_on(settings, _MANIFESTS):
        yield f"who reads it by manifests ({_MANIFESTS}) would see nothing of it"
    for name in sorted(settings):
        if name.startswith("delta.constraints."):
            yield f"rows would not be held to {name}"


def _expressions(document: Mapping[str, Any]) -> dict[str, str]:
    """The expressions of generated columns."""
    found = {each["name"]: each["metadata"].get(_EXPRESSION) for each in document["fields"]}
    return {name: text for name, text in found.items() if text is not None}
