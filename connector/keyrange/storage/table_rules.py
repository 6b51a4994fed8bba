"""What a Delta table asks of its writers, and files that are named in its log cannot give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from keyrange.storage.table_store import RETENTION_OF_TRANSACTIONS

# What a writer that appends files of plain columns may leave alone, or what it is seen by whether
# a table makes use of it.
_FEATURES: Final = frozenset(
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
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# Rules for the values of columns, in the schema's metadata: files that are there were not held to
# them.
RULES: Final = ('"delta.', '"__CHAR_VARCHAR_TYPE_STRING"', '"CURRENT_DEFAULT"')
_EXPRESSION: Final = "delta.generationExpression"


def unfit_features(table: Any) -> Iterator[str]:
    """Why a table's features or properties keep files from being named in its log as they are."""
    for unknown in sorted(set(table.protocol().writer_features or ()) - _FEATURES):
        yield f"it has feature {unknown}"
    settings = table.metadata().configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        yield "its columns have other names in files"
    if RETENTION_OF_TRANSACTIONS in settings:
        yield f"{RETENTION_OF_TRANSACTIONS} lets it forget which batches it has"
    for name in sorted(settings):
        if name.startswith("delta.constraints."):
            yield f"rows would not be held to {name}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def expressions(schema: Any) -> dict[str, str]:
    """The expressions of generated columns."""
    found = {field.name: field.metadata.get(_EXPRESSION) for field in schema.fields}
    return {name: text for name, text in found.items() if text is not None}


def without_expressions(schema: Any, names: Sequence[str]) -> str:
    """The schema's JSON without the expressions of columns whose values keep to them."""
    fields = json.loads(schema.to_json())["fields"]
    for field in fields:
        if field["name"] in names:
            field["metadata"].pop(_EXPRESSION, None)
    return json.dumps(fields)
