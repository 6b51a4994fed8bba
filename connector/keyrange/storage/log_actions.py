"""What lines of a Delta table's log say."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from keyrange.storage.data_files import DataFile

# What a line of a log says.
Action = Mapping[str, Any]

# What Delta's paths, which are URIs, have as they are.
_PLAIN: Final = "/=!$&'()+,:;@-._~"


def added(file: DataFile, is_change: bool = True) -> Action:
    """A new file, as the log has it."""
    about = {
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": is_change,
        "stats": file.statistics,
    }
    return {"add": _of(file) | about}


def _of(file: DataFile) -> dict[str, Any]:
    return {
        "path": quote(file.name, safe=_PLAIN),
        "partitionValues": dict(file.partition_values),
        "size": file.size_bytes,
    }


def metadata_of(table: Any, fields: Sequence[Mapping[str, Any]]) -> Action:
    """delta-rs's table with other columns, as the log has it."""
    known = table.metadata()
    about = {
        "id": str(known.id),
        "name": known.name,
        "description": known.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [*fields]}),
        "partitionColumns": [*known.partition_columns],
        "createdTime": known.created_time,
        "configuration": dict(known.configuration),
    }
    return {"metaData": {name: each for name, each in about.items() if each is not None}}


def removed(path: str, size_bytes: int, is_change: bool = False) -> Action:
    """A file, by its path as the log has it, that is no part of the table any more. Its rows are in
    another one, if that is no change of theirs."""
    about = {
        "path": path,
        "deletionTimestamp": time.time_ns() // 1_000_000,
        "dataChange": is_change,
        "size": size_bytes,
    }
    return {"remove": about}


def changed(file: DataFile) -> Action:
    """A file of the change feed, whose rows tell what became of rows of the table."""
    return {"cdc": _of(file) | {"dataChange": False}}


def is_restore(commit: Mapping[str, Any]) -> bool:
    """Whether rows went with a commit that were written behind an older version, by what its log
    entry or the table's history says of it."""
    return bool(commit.get("operation") == "RESTORE")
