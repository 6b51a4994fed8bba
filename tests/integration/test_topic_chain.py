"""Two jobs in a chain, by a topic between them: the windows of the second one are what a loop over
the events makes of them, though the first one's driver is killed."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics, wait_until
from queries import rekeying_job
from queries.ingesting import Ingest
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left"),
    NEEDS_TRANSACTIONS,
]
for module in (sys.modules[__name__], rekeying_job):
    cloudpickle.register_pickle_by_value(module)

EVENTS, ITEMS, PARTITIONS = 1_500, 37, 3
BEGAN_MS, STEP_MS, SIZE_MS = 1_700_000_100_000, 1_000, 300_000


def test_windows_by_another_key(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, between = (topics.create_topic(name, PARTITIONS) for name in ("events", "by-item"))
    random = Random(1)
    events = [
        {
            "id": n,
            "item": f"item-{random.randrange(ITEMS)}",
            "amount": random.randrange(100),
            "at": BEGAN_MS + n * STEP_MS,
        }
        for n in range(EVENTS)
    ]
    sent = [Record(json.dumps(each).encode(), b"user-%d" % (each["id"] % 11)) for each in events]
    topics.produce(source, sent)

    given = options(topics, between, startingOffsets="earliest", splitBy="keyRange")
    given |= {"kafka.isolation.level": "read_committed", "commitMode": "individual"}
    given |= {"keyFormat": "string", "valueFormat": "json"}
    given |= {"valueSchema": "id long, amount long, at long"}
    given["commitTable"] = str(tmp_path / "commits")
    windows = keyrange.windows.tumbling("5m").count().sum(total="amount").collect(ids="id")
    # All events are less than half an hour apart.
    job = keyrange.job(given, windows, time=keyrange.EventTime("at", delay="30m"))
    table, checkpoint = tmp_path / "windows", tmp_path / "first"
    second = job.into(str(table), str(tmp_path / "second"), spark=spark)
    second_query = second.trigger(processingTime="0 seconds").start()

    script = rekeying_job.__file__
    places = ("--table", between, "--checkpoint", str(checkpoint))
    first = Ingest(topics, source, tmp_path, "local[2]", *places, job=script)
    try:
        wait_until(lambda: first.process.poll() is not None or sent_to(topics, between) > 300)
    finally:
        first.kill_all()
    assert 0 < sent_to(topics, between) < EVENTS, first.text()
    servers = topics.cluster.bootstrap_servers
    again = rekeying_job.writer_of(servers, source, between, str(checkpoint), spark, EVENTS)
    assert again.trigger(availableNow=True).start().awaitTermination(240)
    second_query.processAllAvailable()
    over = json.dumps({"at": BEGAN_MS + 86_400_000}).encode()
    topics.produce(between, [Record(over, b"over", number) for number in range(PARTITIONS)])
    expected: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for each in events:
        expected[each["item"], each["at"] // SIZE_MS * SIZE_MS].append(each)

    def found() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        return rows

    wait_until(lambda: len(found()) >= len(expected))
    second_query.stop()
    names = ("count", "total", "ids")
    assert sorted(
        (row["key"], round(row["window_start"].timestamp() * 1000), *map(row.get, names))
        for row in found()
    ) == sorted(
        (*window, len(own), sum(each["amount"] for each in own), [each["id"] for each in own])
        for window, own in expected.items()
    )


def sent_to(topics: Topics, topic: str) -> int:
    """Where its logs end, with what is not committed and what ends transactions."""
    return sum(end for _, end in topics.offsets(topic).values())
