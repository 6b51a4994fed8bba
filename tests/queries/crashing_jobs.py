"""A `keyrange.job` of a test whose driver ends at a step of a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from queries.individual import AT_ONCE, failure_of
from spark.sources import options, stream

SCHEMA = "at long, text string"


class Crash(RuntimeError):
    """The driver ends here."""


class CrashingJob:
    """A job of one topic, whose function writes down what it is given."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, mode: str) -> None:
        self.spark, self.topics, self.home, self.mode = spark, topics, home, mode
        self.topic = topics.create_topic("crashes", 1)
        self.table, self.checkpoint = home / "table", home / "checkpoint"
        self.journal = home / "journal"
        self.options = options(topics, self.topic, startingOffsets="earliest")
        if mode == "individual":
            self.options |= {"commitMode": mode, "commitTable": str(home / "commits"), **AT_ONCE}

    def produce(self, *values: str) -> None:
        records = [Record(each.encode(), b"k%d" % at, 0) for at, each in enumerate(values)]
        self.topics.produce(self.topic, records)

    def start(
        self,
        said: str = "",
        schema: str = SCHEMA,
        table: str = "",
        more: tuple[Any, ...] = (),
        **into: Any,
    ) -> Any:
        """`more`: what a row has behind the first two columns."""
        journal = str(self.journal)

        def work(record: Any) -> Any:
            with open(journal, "a") as file:
                file.write(f"{record.offset}\n")
            text = record.value.decode()
            if text == "!" and not said:
                raise ValueError("no")
            return (record.offset, f"{text}{said}", *more)

        job = keyrange.job(self.options, work, schema)
        place = table or str(self.table)
        writer = job.into(place, str(self.checkpoint), spark=self.spark, **into)
        return writer.trigger(availableNow=True).start()

    def run(self, said: str = "", **given: Any) -> None:
        assert self.start(said, **given).awaitTermination(240)

    def plain(self) -> Any:
        """The same checkpoint with Spark's own sink."""
        return stream(self.spark, self.topics, self.topic, startingOffsets="earliest")

    def crash(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool, **given: Any
    ) -> str:
        """Run until a step, before it is done or after; what the query failed with."""
        whole: Callable[..., Any] = getattr(owner, step)

        def crashing(*arguments: Any, **named: Any) -> Any:
            # A run of individual commits begins with a commit of no batch.
            begins = owner is DeltaCommitTable and arguments[1].batch_id < 0
            if begins or not before:
                answer = whole(*arguments, **named)
            if begins:
                return answer
            raise Crash(f"at {step}")

        with monkeypatch.context() as patch:
            patch.setattr(owner, step, crashing)
            return failure_of(self.start(**given))

    @property
    def worked_on(self) -> list[int]:
        return [int(line) for line in self.journal.read_text().split()]

    def rows(self) -> dict[int, str]:
        rows = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        found = {row["at"]: row["text"] for row in rows}
        assert len(found) == len(rows), rows
        return found

    @property
    def verdicts(self) -> Path:
        root = self.checkpoint / "keyrange"
        if self.mode == "individual":
            root = self.home / "commits_verdicts"
        [found] = root.iterdir()
        return found
