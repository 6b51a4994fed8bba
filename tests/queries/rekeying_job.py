"""A job that re-keys events of users by their item into a topic, and as a program its driver."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pyspark.sql import SparkSession

import keyrange


def by_item(record: Any) -> Any:
    event = json.loads(record.value)
    return event.pop("item"), json.dumps(event)


# So few that there are many batches, and one of them is under way when the driver is killed.
A_BATCH = 50


def writer_of(
    servers: str,
    source: str,
    topic: str,
    checkpoint: str,
    spark: SparkSession,
    a_batch: int = A_BATCH,
) -> Any:
    options = {"kafka.bootstrap.servers": servers, "subscribe": source}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(a_batch)}
    job = keyrange.job(options, by_item, "key string, value string")
    return job.into_topic(topic, checkpoint, spark=spark)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "topic", "table", "checkpoint"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()
    places = (given.bootstrap_servers, given.topic, given.table, given.checkpoint)
    writer_of(*places, SparkSession.builder.getOrCreate()).start().awaitTermination()


if __name__ == "__main__":
    main()
