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
from brokers.real_broker import Record, Topics, wait_until
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
from spark.sources import committed, options, planned_offsets

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "partition int, offset bigint, text string"
# Soon enough to wait for, and in the end late enough for a run to end before.
SOON = {"redelivery.backoff": "2s", "redelivery.backoff.max": "1m"}
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


class Journal:
    """What a job's function is given and what comes of it, a line for each time, in the order of
    time. Values that begin with '!' fail until `gate` is there."""

    def __init__(self, home: Path) -> None:
        self._path, self.gate = home / "journal", home / "gate"

    def work(self, record: Any) -> Any:
        is_done = not record.value.startswith(b"!") or self.gate.exists()
        line = f"{record.partition} {record.key.decode()} {record.offset} {int(is_done)}\n"
        with self._path.open("a") as file:
            file.write(line)
        if not is_done:
            raise ValueError("not yet")
        return mended(record)

    @property
    def failures(self) -> list[tuple[str, str, int]]:
        """Partition, key and offset of each time that the function failed."""
        return [place for place, is_done in self._lines() if not is_done]

    def check_each_done_once_and_in_order(self) -> None:
        """That no record came again which was done, and that no key's came out of order."""
        last: dict[tuple[str, str], int] = {}
        for (partition, key, offset), is_done in self._lines():
            assert offset > last.get((partition, key), -1), (partition, key, offset)
            if is_done:
                last[partition, key] = offset

    def _lines(self) -> list[tuple[tuple[str, str, int], bool]]:
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [
            ((partition, key, int(offset)), is_done == "1")
            for partition, key, offset, is_done in lines
        ]


class Job:
    """A query with a checkpoint of its own, below `home`; the tables there are those of all.
    `into`: a `keyrange.job` writes the sink, and not Spark."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Topics,
        topic: str,
        home: Path,
        into: bool = False,
        **given: str,
    ) -> None:
        self.spark, self.home, self.into = spark, home, into
        self._topics, self._topic = topics, topic
        self.checkpoint = home / given.pop("checkpoint", "checkpoint")
        self.table = given.pop("commitTable", str(home / "commits"))
        self.sink_path = str(home / "sink")
        self.options = options(
            topics,
            topic,
            startingOffsets="earliest",
            commitMode="individual",
            commitTable=self.table,
            **given,
        )

    def produce(self, records: Sequence[Record]) -> None:
        self._topics.produce(self._topic, records)

    def start(
        self, function: Callable[[Any], Any] = parse, available_now: bool = False, **given: str
    ) -> StreamingQuery:
        own = self.options | given
        if self.into:
            job = keyrange.job(own, function, SCHEMA)
            into = job.into(self.sink_path, str(self.checkpoint), spark=self.spark)
            return (into.trigger(availableNow=True) if available_now else into).start()
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

    def known(self) -> Snapshot:
        """What the table says of this job's source."""
        first = planned_offsets(self.checkpoint, 0)
        source_id = first["@keyrange"]["commits"]["sourceId"]
        return open_commit_table(CommitOptions(table=self.table), source_id).known()

    def wait_for(self, query: StreamingQuery, batch_id: int) -> None:
        """Return when a batch is finished; raises what the query failed with."""
        wait_until(lambda: batch_id in committed(self.checkpoint) or not query.isActive, 300)
        failure = query.exception()
        if failure is not None:
            raise failure


def failure_of(query: StreamingQuery) -> str:
    """What a query fails with that is about to."""
    try:
        assert query.awaitTermination(120), "it goes on"
    except (StreamingQueryException, KeyrangeError) as failure:
        return str(failure)
    raise AssertionError("it ended without a failure")
