"""Whether rows can become records of a topic, before anything of them is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from keyrange.errors import error
from keyrange.wire import produced_kernels as kernels
from keyrange.wire import produced_partitions
from keyrange.wire.produced_batches import RecordWriter, measured, told
from keyrange.wire.produced_columns import Columns, Numbers
from keyrange.wire.topic_limits import TOPIC, TopicLimits


def fault_of(limits: TopicLimits, rows: pa.RecordBatch, now_ms: int = 0) -> str | None:
    """Why a row cannot become a record; None where all can. The text has no value of a row's.
    Raises INVALID_TOPIC_COLUMNS."""
    found = _fault(limits, rows, now_ms)
    return None if found is None else found[1]


def check(limits: TopicLimits, rows: pa.RecordBatch, now_ms: int, topic: str) -> None:
    """Raises INVALID_RECORD or MESSAGE_TOO_LARGE where a row cannot become a record of a topic, and
    INVALID_TOPIC_COLUMNS."""
    found = _fault(limits, rows, now_ms)
    if found is not None:
        raise error(found[0], found[1], topic=topic)


def _fault(limits: TopicLimits, rows: pa.RecordBatch, now_ms: int) -> tuple[str, str] | None:
    """The condition of a fault, and its text."""
    if TOPIC in rows.schema.names:
        if rows.column(TOPIC).null_count:
            return "INVALID_RECORD", "it names no topic"
        rows = rows.drop_columns([TOPIC])
    columns = Columns.of(rows, now_ms)
    if not rows.num_rows:
        return None
    request_bytes = limits.batches.request_bytes
    _, sizes, faults = measured(columns, request_bytes)
    for row in np.flatnonzero(faults).tolist():
        return told(int(faults[row]), int(sizes[row]), request_bytes)
    if limits.needs_keys and (columns.key.sizes < 0).any():
        return "INVALID_RECORD", "it has no key, and the topic is compacted"
    if wrong := _wrong_time(limits, columns, now_ms) or _wrong_partition(limits, columns):
        return "INVALID_RECORD", wrong
    large = _too_large(limits, rows, sizes)
    return None if large is None else ("MESSAGE_TOO_LARGE", large)


def _wrong_time(limits: TopicLimits, columns: Columns, now_ms: int) -> str | None:
    apart_ms = columns.timestamps_ms - now_ms
    if (apart_ms > limits.after_ms).any():
        return f"timestamp is more than {limits.after_ms} ms ahead (message.timestamp.after.max.ms)"
    if (apart_ms < -limits.before_ms).any():
        return f"timestamp is more than {limits.before_ms} ms ago (message.timestamp.before.max.ms)"
    return None


def _wrong_partition(limits: TopicLimits, columns: Columns) -> str | None:
    named = columns.partitions[columns.partitions != produced_partitions.ANY_PARTITION]
    most = limits.partitions or 2**31
    wrong = named[(named < 0) | (named >= most)]
    if not len(wrong):
        return None
    has = f", and the topic has {limits.partitions}" if limits.partitions else ""
    return f"partition is {int(wrong[0])}{has}"


def _too_large(limits: TopicLimits, rows: pa.RecordBatch, sizes: Numbers) -> str | None:
    """What the broker would say: it counts bytes of a batch after compression."""
    if not limits.message_bytes:
        return None
    large = np.flatnonzero(
        sizes + kernels.MORE_BYTES_MAX > limits.message_bytes - kernels.HEADER_BYTES
    )
    # Which partition a row names says nothing of its size, and how many there are may not be known.
    rows = rows.select([name for name in rows.schema.names if name != "partition"])
    writer = RecordWriter("", 1, limits.batches)
    for row in large.tolist():
        for batch in writer.write(rows.slice(row, 1), 0):
            if len(batch.data) > limits.message_bytes:
                return (
                    f"a record of {len(batch.data)} bytes as it is sent, and max.message.bytes "
                    f"of the topic is {limits.message_bytes}"
                )
    return None
