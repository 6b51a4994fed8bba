"""A job that works on records one by one, run by spark-submit in a process of its own.

    processing.py BOOTSTRAP TOPIC HOME WRITER [DELIVERIES]

WRITER `spark` writes output through Spark, `job` in the tasks that read, with `keyrange.job`;
`frames` decides by DataFrame. Values that begin with "!" fail whenever
they are worked on; those with "?" fail at random, but not by DataFrame. A record fails so many
deliveries until it is dead.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange

SCHEMA = "partition int, offset bigint, key string, text string"


def work(record: Any) -> Any:
    text = record.value.decode()
    if text.startswith("!") or (text.startswith("?") and random.random() < 0.5):
        raise ValueError(f"no {text}")
    return (record.partition, record.offset, record.key.decode(), text)


def waiting(record: Any) -> Any:
    """As `work`, but numbers from 300 on wait until there is the file that GATE names. Beside it
    there is `reached` then."""
    gate = Path(os.environ["GATE"])
    if int(record.value) >= 300:
        gate.with_name("reached").touch()
        while not gate.exists():
            time.sleep(0.05)
    return work(record)


def as_it_is(record: Any) -> Any:
    """The value alone, of every record."""
    return (record.value.decode(),)


def process(batch: DataFrame, by: str) -> DataFrame:
    """The output of a batch, of whose records each is done or rejected then."""
    if by == "spark":
        return keyrange.process(batch, work, SCHEMA)
    whole = keyrange.materialize(batch)
    text = F.col("value").cast("string")
    keyrange.reject(whole.where(text.startswith("!")).withColumn("why", F.lit("no")), "why")
    good = whole.where(~text.startswith("!"))
    keyrange.acknowledge(good)
    key = F.col("key").cast("string").alias("key")
    return good.select("partition", "offset", key, text.alias("text"))


def main(bootstrap: str, topic: str, home: str, by: str, deliveries: str = "6") -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "splitBy": "keyRange",
        "keyRangesPerPartition": "3",
        "maxOffsetsPerTrigger": "400",
        "commitMode": "individual",
        "commitTable": f"{home}/commits",
        "redelivery.backoff": "1ms",
        "redelivery.backoff.max": "1ms",
        "maxDeliveries": deliveries,
        "availableNow.redelivery": "drain",
    }
    spark = SparkSession.builder.appName("processing").getOrCreate()

    def body(batch: DataFrame, batch_id: int) -> None:
        output = process(batch, by)
        writer = output.write.format("delta").mode("append").option("txnAppId", "processing")
        writer.option("txnVersion", batch_id).save(f"{home}/sink")

    checkpoint = str(Path(home) / "checkpoint")
    if by == "job":
        job = keyrange.job(options, work, SCHEMA).into(f"{home}/sink", checkpoint, spark=spark)
        job.trigger(availableNow=True).start().awaitTermination()
        return
    source = spark.readStream.format("keyrange").options(**options).load()
    query = (
        source.writeStream.foreachBatch(keyrange.each_batch(body, options, checkpoint))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
