"""A query that commits individually, from a real topic to a real Delta table, in this session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from brokers import Record, Topics, wait_until
from keyrange.core.commits.log import Known
from keyrange.delta.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
from sources import committed, options, planned_offsets

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "partition int, offset bigint, text string"
AT_ONCE = {"redelivery.backoff": "1ms", "redelivery.backoff.max": "1ms"}
LATER = {"redelivery.backoff": "1h", "redelivery.backoff.max": "1h"}


def parse(record: Any) -> Any:
    """Fails for values that begin with '!'."""
    text = record.value.decode()
    if text.startswith("!"):
        raise ValueError(f"no {text}")
    return (record.partition, record.offset, text)


def mended(record: Any) -> Any:
    """What the mended function does."""
    return (record.partition, record.offset, record.value.decode())


def values(numbers: Sequence[int], failing: Sequence[int] = ()) -> list[Record]:
    """A record for each number, of one of 17 keys; those in `failing` fail."""
    return [
        Record((b"!%d" if n in failing else b"%d") % n, key=b"k%d" % (n % 17), partition=n % 2)
        for n in numbers
    ]


class Job:
    """A query with a checkpoint of its own, below `home`; the tables there are those of all."""

    def __init__(
        self, spark: SparkSession, topics: Topics, topic: str, home: Path, **given: str
    ) -> None:
        self.spark, self.home = spark, home
        self.checkpoint = home / given.pop("checkpoint", "checkpoint")
        self.table, self.sink_path = str(home / "commits"), str(home / "sink")
        self.options = options(
            topics,
            topic,
            startingOffsets="earliest",
            commitMode="individual",
            **{"commitTable": self.table, **given},
        )

    def start(
        self, function: Callable[[Any], Any] = parse, available_now: bool = False, **given: str
    ) -> StreamingQuery:
        own = self.options | given
        source = self.spark.readStream.format("keyrange").options(**own).load()

        def body(batch: DataFrame, _: int) -> None:
            output = keyrange.process(batch, function, SCHEMA)
            writer = output.write.format("delta").mode("append").options(**keyrange.transaction())
            writer.save(self.sink_path)

        wrapped = keyrange.each_batch(body, own, str(self.checkpoint))
        writer = source.writeStream.foreachBatch(wrapped)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, function: Callable[[Any], Any] = parse, **given: str) -> None:
        """Work on what is there; raises what the query failed with."""
        assert self.start(function, available_now=True, **given).awaitTermination(240)

    def numbers(self) -> list[int]:
        """What the sink holds, a number for each row."""
        rows = DeltaTable(self.sink_path).to_pyarrow_table().column("text").to_pylist()
        return sorted(int(text.removeprefix("!")) for text in rows)

    def known(self) -> Known:
        """What the table says of this job's source."""
        first = planned_offsets(self.checkpoint, 0)
        source_id = first["@keyrange"]["commits"]["sourceId"]
        return open_commit_table(CommitOptions(table=self.table), source_id).known()

    def wait_for(self, query: StreamingQuery, batch_id: int) -> None:
        """Return when a batch is finished; raises what the query failed with."""
        wait_until(lambda: batch_id in committed(self.checkpoint) or not query.isActive, 120)
        failure = query.exception()
        if failure is not None:
            raise failure


def failure_of(query: StreamingQuery) -> str:
    """What a query fails with that is about to."""
    try:
        assert query.awaitTermination(120), "it goes on"
    except StreamingQueryException as failure:
        return str(failure)
    raise AssertionError("it ended without a failure")
