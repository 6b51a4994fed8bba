"""Functions for option mapInArrow. Tests hand this file to Spark, so that executors import it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

Batches = Iterator[pa.RecordBatch]

FOLDED = "partition int, key binary, offsets array<bigint>, `all values` binary"


def fold(batches: Batches) -> Batches:
    """A row per key: the offsets and the values of its records, in the order that they came in."""
    found: dict[tuple[int, bytes | None], list[tuple[int, bytes]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            place = (row["partition"], row["key"])
            found.setdefault(place, []).append((row["offset"], row["value"]))
    yield pa.record_batch(
        {
            "partition": pa.array([partition for partition, _ in found], pa.int32()),
            "key": pa.array([key for _, key in found], pa.binary()),
            "offsets": pa.array(
                [[offset for offset, _ in records] for records in found.values()],
                pa.list_(pa.int64()),
            ),
            "all values": pa.array(
                [b" ".join(value for _, value in records) for records in found.values()],
                pa.binary(),
            ),
        }
    )


CALLED = "columns string, rows bigint"


def call(batches: Batches) -> Batches:
    """A row per call: the columns that it got, and how many rows."""
    names, rows = "", 0
    for batch in batches:
        names = "; ".join(f"{each.name} {each.type}" for each in batch.schema)
        rows += len(batch)
    yield pa.record_batch({"columns": pa.array([names]), "rows": pa.array([rows], pa.int64())})


def row_by_row(batches: Batches) -> Batches:
    """A batch for each row; the file that the first value names says when all is closed."""
    path = None
    try:
        for batch in batches:
            path = path or Path(batch["value"][0].as_py().decode())
            for at in range(len(batch)):
                yield batch.slice(at, 1)
    finally:
        if path is not None:
            path.touch()


TYPED = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(5,2), "
    "i string, j binary, k date, l timestamp, m timestamp_ntz, n array<struct<x: int>>, "
    "o map<string,array<int>>"
)
VALUES = {
    "a": True,
    "b": 1,
    "c": 2,
    "d": 3,
    "e": 4,
    "f": 0.5,
    "g": 0.25,
    "h": Decimal("1.50"),
    "i": "text",
    "j": b"bytes",
    "k": date(2013, 1, 2),
    "l": datetime(2013, 1, 2, 3, 4, 5, tzinfo=UTC),
    "m": datetime(2013, 1, 2, 3, 4, 5),
    "n": [{"x": 1}, None],
    "o": [("one", [1, None])],
}
TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
    pa.list_(pa.struct([("x", pa.int32())])),
    pa.map_(pa.string(), pa.list_(pa.int32())),
]


def typed(batches: Batches) -> Batches:
    """A row of every type for each row, and one of nulls."""
    for batch in batches:
        for value in (VALUES, dict.fromkeys(VALUES)):
            yield pa.record_batch(
                [
                    pa.array([value[name]] * len(batch), kind)
                    for name, kind in zip(VALUES, TYPES, strict=True)
                ],
                names=list(VALUES),
            )


def fails(batches: Batches) -> Batches:
    """Fails at the second batch, with what only the function knows."""
    yield next(batches)
    raise LookupError("no such customer: 17")


def longs(batches: Batches) -> Batches:
    """Yields what is right first, and other types then."""
    yield pa.record_batch({"n": pa.array([1], pa.int64())})
    yield pa.record_batch({"n": pa.array([1], pa.int32())})
