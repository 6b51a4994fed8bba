"""Rows for a topic as record batches in a file of their task, until a sender sends them.

A file is one of Arrow: a row for each record batch, in the order in which those of a partition are
to be sent. Nobody has sealed them: who sends them is not known yet.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import error
from keyrange.storage.data_files import DataFile
from keyrange.storage.object_store import let_go
from keyrange.wire.produced_batches import BatchSettings, Produced, RecordWriter
from keyrange.wire.record_limits import TOPIC
from keyrange.work.outcome_rows import HIDDEN

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("data", pa.large_binary()),
    ]
)
# Of rows that wait for others to fill a batch of each partition with.
_WAITING_BYTES: Final = 8 << 20


class StagedBatches:
    """The rows of one task for one topic, or for those that a column names. `create` begins a file
    by its name below `attempt`; `partitions` says how many a topic has."""

    def __init__(
        self,
        create: Callable[[str], pa.NativeFile],
        attempt: str,
        topic: str,
        settings: BatchSettings,
        partitions: Callable[[str], int],
        waiting_bytes: int = _WAITING_BYTES,
    ) -> None:
        self._create, self._attempt = create, attempt
        self._topic, self._settings, self._partitions = topic, settings, partitions
        self._most, self._waiting_bytes = waiting_bytes, 0
        self._waiting: list[pa.RecordBatch] = []
        self._writers: dict[str, RecordWriter] = {}
        self._name = f"part-{uuid.uuid4()}.arrow"
        self._stream: pa.NativeFile | None = None
        self._file: pa.RecordBatchFileWriter | None = None
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of records, and their topics where none was named; what is hidden is left out.
        Raises INVALID_RECORD and MESSAGE_TOO_LARGE for what a topic does not take any more that it
        took when they were looked at."""
        if not rows.num_rows:
            return
        rows = rows.select([name for name in rows.schema.names if name != HIDDEN])
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes > self._most:
            self._write()

    def finish(self) -> list[DataFile]:
        """The file; none where there was no row."""
        if self._waiting:
            self._write()
        if self._file is None or self._stream is None:
            return []
        self._file.close()
        size = self._stream.tell()
        self._stream.close()
        self._file = None
        return [DataFile(f"{self._attempt}/{self._name}", size, self._rows, "{}")]

    def abandon(self) -> None:
        let_go(self._file, self._stream)

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        for rows in table.to_batches():
            for topic, own in self._by_topic(rows):
                self._write_to(topic, own)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if TOPIC not in rows.schema.names:
            yield self._topic, rows
            return
        topics = rows.column(TOPIC)
        for topic in pc.unique(topics).to_pylist():
            yield topic, rows.filter(pc.equal(topics, topic)).drop_columns([TOPIC])

    def _write_to(self, topic: str, rows: pa.RecordBatch) -> None:
        if topic not in self._writers:
            # Tasks begin with partitions of their own, where rows have neither key nor partition.
            sticky = uuid.UUID(self._name[5:41]).int
            count = self._partitions(topic)
            self._writers[topic] = RecordWriter(topic, count, self._settings, sticky % count)
        produced = self._writers[topic].write(rows, time.time_ns() // 1_000_000)
        for failure in produced.refused.values():
            raise error(failure.condition.name, failure.message)
        if self._file is None:
            self._stream = self._create(self._name)
            self._file = pa.ipc.new_file(self._stream, SCHEMA)
        self._file.write_batch(_stored(topic, produced))
        self._rows += rows.num_rows


def _stored(topic: str, produced: Produced) -> pa.RecordBatch:
    batches = produced.batches
    ends = np.cumsum([0, *(len(each.data) for each in batches)], dtype=np.int64)
    data = np.concatenate([each.data for each in batches])
    values = pa.Array.from_buffers(
        pa.large_binary(), len(batches), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic] * len(batches), pa.string()),
            pa.array([each.partition for each in batches], pa.int32()),
            pa.array([len(each.rows) for each in batches], pa.int32()),
            values,
        ],
        schema=SCHEMA,
    )
