"""Compaction: which small files of a table become one, and how. `DeltaRsStore` says when."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

from keyrange.storage.data_files import statistics_of
from keyrange.storage.table_store import Layout

# A file of half this size is not written again.
FILE_BYTES: Final = 8 * 1024 * 1024
_SMALL_BYTES = FILE_BYTES // 2
_ROW_GROUP_ROWS = 10_000
# Compactions are transactions of this application.
_COMPACTIONS = "keyrange/compactions"


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


def compact(
    table: Any, files: pa.fs.FileSystem, layout: Layout, bins: Sequence[list[dict[str, Any]]]
) -> None:
    """Write the files of each of `bins` as one, in one transaction of a delta-rs table.

    Not by delta-rs's own compaction: that lets two of the same files both land, and every row is
    there twice. Here the first of two wins, and any other writer wins against one: what it removes
    is what was there when it began. Raises delta-rs's CommitFailedError where another was faster.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    indexed = pa.schema([layout.schema.field(name) for name in layout.indexed])
    actions: list[Any] = []
    now_ms = time.time_ns() // 1_000_000
    for old in bins:
        paths = [each["path"] for each in old]
        data = pyarrow.dataset.dataset(
            paths, schema=layout.schema, format="parquet", filesystem=files
        )
        rows = data.to_table()
        name = f"part-{uuid.uuid4()}.zstd.parquet"
        footers: list[Any] = []
        with files.open_output_stream(name) as out:
            pyarrow.parquet.write_table(
                rows,
                out,
                compression="zstd",
                row_group_size=_ROW_GROUP_ROWS,
                metadata_collector=footers,
            )
        [info] = files.get_file_info([name])
        statistics = statistics_of(footers[0], indexed)
        actions.append(AddAction(name, info.size, {}, now_ms, False, statistics))
        actions += [
            RemoveAction(each["path"], False, now_ms, each["size_bytes"], {}) for each in old
        ]
    done = table.transaction_version(_COMPACTIONS) or 0
    properties = CommitProperties(
        max_commit_retries=0, app_transactions=[Transaction(_COMPACTIONS, done + 1)]
    )
    table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
    table.update_incremental()
