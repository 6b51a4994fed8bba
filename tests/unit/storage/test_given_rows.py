"""Rows of files and tables that somebody has."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from keyrange.storage.given_rows import given_rows
from tables.spark_files import table_of_spark

TIMES = [datetime(1, 1, 1, 2, 3, 4, 5, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None]


@pytest.mark.parametrize("is_table", [False, True])
def test_times_as_spark_writes_them(tmp_path: Path, is_table: bool) -> None:
    """INT96, which reaches further than nanoseconds since 1970."""
    table_of_spark(tmp_path, pa.table({"at": pa.array(TIMES, pa.timestamp("us", "UTC"))}))
    if not is_table:
        shutil.rmtree(tmp_path / "_delta_log")
    found = pa.Table.from_batches(given_rows([str(tmp_path)], {}).batches())
    micros = found.column("at").cast(pa.timestamp("us", "UTC"))
    assert micros.to_pylist() == TIMES
