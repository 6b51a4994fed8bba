"""What the blobs of a commit table hold, as tables for SQL: done ranges, and pending records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from keyrange.individual_commits.model.partition_progress import KeyRangeState
from keyrange.individual_commits.table.commit_schema import MS_MAX, MS_MIN
from keyrange.individual_commits.table.done_column import read_piece

# What of a row of the commit table stands beside what was in its blob.
_KEPT: Final = ("group", "source_id", "commit_seq", "topic", "partition", "lo", "hi")
_TIME = pa.timestamp("us", tz="UTC")
_DONE: Final = (("from_offset", pa.int64()), ("until_offset", pa.int64()))
_PENDING: Final = (
    ("offset", pa.int64()),
    ("key_hash", pa.int64()),
    ("deliveries", pa.int32()),
    ("cause", pa.string()),
    ("since", _TIME),
    ("due", _TIME),
)


def unnest_done(table: pa.Table) -> pa.Table:
    """A row for each done range above the committed offset, half-open.

    `table` holds rows of the commit table with at least columns group, source_id, commit_seq,
    topic, partition, lo, hi and done; all but the last are kept. Raises COMMITS_DAMAGED.
    """
    return _exploded(
        table,
        _DONE,
        lambda piece: [(each.from_offset, each.until_offset) for each in piece.done()],
    )


def unnest_pending(table: pa.Table) -> pa.Table:
    """A row for each pending record: a record that was handed out and is not done. `table` as
    above."""
    return _exploded(
        table,
        _PENDING,
        lambda piece: [
            (
                record.offset,
                record.key_hash,
                record.deliveries,
                record.cause.name.lower(),
                _micros(record.since_ms),
                _micros(record.due_ms),
            )
            for record in piece.pending
        ],
    )


def _micros(milliseconds: int) -> int | None:
    """Null for what no SQL engine can show as a time."""
    return milliseconds * 1000 if MS_MIN <= milliseconds <= MS_MAX else None


def _exploded(
    table: pa.Table,
    fields: tuple[tuple[str, pa.DataType], ...],
    rows_of: Callable[[KeyRangeState], Iterable[tuple[Any, ...]]],
) -> pa.Table:
    from_rows: list[int] = []
    rows: list[tuple[Any, ...]] = []
    for at, blob in enumerate(table.column("done").to_pylist()):
        # A commit without partitions has none.
        found = list(rows_of(read_piece(blob))) if blob is not None else []
        rows += found
        from_rows += [at] * len(found)
    kept = table.select(_KEPT).take(pa.array(from_rows, pa.int64()))
    columns = zip(*rows, strict=True) if rows else ([] for _ in fields)
    for (name, kind), values in zip(fields, columns, strict=True):
        kept = kept.append_column(name, pa.array(values, kind))
    return kept
