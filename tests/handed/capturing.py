"""A table that follows a database, whose driver is killed where a batch is merged: before it, when
its files are there and named, or behind it, when Spark knows nothing of it."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pyspark.sql import SparkSession

import keyrange
from keyrange.storage.sink_table import SinkTable


def killed(whole: Any, before: bool) -> Any:
    def merge(*given: Any, **named: Any) -> Any:
        if not before:
            whole(*given, **named)
        # The JVM and the workers too: they are of the same group.
        os.killpg(0, signal.SIGKILL)

    return merge


def main(servers: str, topic: str, home: str, when: str) -> None:
    SparkSession.builder.getOrCreate()
    SinkTable.write = killed(SinkTable.write, when == "before")  # type: ignore[method-assign]
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "valueFormat": "debezium",
    }
    writer = keyrange.job(options).into(f"{home}/table", f"{home}/checkpoint", keys=["id"])
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
