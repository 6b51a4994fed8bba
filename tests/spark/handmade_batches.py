"""Batches without a broker: a checkpoint and a DataFrame as the source would have made them, and
a commit table in memory that goes with the checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.batch_deliveries import plan_batch_deliveries
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.checkpoint import NEVER_DUE, Checkpoint, CommitMark
from keyrange.model.offsets import TopicPartition
from keyrange.options import SourceOptions, parse_options
from keyrange.options.commits import CommitOptions
from tables.commit_tables import MemoryCommitTable

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PLACE = TopicPartition("t", 0)
SOURCE = "source-1"
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "keyHash bigint"
)
STEP = 2**59
FOREVER_MS = 2**60


def place_of(key: str) -> int:
    """Where tests put a key: not where the source would, but always at the same place."""
    return (sum(key.encode()) % 15) * STEP + len(key)


def refused(condition: str, text: str = "") -> Any:
    """What a batch fails with, on the driver or in an executor."""
    return pytest.raises((KeyrangeError, PySparkException), match=rf"\[{condition}\].*{text}")


@dataclass
class Sent:
    """A record of t-0, by its key and value."""

    key: str
    value: str


@dataclass
class Graveyard:
    """Dead letters, in the order in which they came."""

    letters: list[Any] = field(default_factory=list)
    batches: set[int] = field(default_factory=set)
    sent: list[Any] = field(default_factory=list)

    def table(self, _: Any) -> Graveyard:
        """The letters are in it."""
        return self

    def append(self, source_id: str, batch_id: int, letters: Sequence[Any], now_ms: int) -> None:
        if letters and batch_id not in self.batches:
            self.batches.add(batch_id)
            self.letters += letters

    def mark_replayed(self, letters: Sequence[Any], *_: Any) -> None:
        """A batch that runs again is known by its number here."""
        assert not letters

    def behind(self, *_: Any) -> list[Any]:
        return []

    def stop_others(self, *_: Any) -> None:
        """Nobody else sends any."""

    def send(self, options: SourceOptions, at: Any, letters: Sequence[Any], *_: Any) -> None:
        self.sent += letters

    def maintain(self) -> None:
        """Nothing grows here."""


class Sink:
    """What a sink that takes a batch id once holds."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.writes = 0

    def write(self, frame: DataFrame, batch_id: int) -> None:
        self.writes += 1
        rows = [tuple(row) for row in frame.collect()]
        assert self.batches.setdefault(batch_id, rows) is not None

    @property
    def rows(self) -> list[Any]:
        return sorted(row for rows in self.batches.values() for row in rows)


def upper(record: Any) -> Any:
    """Fails for values that begin with '!', leaves '-' out, and doubles '*'."""
    text = record.value.decode()
    if text.startswith("!"):
        raise ValueError(f"no {text}")
    if text.startswith("-"):
        return None
    row = (record.offset, text.upper())
    return [row, row] if text.startswith("*") else row


def working(sink: Sink, function: Any = upper, **how: Any) -> Any:
    def body(batch: DataFrame, batch_id: int) -> None:
        sink.write(keyrange.process(batch, function, "at long, text string", **how), batch_id)

    return body


class Stage:
    """One query over topic t with one partition: `log` are its records, by offset."""

    def __init__(self, spark: SparkSession, directory: Path, **commits: Any) -> None:
        self.spark = spark
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.verdicts = directory / "verdicts"
        self.log: list[Sent] = []
        self.store: list[Commit] = []
        self.graves = Graveyard()
        parsed = parse_options({"kafka.bootstrap.servers": "localhost:9", "subscribe": "t"})
        self.options = replace(
            parsed,
            commits=CommitOptions(
                individual=True,
                table=str(directory / "commits"),
                group="g",
                verdict_directory=str(self.verdicts),
                **commits,
            ),
        )
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "query-1"}))
        self.next_batch = 0

    def table(self) -> MemoryCommitTable:
        return MemoryCommitTable(SOURCE, self.store)

    @property
    def state(self) -> PartitionState:
        return self.table().known().states[PLACE]

    def each_batch(self, function: Callable[[DataFrame, int], Any]) -> EachBatch:
        """A driver's wrapper; every call stands for a new driver."""
        graves = self.graves
        return EachBatch(
            function,
            self.options,
            str(self.checkpoint),
            lambda _, source_id: MemoryCommitTable(source_id, self.store),
            graves,
        )

    def plan(
        self,
        end: int | None = None,
        due: bool = True,
        ranges: int = 1,
        deliveries_max: int | None = None,
        log_end: int | None = None,
    ) -> int:
        """Plan the next batch as the planning process would; answers its id."""
        batch_id, known = self.next_batch, self.table().known()
        at = len(self.log) if end is None else end
        due_ms = FOREVER_MS if due and known.states.pending.size else NEVER_DUE
        mark = CommitMark(
            SOURCE,
            known.seq,
            due_ms,
            {PLACE: ranges} if ranges > 1 else {},
            deliveries_max=deliveries_max,
            log_ends={PLACE: log_end} if log_end is not None else {},
        )
        initial = {PLACE: 0} if batch_id == 0 else {}
        planned = Checkpoint({PLACE: at}, {"t": "id-t"}, initial=initial, commits=mark)
        text = "\n".join(["v1", "{}", json.dumps(planned.to_json())])
        (self.checkpoint / "offsets" / str(batch_id)).write_text(text)
        self.next_batch += 1
        return batch_id

    def finish(self, batch_id: int) -> None:
        """What Spark does behind a batch."""
        (self.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")

    def batch(self, batch_id: int, cells: int = 1) -> DataFrame:
        """The records that a planned batch hands out, in the order in which a task has them."""
        from keyrange.individual_commits.batch_in_checkpoint import read_planned

        planned = read_planned(str(self.checkpoint), batch_id)
        known = self.table().known(planned.mark.seq)
        delivery = plan_batch_deliveries(known, planned.start, planned.end, self.options)[PLACE]
        offsets = [pending_record.offset for pending_record in delivery.redelivered]
        for offset in range(delivery.end):
            place = place_of(self.log[offset].key)
            [cell] = [cell for cell in delivery.cells if cell.span.contains(place)]
            if cell.from_offset <= offset < cell.until_offset:
                offsets.append(offset)
        rows = [
            (
                self.log[at].key.encode(),
                self.log[at].value.encode(),
                "t",
                0,
                at,
                None,
                place_of(self.log[at].key),
            )
            for at in offsets
        ]
        return self.spark.createDataFrame(rows, SCHEMA).coalesce(1)

    def run(self, function: Callable[[DataFrame, int], Any], **plan: Any) -> int:
        """Plan a batch and run it to its end with a new driver."""
        batch_id = self.plan(**plan)
        self.each_batch(function)(self.batch(batch_id), batch_id)
        self.finish(batch_id)
        return batch_id


def done(state: PartitionState) -> Mapping[int, Any]:
    """The pending records of a state by offset, for a comparison at a glance."""
    return {
        pending_record.offset: (pending_record.cause.name, pending_record.deliveries)
        for pending_record in state.pending
    }


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path)
