"""What a broker knows a batch again by: producer, epoch and sequence stand in the bytes, each
batch's own."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from keyrange.kafka.messages.transactions import _sealed
from keyrange.kafka.model.sender_messages import Batch, Part, Produce, Producer
from keyrange.model.offsets import TopicPartition
from keyrange.wire.produced_batches import RecordWriter
from keyrange.wire.topic_limits import BatchSettings


def test_each_batch_has_its_own_place_in_the_sequence() -> None:
    writer = RecordWriter("t", 2, BatchSettings())
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b", b"c"], "partition": pa.array([0, 0, 1], pa.int32())}
    )
    made = writer.write(rows, 1_000)
    parts = [
        Part(Batch(TopicPartition("t", each.partition), len(each.rows), 1, np.array(each.data)), at)
        for each, at in zip(made, (70_000, 5), strict=True)
    ]
    sealed = _sealed(Produce(Producer(4_711, 3), tuple(parts)))
    # Kafka's format of record batches: producerId, producerEpoch and baseSequence from byte 43 on.
    found = {number: struct.unpack_from(">qhi", data, 43) for number, data in sealed["t"]}
    assert found == {0: (4_711, 3, 70_000), 1: (4_711, 3, 5)}
