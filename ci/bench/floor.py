"""A process that takes partitions of a topic to a Parquet file, by `keyrange.Consumer` and Arrow's
writer alone: what a job's tasks cannot be faster than, as many of them as there are cores."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from bench import side_by_side
from keyrange import Consumer, TopicPartition

# What repeats; Parquet would begin a dictionary of the others too, and give it up.
_REPEATED = ["topic", "partition", "timestampType"]


def seconds_to_write(
    bootstrap_servers: str, topic: str, partitions: int, rows: int, directory: Path, processes: int
) -> float:
    """How long the processes take side by side, from when all of them are ready to read."""
    commands = [
        [
            "bench.floor",
            *(bootstrap_servers, topic, json.dumps(list(range(number, partitions, processes)))),
            *(str(rows // partitions), str(directory / f"floor-{number}")),
        ]
        for number in range(processes)
    ]
    return side_by_side.seconds_to_write(commands, rows)


def main(bootstrap_servers: str, topic: str, partitions: str, rows: str, home: str) -> None:
    numbers = json.loads(partitions)
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.group.id": Path(home).name,
        "commitTable": f"{home}-commits",
        "startingOffsets": "earliest",
        "member.name": Path(home).name,
    }
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, number): [] for number in numbers})
        side_by_side.wait_for_the_others()
        print(_write(consumer, len(numbers) * int(rows), f"{home}.parquet"), flush=True)


def _write(consumer: Consumer, rows: int, path: str) -> int:
    writer: pq.ParquetWriter | None = None
    written = 0
    while written < rows:
        for batch in consumer.poll(1_000):
            if writer is None:
                writer = pq.ParquetWriter(path, batch.schema, use_dictionary=_REPEATED)
            writer.write_batch(batch)
            consumer.acknowledge(batch)
            written += batch.num_rows
    consumer.commit()
    assert writer is not None
    writer.close()
    return written


if __name__ == "__main__":
    main(*sys.argv[1:])
