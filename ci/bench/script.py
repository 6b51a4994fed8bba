"""What a good engineer writes who does without Spark: confluent-kafka, Arrow and delta-rs, a
process for each core, each record at least once in a Delta table.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from deltalake import DeltaTable, write_deltalake

from bench import side_by_side

_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
)
_MESSAGES = 20_000
# As large as the files that are worth writing, and two processes have room for.
_TABLE_BYTES = 256 << 20
# Its defaults hold little, and wait a second where that is full.
_CLIENT = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 131_072,
    "fetch.message.max.bytes": 8 << 20,
    "fetch.queue.backoff.ms": 10,
}


def seconds_to_write(
    bootstrap_servers: str, topic: str, partitions: int, rows: int, table: Path, processes: int
) -> float:
    """How long the processes take side by side, from when all of them have imported everything."""
    DeltaTable.create(str(table), _SCHEMA)
    group = uuid.uuid4().hex
    own = [list(range(number, partitions, processes)) for number in range(processes)]
    commands = [
        ["bench.script", bootstrap_servers, topic, json.dumps(each), group, str(table)]
        for each in own
    ]
    return side_by_side.seconds_to_write(commands, rows)


def main(bootstrap_servers: str, topic: str, partitions: str, group: str, table: str) -> None:
    side_by_side.wait_for_the_others()
    consumer = Consumer({**_CLIENT, "bootstrap.servers": bootstrap_servers, "group.id": group})
    places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in json.loads(partitions)]
    ends = [consumer.get_watermark_offsets(place)[1] for place in places]
    consumer.assign(places)
    left = written = sum(ends)
    batches: list[pa.RecordBatch] = []
    while left:
        messages = consumer.consume(min(_MESSAGES, left), timeout=1.0)
        if messages:
            batches.append(_batch(messages))
            left -= len(messages)
        if batches and (not left or sum(each.nbytes for each in batches) >= _TABLE_BYTES):
            write_deltalake(table, pa.Table.from_batches(batches), mode="append")
            consumer.commit(asynchronous=False)
            batches = []
    consumer.close()
    print(written, flush=True)


def _batch(messages: list[Message]) -> pa.RecordBatch:
    times = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [at * 1000 for _, at in times],
        [int(kind == 2) for kind, _ in times],
    ]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, _SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
