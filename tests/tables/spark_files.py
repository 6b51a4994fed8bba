"""Files as Spark writes them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake


def table_of_spark(table: Path, rows: pa.Table, footer: Mapping[str, str] | None = None) -> None:
    """A table with one file, whose times are INT96. `footer`: what its metadata says."""
    write_deltalake(table, rows)
    opened = DeltaTable(table)
    [path] = [Path(each) for each in opened.file_uris()]
    size = opened.get_add_actions().column("size_bytes")[0].as_py()
    given = rows.replace_schema_metadata(footer)
    pq.write_table(given, path, use_deprecated_int96_timestamps=True)
    assert "INT96" in {
        pq.ParquetFile(path).schema.column(at).physical_type for at in range(len(rows.schema))
    }
    log = table / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{path.stat().st_size}'))
