"""Dead letters in their topic, each once for readers of committed records: of jobs and of
`keyrange.process`, wherever the driver ends, and where another checkpoint goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import keyrange
from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics
from keyrange.individual_commits.dead_letter_topic import DeadLetterTopic
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.table.dead_letters import open_dead_letters
from keyrange.kafka.transactional_producer import TransactionalProducer
from keyrange.options import parse_options
from project.forms import usually
from queries.individual import failure_of
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left"),
    NEEDS_TRANSACTIONS,
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "n long"


def number(record: Any) -> Any:
    return (int(record.value),)


class Query:
    """A query that cannot read values which are no number."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, kind: str) -> None:
        self.spark, self.topics, self.home, self.kind = spark, topics, home, kind
        self.source, self.dead = topics.create_topic("numbers"), topics.create_topic("dead")
        self.options = options(topics, self.source, startingOffsets="earliest")
        self.options |= {"deadLetterTopic": self.dead, "deadLetterTable": str(home / "letters")}
        if kind == "whole batches":
            self.options |= {"valueFormat": "json", "valueSchema": SCHEMA}
            self.options |= {"badValues": "deadLetter"}
        else:
            self.options |= {"commitMode": "individual", "commitTable": str(home / "commits")}
            self.options |= {"maxDeliveries": "1"}

    def produce(self, *values: str) -> None:
        good = '{"n": 1}' if self.kind == "whole batches" else "1"
        whole = [text.encode() for value in values for text in (value, good)]
        self.topics.produce(self.source, [Record(each, b"%d" % n) for n, each in enumerate(whole)])

    def start(self, checkpoint: str = "checkpoint") -> Any:
        place, table = str(self.home / checkpoint), str(self.home / "table")
        if self.kind == "process":
            frame = self.spark.readStream.format("keyrange").options(**self.options).load()

            def body(batch: DataFrame, _: int) -> None:
                keyrange.process(batch, number, SCHEMA).collect()

            each = keyrange.each_batch(body, self.options, place)
            writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", place)
        else:
            how = () if self.kind == "whole batches" else (number, SCHEMA)
            writer = keyrange.job(self.options, *how).into(table, place, spark=self.spark)
        return writer.trigger(availableNow=True).start()

    def run(self, checkpoint: str = "checkpoint") -> None:
        assert self.start(checkpoint).awaitTermination(240)

    def letters(self) -> list[str]:
        """Of the topic; the table has the same ones."""
        wait_until_all_are_over(self.topics, self.dead)
        [found] = committed_records(self.topics, self.dead, 1)
        said = sorted(each.value.decode() for each in found)
        table = open_dead_letters(parse_options(self.options, "stream").commits)
        assert sorted((each.value or b"").decode() for each in table.read()) == said
        return said


@pytest.fixture(params=["whole batches", *usually("process", "job")])
def query(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Query:
    return Query(spark, topics, tmp_path, request.param)


def ending(whole: Callable[..., Any], before: bool) -> Callable[..., Any]:
    def ends(self: Any, *given: Any, **named: Any) -> Any:
        is_fence = isinstance(self, DeltaCommitTable) and given[0].batch_id < 0
        if is_fence:
            return whole(self, *given, **named)
        if not before:
            whole(self, *given, **named)
        raise RuntimeError("the driver ends here")

    return ends


STEPS = pytest.mark.parametrize(
    ("owner", "step", "before"),
    [
        (DeadLetterTopic, "send", True),
        pytest.param(TransactionalProducer, "send", False, marks=pytest.mark.slow),
        (DeltaCommitTable, "append", False),
    ],
    ids=["in-the-table", "sent", "committed"],
)


@STEPS
def test_each_letter_once_wherever_the_driver_ends(
    query: Query, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, before: bool
) -> None:
    if query.kind == "whole batches" and owner is DeltaCommitTable:
        pytest.skip("whole batches have no commit table")
    query.produce("bad one", "bad two")
    query.run()
    query.produce("bad three")
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, ending(getattr(owner, step), before))
        assert "the driver ends here" in failure_of(query.start())
    query.run()
    query.produce("bad four")
    query.run()
    assert query.letters() == ["bad four", "bad one", "bad three", "bad two"]


@STEPS
def test_each_letter_once_where_another_checkpoint_goes_on(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
) -> None:
    query = Query(spark, topics, tmp_path, "process")
    query.options["commitTable.onFreshStart"] = "resume"
    query.produce("bad one")
    query.run()
    query.produce("bad two", "bad three")
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, ending(getattr(owner, step), before))
        assert "the driver ends here" in failure_of(query.start())
    query.run("another")
    query.produce("bad four")
    query.run("another")
    assert query.letters() == ["bad four", "bad one", "bad three", "bad two"]
