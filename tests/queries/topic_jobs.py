"""A `keyrange.job` of a test that writes to a topic, and what has come of it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import Record, Topics
from queries.individual import AT_ONCE
from spark.sources import options

SCHEMA = "key binary, value string"
PARTITIONS = 3


class TopicJob:
    """A job whose rows have the key of their record, and its value with what the run says; of a
    value that ends with * there are two."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, mode: str) -> None:
        self.spark, self.topics, self.home, self.mode = spark, topics, home, mode
        self.source = topics.create_topic("into", 2)
        self.topic = topics.create_topic("out", PARTITIONS)
        self.checkpoint = home / "checkpoint"
        self.options = options(topics, self.source, startingOffsets="earliest")
        if mode == "individual":
            self.options |= {"commitMode": mode, "commitTable": str(home / "commits"), **AT_ONCE}

    def produce(self, *values: str) -> None:
        """Records whose key is the first letter of their value."""
        made = [Record(each.encode(), each[:1].encode(), ord(each[0]) % 2) for each in values]
        self.topics.produce(self.source, made)

    def writer(self, said: str = "", schema: str = SCHEMA, **of_topic: Any) -> Any:
        def work(record: Any) -> Any:
            text = record.value.decode()
            if text.endswith("!") and not said:
                raise ValueError("no")
            row = (record.key, f"{text}{said}")
            return [row, (record.key, f"{text}{said} again")] if text.endswith("*") else row

        job = keyrange.job(self.options, work, schema)
        topic = of_topic.pop("topic", self.topic)
        if "compression" in of_topic:
            target = keyrange.Topic(topic)
            return job.into(target, str(self.checkpoint), spark=self.spark, **of_topic)
        return job.into_topic(topic, str(self.checkpoint), spark=self.spark, **of_topic)

    def start(self, said: str = "", **given: Any) -> Any:
        return self.writer(said, **given).trigger(availableNow=True).start()

    def run(self, said: str = "", **given: Any) -> None:
        assert self.start(said, **given).awaitTermination(240)

    def rows(self) -> dict[str, list[str]]:
        """The values of each key, in their order, once all transactions are over."""
        wait_until_all_are_over(self.topics, self.topic)
        found: dict[str, list[str]] = {}
        for records in committed_records(self.topics, self.topic, PARTITIONS):
            for each in records:
                found.setdefault(each.key.decode(), []).append(each.value.decode())
        return found
