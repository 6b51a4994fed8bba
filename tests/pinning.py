"""Queries with pinned key ranges, followed batch by batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers import Record, Topics, wait_until
from sources import options, stream

Each = Callable[[DataFrame, int], None]
# Members are taken in as soon as they are seen, and lost ones are missed soon.
QUICK = {
    "splitBy": "keyRange",
    "startingOffsets": "earliest",
    "expansion.timeout.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "pin.wait.ms": "500",
}


class PinnedQuery:
    """A query over one topic with its own members' group."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, **given: str) -> None:
        self.spark, self.topics = spark, topics
        self.topic = topics.create_topic("pinned", 2)
        self.checkpoint, self.table = home / "checkpoint", home / "members"
        self.given = {
            **QUICK,
            "memberTable": str(self.table),
            "memberGroup": self.topic,
            "slot.directory": str(home / "slots"),
            "pin": "prefer",
            **given,
        }
        self.sent = 0

    def produce(self, count: int) -> None:
        """More records: 40 keys, each numbered in its order."""
        numbers = range(self.sent, self.sent + count)
        self.topics.produce(
            self.topic,
            [Record(b"%d" % n, b"key-%d" % (n % 40), n % 40 % 2) for n in numbers],
        )
        self.sent += count

    def options(self) -> dict[str, str]:
        return options(self.topics, self.topic, **self.given)

    def frame(self) -> DataFrame:
        return stream(self.spark, self.topics, self.topic, **self.given)

    @contextmanager
    def running(self, each: Each, frame: DataFrame | None = None) -> Iterator[StreamingQuery]:
        frame = self.frame() if frame is None else frame
        query = (
            frame.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )
        try:
            yield query
            failure = query.exception()
            assert failure is None, str(failure)
        finally:
            query.stop()


def members_metrics(query: StreamingQuery) -> dict[str, Any]:
    """What the source says of its members in the query's last progress."""
    progress = query.lastProgress
    if progress is None:
        return {}
    latest = progress["sources"][0]["latestOffset"]
    document = json.loads(latest) if isinstance(latest, str) else latest
    found: dict[str, Any] = (document or {}).get("@keyrange", {}).get("metrics", {})
    return dict(found.get("members", {}))


def produce_until(query: PinnedQuery, condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Keep batches coming until something holds."""

    def attempt() -> bool:
        query.produce(40)
        return condition()

    wait_until(attempt, timeout_s)
