"""A process that says when it could read each version of a Delta table, by delta-rs, until its
standard input ends: a line with the version and the seconds since 1970.

A process of its own, since a thread of the driver would have to wait for its interpreter.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

_LOOK_EVERY_S = 0.005


def main(path: str) -> None:
    log = Path(path) / "_delta_log"
    table: DeltaTable | None = None
    version = 0
    while not select.select([sys.stdin], [], [], _LOOK_EVERY_S)[0]:
        # Cheaper than to open the table so often.
        if not _entry(log, version).exists():
            continue
        if table is None:
            table = DeltaTable(path)
        else:
            table.update_incremental()
        now = time.time()
        for each in range(version, table.version() + 1):
            print(each, now, flush=True)
        version = table.version() + 1


def latencies_ms(path: Path, seen_s: dict[int, float], counts_from: float) -> list[float]:
    """From each record's timestamp to when the version that brought it could be read, of versions
    that could be read from a time on."""
    found: list[float] = []
    # A copy, since who watches the table may add to it.
    for version, at in list(seen_s.items()):
        if at >= counts_from:
            for column in _timestamps(path, version):
                found += [at * 1e3 - each / 1e3 for each in column.cast(pa.int64()).to_pylist()]
    return found


def added_files(path: Path, version: int) -> Iterator[Path]:
    """The files that a version of a table brought."""
    for line in _entry(path / "_delta_log", version).read_text().splitlines():
        added = json.loads(line).get("add")
        if added is not None:
            yield path / added["path"]


def _timestamps(path: Path, version: int) -> Iterator[pa.ChunkedArray]:
    for file in added_files(path, version):
        yield pq.ParquetFile(file).read(["timestamp"]).column(0).cast(pa.timestamp("us", tz="UTC"))


def _entry(log: Path, version: int) -> Path:
    return log / f"{version:020}.json"


if __name__ == "__main__":
    main(sys.argv[1])
