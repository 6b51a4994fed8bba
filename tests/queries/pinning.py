"""Queries with pinned key ranges, followed batch by batch."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from brokers.real_broker import Record, Topics, send, wait_until
from keyrange.members.model.assignment import Assignment
from keyrange.members.status import MemberStatus, read_status
from keyrange.members.table.assignments import open_assignments
from keyrange.options.members import MEMBERS_SUFFIX
from keyrange.ranges.sharing.shared_directory import is_alive, name_of, usual_settings
from spark.sources import options, stream

_PRODUCE_S = 0.4
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


class Numbers:
    """The numbers in each batch, as it ran last: a batch whose end was not noted runs again, with
    the same."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = sorted(int(bytes(row[0])) for row in frame.select("value").collect())
        assert self.batches.setdefault(batch_id, rows) == rows

    @property
    def all(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)


class PinnedQuery:
    """A query over one topic with its own members' group."""

    def __init__(
        self, spark: SparkSession, topics: Topics, home: Path, replicas: int = 1, **given: str
    ) -> None:
        self.spark, self.topics = spark, topics
        self.topic = topics.create_topic("pinned", 2, replicas=replicas)
        self.checkpoint, self.table = home / "checkpoint", home / "members"
        self.given = {
            **QUICK,
            "memberTable": str(self.table),
            "memberGroup": self.topic,
            "slot.directory": str(home / "slots"),
            "pin": "prefer",
            **given,
        }
        self.partitions = 2
        self.sent = 0
        self.last: StreamingQuery | None = None
        # Values are filled up to so many bytes.
        self.width = 0

    def produce(self, count: int) -> None:
        """More records: 40 keys, each numbered in its order."""
        with self.topics.producer() as producer:
            self.produce_with(producer, count)

    def produce_with(self, producer: KafkaProducer, count: int) -> None:
        records = [
            Record(b"%-*d" % (self.width, n), b"key-%d" % (n % 40), n % 40 % self.partitions)
            for n in range(self.sent, self.sent + count)
        ]
        send(producer, self.topic, records)
        self.sent += count

    def options(self) -> dict[str, str]:
        return options(self.topics, self.topic, **self.given)

    def frame(self) -> DataFrame:
        return stream(self.spark, self.topics, self.topic, **self.given)

    @contextmanager
    def running(self, each: Each, frame: DataFrame | None = None) -> Iterator[StreamingQuery]:
        """The query, which has not failed by the end."""
        with self.started(each, frame) as query:
            yield query
            failure = query.exception()
            assert failure is None, str(failure)

    @contextmanager
    def started(self, each: Each, frame: DataFrame | None = None) -> Iterator[StreamingQuery]:
        frame = self.frame() if frame is None else frame
        query = (
            frame.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )
        self.last = query
        try:
            yield query
        finally:
            query.stop()

    def member(self) -> MemberStatus:
        """The status of the one member that the session's executor has for this query."""
        memory = usual_settings(0, 0).memory_directory
        assert memory is not None
        group = name_of(f"{self.topic}{MEMBERS_SUFFIX}")
        found = [*memory.glob(f"keyrange-{os.getuid()}/*/member-{group}")]
        statuses = [status for each in found if (status := read_status(each)) is not None]
        [status] = statuses or [MemberStatus()]
        return status

    def end_member(self) -> None:
        """End it, where its broker is about to go."""
        status = self.member()
        if is_alive(status.pid, status.started):
            os.kill(status.pid, signal.SIGTERM)
            wait_until(lambda: not is_alive(status.pid, status.started))

    def assignment(self) -> Assignment | None:
        stored = open_assignments(str(self.table), self.topic, {}).last()
        return stored.assignment if stored is not None else None


def members_metrics(query: StreamingQuery) -> dict[str, Any]:
    """What the source says of its members in the query's last progress."""
    progress = query.lastProgress
    return metrics_of(progress) if progress is not None else {}


def metrics_of(progress: Any) -> dict[str, Any]:
    """What the source says of its members in one progress."""
    latest = progress["sources"][0]["latestOffset"]
    document = json.loads(latest) if isinstance(latest, str) else latest
    found: dict[str, Any] = (document or {}).get("@keyrange", {}).get("metrics", {})
    return dict(found.get("members", {}))


def produce_until(
    query: PinnedQuery, condition: Callable[[], bool], timeout_s: float = 150
) -> None:
    """Keep batches coming until something holds; a query that has failed says why at once."""
    # A query that runs a batch for every few records keeps both cores from what is waited for.
    due_s = 0.0
    with query.topics.producer() as producer:

        def attempt() -> bool:
            nonlocal due_s
            failure = query.last.exception() if query.last is not None else None
            assert failure is None, str(failure)
            if time.monotonic() >= due_s:
                query.produce_with(producer, 40)
                due_s = time.monotonic() + _PRODUCE_S
            return condition()

        wait_until(attempt, timeout_s)
