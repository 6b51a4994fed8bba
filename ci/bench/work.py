"""What the rows are worked on with: Python functions of the kinds that key ranges are for.

In a module of their own, so that Spark's workers import them by name.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa

# About 20 and 2 microseconds on the cores that this was written on.
_ROUNDS = 48
_FOLDS = 2
_DIGESTS = 4


def fold_by_key(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A digest and a count per key, of all its values in the order that they come in; some
    microseconds a record.

    A key's state is carried from record to record in a dictionary, so each key has to come to one
    task, in order.
    """
    states: dict[bytes, tuple[bytes, int]] = {}
    for batch in batches:
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            digest, count = states.get(key, (b"", 0))
            for _ in range(_FOLDS):
                digest = hashlib.sha256(digest + value).digest()
            states[key] = (digest, count + 1)
    yield pa.record_batch(
        {
            "key": pa.array(states, pa.binary()),
            "digest": pa.array([each[0] for each in states.values()], pa.binary()),
            "count": pa.array([each[1] for each in states.values()], pa.int64()),
        }
    )


FOLDED = "key binary, digest binary, count long"


def burn(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Some 20 microseconds of Python for each value."""
    for frame in frames:
        for value in frame["value"]:
            digest = bytes(value)
            for _ in range(_ROUNDS):
                digest = hashlib.sha256(digest).digest()
        yield pd.DataFrame({"rows": [len(frame)]})


BURNT = "rows long"


DIGESTED = "key binary, partition int, offset long, value binary, digest binary"
_DIGESTED = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.binary()),
        pa.field("digest", pa.binary()),
    ]
)


def digest_of(value: bytes) -> bytes:
    """A few microseconds of work on a value."""
    digest = b""
    for _ in range(_DIGESTS):
        digest = hashlib.sha256(digest + value).digest()
    return digest


def digest_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The records of a batch, each with the digest of its value."""
    digests = pa.array([digest_of(each) for each in batch.column("value").to_pylist()], pa.binary())
    kept = [batch.column(name) for name in _DIGESTED.names[:-1]]
    return pa.RecordBatch.from_arrays([*kept, digests], schema=_DIGESTED)


def digest_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same as a job does it without keyrange's help."""
    yield from map(digest_batch, batches)


def digest_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """The same for mapInPandas."""
    for frame in frames:
        yield frame.assign(digest=[digest_of(each) for each in frame["value"]])


def digest_record(record: Any) -> tuple[Any, ...]:
    """The same for one record."""
    value = record.value
    return (record.key, record.partition, record.offset, value, digest_of(value))


def digest_or_fail(record: Any) -> tuple[Any, ...]:
    """The same; one record in fifty fails whenever it is worked on."""
    if record.offset % 50 == 7:
        raise ValueError("one in fifty")
    return digest_record(record)


def digest_records(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record after record, as a job does it without keyrange's help."""
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in _DIGESTED.names[:-1]), strict=True)
        made = [(key, partition, at, value, digest_of(value)) for key, partition, at, value in rows]
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*made, strict=True), _DIGESTED, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_DIGESTED)


TIMED = "key binary, partition int, key_hash long, timestamp_ms long"


def timed_record(record: Any, slow: bytes | None) -> tuple[Any, ...]:
    """Where a record belongs and when it was written; one of key `slow` takes a minute."""
    if record.key == slow:
        time.sleep(60)
    written_ms = round(record.timestamp.timestamp() * 1000)
    return (record.key, record.partition, record["keyHash"], written_ms)
