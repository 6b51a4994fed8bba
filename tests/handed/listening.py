"""A client of a Spark Connect server that listens to its query.

    listening.py BOOTSTRAP TOPIC HOME

Prints what the listener knows of the metrics at the end, as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import keyrange


def main(bootstrap: str, topic: str, home: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    listener = keyrange.ProgressListener(progress_file=f"{home}/progress.jsonl")
    spark.streams.addListener(listener)
    query = (
        spark.readStream.format("keyrange")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .load()
        .writeStream.format("noop")
        .queryName("listened")
        .option("checkpointLocation", f"{home}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    told = listener.wait_ended(str(query.runId), 60)
    spark.streams.removeListener(listener)
    figures = {sample.metric.name: sample.value for sample in listener.samples()}
    print(json.dumps({"told": told, **figures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
