"""DuckDB's own reader of Delta's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta


def by_duckdb(table: Path, column: str, where: str = "true") -> list[Any]:
    """A column of some rows of a table."""
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect() as session:
        session.execute(f"LOAD '{extension}'")
        read = f"SELECT {column} FROM delta_scan('{table}') WHERE {where}"
        return [value for (value,) in session.execute(read).fetchall()]
