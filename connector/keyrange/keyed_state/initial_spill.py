"""Rows of state sorted on this machine, of which only a part is in memory at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.keyed_state.initial_rows import PLACE, InitialRows
from keyrange.keyed_state.initial_runs import RUN_ROWS, Buckets
from keyrange.keyed_state.variables import KEY, KEY_HASH
from keyrange.storage.given_rows import GivenRows

# So much is sorted at a time, of rows and of their bytes in files.
_PART_ROWS: Final = 1_000_000
_PART_BYTES: Final = 64 << 20
_ORDER: Final = [(PLACE, "ascending"), (KEY_HASH, "ascending"), (KEY, "ascending")]


def buckets_of(rows: InitialRows, given: GivenRows) -> Buckets:
    """So many that each part of what is given has one."""
    count = max(given.count // RUN_ROWS, given.size_bytes // _PART_BYTES)
    return Buckets.about(rows.partitions, count)


def sorted_rows(rows: InitialRows, given: GivenRows, buckets: Buckets) -> Iterator[pa.RecordBatch]:
    """Placed rows by place, hash and key. Raises INITIAL_STATE_UNFIT."""
    parts = max(1, -(-given.count // _PART_ROWS), -(-given.size_bytes // _PART_BYTES))
    parts = min(parts, len(buckets))
    with tempfile.TemporaryDirectory(prefix="keyrange-import-") as home:
        files = [Path(home, f"{number}.arrows") for number in range(parts)]
        with ExitStack() as opened:
            writers = [opened.enter_context(pa.ipc.new_stream(each, rows.schema)) for each in files]
            for batch in given.batches():
                placed = rows.placed(batch)
                for number, own in _parted(placed, buckets.numbers(placed), buckets, parts):
                    writers[number].write_batch(own)
        for each in files:
            with pa.OSFile(str(each)) as file, pa.ipc.open_stream(file) as reader:
                table = reader.read_all().combine_chunks().sort_by(_ORDER)
            each.unlink()
            yield from table.to_batches(max_chunksize=RUN_ROWS)


def _parted(
    placed: pa.RecordBatch, numbers: Any, buckets: Buckets, parts: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Rows by the part that their buckets are in."""
    of = numbers * parts // len(buckets)
    for part in np.unique(of).tolist():
        yield part, placed.take(pa.array(np.flatnonzero(of == part)))
