"""A job with keys whose driver may end itself by SIGKILL, beside the transaction of its table.

It is started as jobs/ingest.py is (`queries.ingesting`). `--by driver`: the session has no Delta.
`--ends before` is between the manifest and the merge, `--ends after` between the merge and the end
of the batch.
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from keyrange.storage.sink_table import SinkTable

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SCHEMA = "id string, day date, text string, gone boolean"


def row(record: Any) -> Any:
    import datetime

    text = record.value.decode()
    day = datetime.date(2026, 1, 1 + int(record.key) % 3)
    return (record.key.decode(), day, text or None, not text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap-servers", "topic", "table", "checkpoint", "by", "ends", "commits"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--option", action="append", default=[])
    return parser.parse_args()


def end_self(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    given = arguments()
    builder = SparkSession.builder
    for name, value in DELTA.items() if given.by == "spark" else ():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    options = {
        "kafka.bootstrap.servers": given.bootstrap_servers,
        "subscribe": given.topic,
        "startingOffsets": "earliest",
        **dict(each.split("=", 1) for each in given.option),
    }
    if given.commits:
        options |= {"commitMode": "individual", "commitTable": given.commits}
    if given.by == "spark":
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{given.table}` (id string, day date, text string) "
            "USING delta PARTITIONED BY (day) "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
    whole = SinkTable.write

    def write(*given: Any, **named: Any) -> Any:
        whole(*given, **named)
        end_self()

    if given.ends:
        SinkTable.write = end_self if given.ends == "before" else write
    job = keyrange.job(options, row, SCHEMA)
    writer = job.into(
        given.table,
        given.checkpoint,
        keys=["id", "day"],
        deletes="gone",
        partition_by=["day"],
        spark=spark,
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(240)


if __name__ == "__main__":
    main()
