"""A `keyrange.job` of a test, from a real topic to a real Delta table, in this session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from spark.sources import options


class TableJob:
    """A job on a topic of its own, with a table and a checkpoint below `home`."""

    def __init__(
        self, spark: SparkSession, topics: Topics, home: Path, partitions: int = 2
    ) -> None:
        self.spark, self.topics, self.home = spark, topics, home
        self.topic = topics.create_topic("jobs", partitions)
        self.table, self.checkpoint = home / "table", home / "checkpoint"

    def produce(self, *values: bytes | Record) -> None:
        self.topics.produce(self.topic, values)

    def run(self, *job: Any, **given: Any) -> StreamingQuery:
        """Work on what is there, as `start` has it; raises what the query failed with."""
        query = self.start(*job, **given)
        assert query.awaitTermination(240)
        return query

    def run_until(self, count: int, *job: Any, **given: Any) -> None:
        """Runs one after the other until the table has `count` rows: when a record that failed is
        due again depends on how often a slow machine has tried it."""

        def has_all() -> bool:
            self.run(*job, **given)
            return len(self.rows()) >= count

        wait_until(has_all)

    def start(
        self,
        function: Callable[..., Any] | None = None,
        schema: str | None = None,
        mode: Any = "record",
        into: dict[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        trigger: Mapping[str, Any] = MappingProxyType({"availableNow": True}),
        time: keyrange.EventTime | keyrange.ProcessingTime | None = None,
        on_timer: Callable[..., Any] | None = None,
        initial_state: Any = None,
        **given: str,
    ) -> StreamingQuery:
        own = options(self.topics, self.topic, startingOffsets="earliest", **given)
        begins = (time, on_timer, initial_state)
        job = keyrange.job(own, function, schema, mode, state, *begins)
        writer = job.into(str(self.table), str(self.checkpoint), spark=self.spark, **(into or {}))
        return writer.trigger(**trigger).start()

    def rows(self) -> list[dict[str, Any]]:
        return DeltaTable(self.table).to_pyarrow_table().to_pylist()


def individual(home: Path, **given: str) -> dict[str, str]:
    return {"commitMode": "individual", "commitTable": str(home / "commits"), **given}
