"""Rows of a job as records of a topic: what a user's columns become, and whether a topic takes
them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from keyrange.errors import KeyrangeError
from keyrange.formats.json.encoder import json_objects, json_values
from keyrange.sending.topic_address import TopicAddress
from keyrange.sending.topic_partitions import partitions_of
from keyrange.wire.record_limits import TOPIC, TopicLimits

# The columns of a record beside its value.
PARTS: Final = ("key", "headers", "timestamp", "partition", TOPIC)


@dataclass(frozen=True, slots=True)
class TopicRows:
    """With `is_json` all columns but those of a record are fields of its value, which is a JSON
    object, and a key that is neither bytes nor text is JSON too. `address`: of topics that a column
    names, which are asked about when they first come."""

    limits: TopicLimits
    is_json: bool = False
    address: TopicAddress | None = None

    def records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Raises ValueError for a row that cannot become a record; the text has no value of it."""
        if self.is_json:
            rows = _as_json(rows)
        fault = self.limits.fault(rows, time.time_ns() // 1_000_000)
        if fault is None and TOPIC in rows.schema.names and self.address is not None:
            fault = _unknown_place(rows, self.address)
        if fault is not None:
            raise ValueError(f"it becomes no record of the topic: {fault}")
        return rows

    def schema(self, rows: pa.Schema) -> pa.Schema:
        """The columns of the records that are made of rows."""
        return self.records(pa.RecordBatch.from_pylist([], rows)).schema


def _unknown_place(rows: pa.RecordBatch, address: TopicAddress) -> str | None:
    """Why a row's topic takes it not: there is none, or none of its partitions."""
    topics = rows.column(TOPIC)
    for topic in pc.unique(topics).to_pylist():
        try:
            count = partitions_of(address.client, topic)
        except KeyrangeError as failure:
            if failure.condition.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            return "its topic is not there"
        if "partition" in rows.schema.names:
            named = rows.column("partition").filter(pc.equal(topics, topic))
            if pc.any(pc.greater_equal(named, count)).as_py():
                return f"its topic has {count} partitions"
    return None


def _as_json(rows: pa.RecordBatch) -> pa.RecordBatch:
    names = rows.schema.names
    parts = {name: rows.column(name) for name in names if name in PARTS}
    if "key" in parts and not _is_plain(parts["key"].type):
        parts["key"] = json_values(parts["key"])
    values = json_objects(rows.select([name for name in names if name not in PARTS]))
    return pa.RecordBatch.from_pydict({**parts, "value": values})


def _is_plain(kind: pa.DataType) -> bool:
    tests = (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_large_binary)
    return any(test(kind) for test in tests)
