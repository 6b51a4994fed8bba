"""The output of a consumer's transactions: rows for topics, as record batches that wait for the end
of their block."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from keyrange.consumer.settings import ConsumerSettings
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.sender_messages import Batch
from keyrange.kafka.topic_settings import topic_settings
from keyrange.model.offsets import TopicPartition
from keyrange.sending.topic_address import TopicAddress
from keyrange.wire.produced_batches import RecordWriter
from keyrange.wire.produced_faults import check
from keyrange.wire.topic_limits import TOPIC, TopicLimits
from keyrange.work.topic_batches import Made, TopicBatches, by_topic

Rows: TypeAlias = pa.RecordBatch | pa.Table | Iterable[Mapping[str, Any]]


class OutputTopics:
    """What topics take, which is asked for when they first come, and again after
    metadata.max.age.ms."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._client, self._producer = settings.producer_client, settings.producer
        self._cluster: Cluster | None = None
        self._known: dict[str, tuple[TopicLimits, float]] = {}

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def limits(self, topic: str) -> TopicLimits:
        """Raises UNKNOWN_TOPIC_OR_PARTITION, and as a contact does."""
        now = time.monotonic()
        found, until = self._known.get(topic, (None, 0.0))
        if found is None or now >= until:
            if self._cluster is None:
                self._cluster = Cluster(self._client)
            count = len(self._cluster.topic(topic).leaders)
            address = TopicAddress(topic, topic, self._client, self._producer)
            found = address.limits(topic_settings(self._cluster, topic), count)
            self._known[topic] = found, now + self._client.metadata_max_age_ms / 1000
        return found

    def writer(self, topic: str) -> RecordWriter:
        """Blocks begin with partitions of their own, where rows have neither key nor partition."""
        limits = self.limits(topic)
        return RecordWriter(topic, limits.partitions, limits.batches, uuid.uuid4().int)


class TransactionOutput:
    """The output of one block."""

    def __init__(self, topics: OutputTopics) -> None:
        self._topics = topics
        self._waiting: dict[str, tuple[pa.Schema, TopicBatches]] = {}
        self._batches: list[Batch] = []

    def add(self, rows: Rows, topic: str) -> None:
        """Take rows, or none of them.

        Raises INVALID_TOPIC_COLUMNS, INVALID_RECORD, MESSAGE_TOO_LARGE, and as
        `OutputTopics.limits` does."""
        found = [
            each for batch in _as_batches(rows) for each in by_topic(batch, _checked(batch, topic))
        ]
        now_ms = time.time_ns() // 1_000_000
        for each, own in found:
            check(self._topics.limits(each), own, now_ms, each)
        for each, own in found:
            self._take(each, own)

    def batches(self) -> list[Batch]:
        """All that was taken; rows of a partition are in the order in which they came."""
        for _, waiting in self._waiting.values():
            self._made(waiting.rest())
        self._waiting.clear()
        return self._batches

    def _take(self, topic: str, rows: pa.RecordBatch) -> None:
        known = self._waiting.get(topic)
        if known is None or known[0] != rows.schema:
            # Other columns than before: what waits goes first.
            if known is not None:
                self._made(known[1].rest())
            self._waiting[topic] = known = rows.schema, TopicBatches(topic, self._topics.writer)
        self._made(known[1].add(rows))

    def _made(self, made: Iterable[Made]) -> None:
        self._batches += [
            Batch(TopicPartition(topic, each.partition), len(each.rows), len(each.data), each.data)
            for topic, batches in made
            for each in batches
        ]


def _as_batches(rows: Rows) -> list[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table):
        return list(rows.to_batches())
    given: Any = rows
    if not isinstance(given, Iterable) or isinstance(given, Mapping | str | bytes):
        which = f"are of type {type(given).__name__}"
        raise _no_rows(f"rows must be a RecordBatch, a Table or a list of dicts, and {which}")
    dicts = list(given)
    if wrong := [type(each).__name__ for each in dicts if not isinstance(each, Mapping)]:
        raise _no_rows(f"rows must be dicts, and there is a row of type {wrong[0]}")
    names = sorted({name for each in dicts for name in each})
    if not dicts:
        return []
    try:
        columns = {name: pa.array([each.get(name) for each in dicts]) for name in names}
    except (pa.ArrowInvalid, pa.ArrowTypeError) as fault:
        raise _no_rows(f"rows that make no columns: {fault}") from None
    return [pa.RecordBatch.from_pydict(columns)]


def _no_rows(what: str) -> KeyrangeError:
    return error("INVALID_TOPIC_COLUMNS", what)


def _checked(rows: pa.RecordBatch, topic: str) -> str:
    """Raises INVALID_TOPIC_COLUMNS where not one of the two says where rows go."""
    if bool(topic) == (TOPIC in rows.schema.names):
        which = "both" if topic else "neither"
        what = f"of the argument topic and a column topic there are {which}"
        raise error("INVALID_TOPIC_COLUMNS", what)
    if not topic:
        topics = rows.column(TOPIC)
        if topics.null_count or not kinds.is_string(topics.type):
            what = (
                f"column topic is {topics.type} with {topics.null_count} nulls, and has to be text"
            )
            raise error("INVALID_TOPIC_COLUMNS", what)
    return topic
