"""A process that takes partitions of a topic to a Parquet file, by `keyrange.Consumer` and Arrow's
writer alone: what a job's tasks cannot be faster than, as many of them as there are cores.

It says `ready` and waits for a line; then it reads, writes, and says how many rows those were.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq

from keyrange import Consumer, TopicPartition

# What repeats; Parquet would begin a dictionary of the others too, and give it up.
_REPEATED = ["topic", "partition", "timestampType"]


def seconds_to_write(
    bootstrap_servers: str, topic: str, partitions: int, rows: int, directory: Path, processes: int
) -> float:
    """How long the processes take side by side, from when all of them are ready to read."""
    command = [sys.executable, "-m", "bench.floor", bootstrap_servers, topic]
    with ExitStack() as stack:
        running = []
        for number in range(processes):
            own = json.dumps(list(range(number, partitions, processes)))
            process = subprocess.Popen(
                [*command, own, str(rows // partitions), str(directory / f"floor-{number}")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(stack.enter_context(process))
        answers = [_answer(process) for process in running]
        started = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [_answer(process) for process in running]
        taken = time.perf_counter() - started
    if sum(map(int, answers)) != rows:
        raise RuntimeError(f"{answers} of {rows} rows were written")
    return taken


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    answer = process.stdout.readline().strip()
    if not answer:
        raise RuntimeError(f"a process of the floor ended with {process.wait()}")
    return answer


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
        print("ready", flush=True)
        sys.stdin.readline()
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
