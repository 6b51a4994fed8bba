"""Rows for a topic as record batches in a file of their task, until a sender sends them.

A file is one of Arrow: a row for each record batch, in the order in which those of a partition are
to be sent. Nobody has sealed them: who sends them is not known yet. Until then their checksum is in
a column.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from keyrange.storage.data_files import DataFile
from keyrange.storage.object_store import let_go
from keyrange.wire.produced_batches import ProducedBatch, RecordWriter, stored_checksum
from keyrange.wire.topic_limits import BatchSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.topic_batches import WAITING_BYTES, TopicBatches

SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int32()),
        ("checksum", pa.uint32()),
        ("data", pa.large_binary()),
    ]
)


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
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        self._create, self._attempt = create, attempt
        # Tasks begin with partitions of their own, where rows have neither key nor partition.
        sticky = uuid.uuid4()
        self._batches = TopicBatches(
            topic,
            lambda each: RecordWriter(each, partitions(each), settings, sticky.int),
            waiting_bytes,
        )
        self._name = f"part-{sticky}.arrow"
        self._stream: pa.NativeFile | None = None
        self._file: pa.RecordBatchFileWriter | None = None
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of records, and their topics where none was named; what is hidden is left out.
        Raises as `TopicBatches.add`."""
        rows = rows.select([name for name in rows.schema.names if name != HIDDEN])
        for topic, batches in self._batches.add(rows):
            self._write(topic, batches)

    def finish(self) -> list[DataFile]:
        """The file; none where there was no row."""
        for topic, batches in self._batches.rest():
            self._write(topic, batches)
        if self._file is None or self._stream is None:
            return []
        self._file.close()
        size = self._stream.tell()
        self._stream.close()
        self._file = None
        return [DataFile(f"{self._attempt}/{self._name}", size, self._rows, "{}")]

    def abandon(self) -> None:
        let_go(self._file, self._stream)

    def _write(self, topic: str, batches: list[ProducedBatch]) -> None:
        if self._file is None:
            self._stream = self._create(self._name)
            self._file = pa.ipc.new_file(self._stream, SCHEMA)
        self._file.write_batch(_stored(topic, batches))
        self._rows += sum(len(each.rows) for each in batches)


def _stored(topic: str, batches: list[ProducedBatch]) -> pa.RecordBatch:
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
            pa.array(
                [
                    stored_checksum(topic, each.partition, len(each.rows), each.data)
                    for each in batches
                ],
                pa.uint32(),
            ),
            values,
        ],
        schema=SCHEMA,
    )
