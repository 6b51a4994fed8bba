"""Which small files of a table become one, and what Delta's log says of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

# A file of half this size is not written again.
FILE_BYTES: Final = 8 * 1024 * 1024
_SMALL_BYTES = FILE_BYTES // 2


def small_files(files: pa.Table, order: str) -> list[list[dict[str, Any]]]:
    """The small ones among some files, together so many as make one; `order` is the column whose
    least values say what belongs together. Nothing where a file would stay alone."""
    by_order = files.sort_by([(f"min.{order}", "ascending"), ("path", "ascending")]).to_pylist()
    small = [each for each in by_order if each["size_bytes"] < _SMALL_BYTES]
    return [each for each in _bins(small) if len(each) > 1]


def _bins(files: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    size = 0
    for file in files:
        found.append(file)
        size += file["size_bytes"]
        if size >= FILE_BYTES:
            yield found
            found, size = [], 0
    yield found


def statistics_of(rows: pa.Table, columns: Sequence[str]) -> str:
    """What Delta's log keeps of a file: how many rows, and of some columns the least and the
    greatest value, and how many are null."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in columns:
        both = pc.min_max(rows.column(name)).as_py()
        if both["min"] is not None:
            least[name], greatest[name] = _json(both["min"]), _json(both["max"])
    nulls = {name: rows.column(name).null_count for name in columns}
    return json.dumps(
        {
            "numRecords": rows.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
