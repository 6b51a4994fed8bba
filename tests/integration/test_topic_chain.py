"""Two jobs in a chain, by a topic between them: the second one's table is what a loop over the
events makes of them, though the first one's driver is killed."""

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
from brokers.real_broker import Record, Topics, kafka_is_before, wait_until
from queries import rekeying_job
from queries.ingesting import Ingest
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left"),
    pytest.mark.skipif(kafka_is_before(2, 5), reason="transactions need Kafka 2.5"),
]
for module in (sys.modules[__name__], rekeying_job):
    cloudpickle.register_pickle_by_value(module)

EVENTS, ITEMS, PARTITIONS = 1_500, 37, 3


def running(record: Any, state: Any) -> Any:
    event = json.loads(record.value)
    count, total = state.sums.get(default=(0, 0))
    state.sums.update((count + 1, total + event["amount"]))
    return record.key.decode(), event["id"], count + 1, total + event["amount"]


def test_a_table_of_sums_by_another_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, between = (topics.create_topic(name, PARTITIONS) for name in ("events", "by-item"))
    random = Random(1)
    events = [
        {"id": n, "item": f"item-{random.randrange(ITEMS)}", "amount": random.randrange(100)}
        for n in range(EVENTS)
    ]
    sent = [Record(json.dumps(each).encode(), b"user-%d" % (each["id"] % 11)) for each in events]
    topics.produce(source, sent)

    given = options(topics, between, startingOffsets="earliest", splitBy="keyRange")
    given |= {"kafka.isolation.level": "read_committed", "commitMode": "individual"}
    given["commitTable"] = str(tmp_path / "commits")
    job = keyrange.job(
        given,
        running,
        "item string, id long, n long, total long",
        state={"sums": keyrange.ValueState("n long, total long")},
    )
    table, checkpoint = tmp_path / "sums", tmp_path / "first"
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
    second_query.stop()

    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((each["id"], each["item"]) for each in rows) == [
        (each["id"], each["item"]) for each in events
    ]
    amounts = {each["id"]: each["amount"] for each in events}
    sums = defaultdict(list)
    for each in rows:
        sums[each["item"]].append((each["n"], each["id"], each["total"]))
    for of_item in sums.values():
        total = 0
        for number, (n, event, told) in enumerate(sorted(of_item), 1):
            total += amounts[event]
            assert (n, told) == (number, total)


def sent_to(topics: Topics, topic: str) -> int:
    """Where its logs end, with what is not committed and what ends transactions."""
    return sum(end for _, end in topics.offsets(topic).values())
