"""Rows that somebody has in Parquet files or in a Delta table, for who reads them without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from keyrange.errors import invalid_options
from keyrange.storage.directory import Directory
from keyrange.storage.locations import as_object_store_names
from keyrange.storage.object_store import FAILURES

_BATCH_ROWS: Final = 65_536
_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows of some columns. `count`: how many there are; `size_bytes`: about what they take in
    files. `batches` begins anew with each call."""

    columns: pa.Schema
    count: int
    size_bytes: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


def given_rows(locations: Sequence[str], storage: Mapping[str, str]) -> GivenRows:
    """Those of a Delta table, or of Parquet files with the same columns, or of a directory of such
    files. Raises INVALID_OPTIONS where there are none."""
    if len(locations) == 1 and _sizes(locations[0], _LOG, storage):
        return _of_table(locations[0], storage)
    return _of_files([each for found in locations for each in _files(found, storage)], storage)


def _of_table(location: str, storage: Mapping[str, str]) -> GivenRows:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from pyarrow.dataset import ParquetReadOptions

    try:
        table = DeltaTable(as_object_store_names(location), storage_options=dict(storage) or None)
        rows: Any = table.to_pyarrow_dataset(
            parquet_read_options=ParquetReadOptions(coerce_int96_timestamp_unit="us")
        )
    except (DeltaError, *FAILURES) as failure:
        raise _unreadable(location, failure) from None
    told = table.get_add_actions()
    sizes = sum(pa.table(told).column("size_bytes").to_pylist())
    return GivenRows(
        rows.schema,
        rows.count_rows(),
        sizes,
        lambda: iter(rows.to_batches(batch_size=_BATCH_ROWS)),
    )


def _sizes(location: str, path: str, storage: Mapping[str, str]) -> dict[str, int]:
    try:
        return Directory(location, storage).sizes(path)
    except NotADirectoryError:
        return {}
    except FAILURES as failure:
        raise _unreadable(location, failure) from None


def _files(location: str, storage: Mapping[str, str]) -> list[tuple[str, str]]:
    """The Parquet files of a directory, or one by its name, as their directory and name."""
    home, _, name = location.rstrip("/").rpartition("/")
    names = _sizes(location, "", storage)
    found = sorted(each for each in names if each.endswith(".parquet") and each[0] not in "_.")
    if found:
        return [(location, each) for each in found]
    return [(home or ("/" if location.startswith("/") else "."), name)]


def _of_files(files: Sequence[tuple[str, str]], storage: Mapping[str, str]) -> GivenRows:
    schema: pa.Schema | None = None
    count = size = 0
    for home, name in files:
        opened = _opened(home, name, storage)
        found, metadata = opened.schema_arrow, opened.metadata
        if schema is not None and not found.equals(schema):
            raise invalid_options(f"{home}/{name} has other columns than {files[0][1]}")
        schema = schema or found
        count += metadata.num_rows
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        size += sum(each.total_byte_size for each in groups)
    assert schema is not None

    def batches() -> Iterator[pa.RecordBatch]:
        for home, name in files:
            yield from _opened(home, name, storage).iter_batches(_BATCH_ROWS)

    return GivenRows(schema, count, size, batches)


def _opened(home: str, name: str, storage: Mapping[str, str]) -> pq.ParquetFile:
    try:
        # As Spark writes times; nanoseconds since 1970 begin with 1677 and end with 2262.
        source = Directory(home, storage).open(name)
        return pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    except FAILURES as failure:
        raise _unreadable(f"{home}/{name}", failure) from None


def _unreadable(location: str, failure: BaseException) -> Exception:
    text = f"{location} is no Parquet file and no Delta table that can be read: {failure}"
    return invalid_options(text[:500])
