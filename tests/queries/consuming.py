"""A plain consumer in tests: short forms, and a process that is killed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from keyrange import Consumer, TopicPartition
from keyrange.kafka.cluster import Cluster
from keyrange.model.offsets import LATEST

GROUP = "consumers"


def consumer_options(servers: str, table: Path | str, **given: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.group.id": GROUP,
        "commitTable": str(table),
        "startingOffsets": "earliest",
        **named,
    }


class Journal:
    """A file of lines that outlives a kill. Linux cuts a write short, at the end of a page, whose
    process is killed: such a line was never written."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.ftruncate(self._descriptor, path.read_bytes().rfind(b"\n") + 1)

    def write(self, what: str, **values: Any) -> None:
        os.write(self._descriptor, (json.dumps({"what": what, **values}) + "\n").encode())


def read_journal(path: Path) -> list[dict[str, Any]]:
    lines = path.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines[:-1]]


def consume(
    servers: str, table: str, topic: str, lo: str, hi: str, path: str, run: str, *given: str
) -> None:
    """Consume until all is done, and write what was handed out, and what was committed, line by
    line. Each poll's records are acknowledged but for some, which are done with the next ones."""
    journal = Journal(Path(path))
    dice = random.Random(run)
    partition = TopicPartition(topic, 0)
    options = consumer_options(servers, table, maxBatchRows="50", member__name=f"one-{lo}")
    options |= dict(each.split("=", 1) for each in given)
    consumer = Consumer(options)
    consumer.assign({partition: [(int(lo), int(hi))]})
    journal.write("assigned", run=run)
    cluster: Cluster = consumer._cluster
    end = cluster.list_offsets(cluster.describe([topic]), {partition: LATEST})[partition][0]
    left: list[Any] = []
    while True:
        records = consumer.poll_records(200)
        for each in records:
            journal.write("handed", offset=each.offset, key=(each.key or b"").decode(), run=run)
        done = [each for each in (*left, *records) if dice.random() < 0.7]
        left = [each for each in (*left, *records) if each not in done]
        consumer.acknowledge(done)
        at = consumer.commit()
        journal.write("committed", offsets=[each.offset for each in done], run=run)
        if at.get(partition) == end:
            break
    consumer.close()
    journal.write("finished", run=run)
