"""A job of a test with commit.isolation=transactional: rows for a table, for the last row of each
key, and for a topic; a value that begins with '!' fails until it is mended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import Record, Topics, wait_until
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from queries.individual import failure_of
from spark.sources import options

cloudpickle.register_pickle_by_value(sys.modules[__name__])

PARTITIONS = 2
# A run that is started later finds them due, and one that tries them ends all the same.
RETRY_S = 6
RETRIES = {"redelivery.backoff": f"{RETRY_S}s", "redelivery.backoff.max": f"{RETRY_S}s"}
SCHEMAS = {
    "rows": "part int, at long, text string",
    "last": "name string, at long, text string",
    "sent": "key binary, value string",
}


class Crash(RuntimeError):
    """The driver ends here."""


class HeldJob:
    """Keys are the first letter of a value behind its '!'; a record's partition is that of its
    key, so a partition has several."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, **given: str) -> None:
        self.spark, self.topics, self.home = spark, topics, home
        self.source = topics.create_topic("held", PARTITIONS)
        self.topic = topics.create_topic("released", 3)
        self.rows_table, self.last_table = home / "rows", home / "last"
        self.commits, self.gate = home / "commits", home / "mended"
        self.options = options(topics, self.source, startingOffsets="earliest") | {
            "commitMode": "individual",
            "commitTable": str(self.commits),
            "commit.isolation": "transactional",
            "maxDeliveries": "1000",
            **RETRIES,
            **given,
        }
        # Of each partition its texts by offset, those that fail aside until they are mended.
        self.log: list[list[str]] = [[] for _ in range(PARTITIONS)]

    def produce(self, *values: str) -> None:
        for value in values:
            key = value.lstrip("!")[:1]
            partition = ord(key) % PARTITIONS
            self.log[partition].append(value)
            self.topics.produce(self.source, [Record(value.encode(), key.encode(), partition)])

    def mend(self) -> None:
        self.gate.touch()

    def start(self, **given: Any) -> Any:
        gate = str(self.gate)

        def work(record: Any) -> Any:
            text, key = record.value.decode(), record.key
            if text.startswith("!") and not Path(gate).exists():
                raise ValueError("no")
            return {
                "rows": (record.partition, record.offset, text),
                "last": (key.decode(), record.offset, text),
                "sent": (key, text),
            }

        job = keyrange.job(self.options | given, work, SCHEMAS)
        writer = job.into(
            {
                "rows": str(self.rows_table),
                "last": str(self.last_table),
                "sent": keyrange.Topic(self.topic),
            },
            str(self.home / "checkpoint"),
            keys={"last": "name"},
            spark=self.spark,
        )
        return writer.trigger(availableNow=True).start()

    def run(self, **given: Any) -> None:
        assert self.start(**given).awaitTermination(240)

    def run_mended(self) -> None:
        """Runs until all is out."""
        self.mend()

        def is_out() -> bool:
            self.run()
            return sum(map(len, self.log)) == len(self._rows(self.rows_table))

        wait_until(is_out)

    def crash(
        self, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool, at: int
    ) -> None:
        """End the driver at a step the `at`th time, before it is done or after."""
        whole: Callable[..., Any] = getattr(owner, step)
        calls = [0]

        def crashing(*arguments: Any, **named: Any) -> Any:
            # A run begins with a commit of no batch.
            counts = not (owner is DeltaCommitTable and arguments[1].batch_id < 0)
            calls[0] += counts
            ends = counts and calls[0] == at
            answer = None if ends and before else whole(*arguments, **named)
            if ends:
                raise Crash(f"at {step}")
            return answer

        time.sleep(RETRY_S)
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, crashing)
            assert f"at {step}" in failure_of(self.start())

    def released(self) -> list[int]:
        """How far the log of each partition may be in the output: to the first that fails."""
        if self.gate.exists():
            return [len(each) for each in self.log]
        failing = ([text.startswith("!") for text in each] for each in self.log)
        return [each.index(True) if True in each else len(each) for each in failing]

    def check(self) -> None:
        """All three have what is released, once, in order, and nothing else."""
        ends = self.released()
        own = [each[:end] for each, end in zip(self.log, ends, strict=True)]
        rows = self._rows(self.rows_table)
        found = sorted((row["part"], row["at"], row["text"]) for row in rows)
        assert found == [
            (part, at, text) for part, each in enumerate(own) for at, text in enumerate(each)
        ]
        by_key: dict[str, list[str]] = {}
        for each in own:
            for text in each:
                by_key.setdefault(text.lstrip("!")[:1], []).append(text)
        last = {row["name"]: row["text"] for row in self._rows(self.last_table)}
        assert last == {key: texts[-1] for key, texts in by_key.items()}
        assert self._sent() == by_key

    def check_versions(self) -> None:
        """Each version of the table has begun where the one before ended."""
        table = DeltaTable(self.rows_table)
        reached = [0] * PARTITIONS
        for version in range(table.version() + 1):
            table.load_as_version(version)
            offsets: list[list[int]] = [[] for _ in range(PARTITIONS)]
            for row in table.to_pyarrow_table().to_pylist():
                offsets[row["part"]].append(row["at"])
            assert all(sorted(each) == list(range(len(each))) for each in offsets), version
            assert all(len(a) >= b for a, b in zip(offsets, reached, strict=True)), version
            reached = list(map(len, offsets))

    def _rows(self, table: Path) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
        return found

    def _sent(self) -> dict[str, list[str]]:
        wait_until_all_are_over(self.topics, self.topic)
        found: dict[str, list[str]] = {}
        for records in committed_records(self.topics, self.topic, 3):
            for each in records:
                found.setdefault(each.key.decode(), []).append(each.value.decode())
        return found
