"""Where in a chunk each reader's records are, instead of the records: for values so large that they
are better fetched again than kept.

A broker hands out whole record batches, so what a reader has to fetch are runs of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.wire.chunk_decoder import Chunk

RUNS = pa.schema([("from_offset", pa.int64()), ("until_offset", pa.int64()), ("bytes", pa.int64())])

Offsets = np.ndarray[Any, np.dtype[np.int64]]


def runs_of_readers(
    chunk: Chunk,
    from_offset: int,
    until_offset: int,
    placed: Iterable[tuple[Offsets, Sequence[int]]],
    readers: int,
) -> tuple[pa.RecordBatch, list[int]]:
    """The runs of record batches that hold each reader's records of the chunk in [from_offset,
    until_offset), reader by reader, and where each reader's runs start.

    `placed` are offsets of records in the order of their readers, with where those start.
    """
    needed: list[set[int]] = [set() for _ in range(readers)]
    for offsets, starts in placed:
        rows = np.searchsorted(chunk.batches["last_offset"], offsets)
        for reader in range(readers):
            needed[reader].update(np.unique(rows[starts[reader] : starts[reader + 1]]).tolist())
    runs: list[tuple[int, int, int]] = []
    run_starts = [0]
    for each in needed:
        runs += _runs(chunk, sorted(each), from_offset, until_offset)
        run_starts.append(len(runs))
    columns = list(zip(*runs, strict=True)) if runs else [(), (), ()]
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=RUNS), run_starts


def _runs(
    chunk: Chunk, rows: Sequence[int], from_offset: int, until_offset: int
) -> list[tuple[int, int, int]]:
    table = chunk.batches
    runs: list[tuple[int, int, int]] = []
    last = -2
    for row in rows:
        batch = table[row]
        size = int(batch["records_end"] - batch["at"])
        until = min(int(batch["last_offset"]) + 1, until_offset)
        if row == last + 1:
            runs[-1] = (runs[-1][0], until, runs[-1][2] + size)
        else:
            runs.append((max(int(batch["base_offset"]), from_offset), until, size))
        last = row
    return runs
