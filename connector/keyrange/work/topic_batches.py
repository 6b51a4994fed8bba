"""Rows of topics as record batches: rows wait for others, so that those of a partition fill its
batches. Nobody has sealed them: who sends them is not known yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.wire.produced_batches import ProducedBatch, RecordWriter
from keyrange.wire.topic_limits import TOPIC

WAITING_BYTES: Final = 8 << 20

Made = tuple[str, list[ProducedBatch]]


class TopicBatches:
    """Rows of one topic, or of those that a column names. `writer` begins with a topic."""

    def __init__(
        self, topic: str, writer: Callable[[str], RecordWriter], waiting_bytes: int = WAITING_BYTES
    ) -> None:
        self._topic, self._writer = topic, writer
        self._most, self._waiting_bytes = waiting_bytes, 0
        self._waiting: list[pa.RecordBatch] = []
        self._writers: dict[str, RecordWriter] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Made]:
        """Take rows, all of the same columns; what of them is full comes out, by topic, and has to
        be taken.

        Raises INVALID_RECORD and MESSAGE_TOO_LARGE for what a topic does not take any more that it
        took when it was looked at."""
        if rows.num_rows:
            self._waiting.append(rows)
            self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > self._most:
            yield from self.rest()

    def rest(self) -> Iterator[Made]:
        """What still waits. Raises as `add`."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            for rows in pa.Table.from_batches(waiting).combine_chunks().to_batches():
                for topic, own in by_topic(rows, self._topic):
                    yield topic, self._written(topic, own)

    def _written(self, topic: str, rows: pa.RecordBatch) -> list[ProducedBatch]:
        if topic not in self._writers:
            self._writers[topic] = self._writer(topic)
        return self._writers[topic].write(rows, time.time_ns() // 1_000_000)


def by_topic(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by the topic that their column names, without it; all for `topic` where none does."""
    if TOPIC not in rows.schema.names:
        yield topic, rows
        return
    topics = rows.column(TOPIC)
    for each in pc.unique(topics).to_pylist():
        yield each, rows.filter(pc.equal(topics, each)).drop_columns([TOPIC])
