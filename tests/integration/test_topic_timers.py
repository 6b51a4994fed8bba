"""Rows of timers and of windows in a topic: each once for readers of committed records, wherever
the driver of a job ends."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.kafka.transactional_producer import TransactionalProducer
from project.forms import usually
from queries.individual import failure_of
from queries.topic_jobs import TopicJob

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left"),
    NEEDS_TRANSACTIONS,
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Crash(RuntimeError):
    """The driver ends here."""


def remember(record: Any, state: Any) -> None:
    state.n.update(state.n.get(default=0) + 1)
    state.timers.clear()
    state.timers.set(record.timestamp + timedelta(minutes=1))


def over(key: bytes, at: datetime, state: Any) -> Any:
    n = state.n.get()
    state.n.clear()
    return key, n


@pytest.mark.parametrize(
    ("owner", "step", "before", "at"),
    [
        # Of the batch that moves the watermark nothing is sent.
        (VerdictStore, "publish", False, 2),
        (TransactionalProducer, "send", True, 1),
        (TransactionalProducer, "send", False, 1),
        (DeltaCommitTable, "append", True, 2),
        (DeltaCommitTable, "append", False, 2),
    ],
)
@pytest.mark.parametrize("kind", usually("timers", "windows"))
def test_rows_of_timers_are_there_once_wherever_the_driver_ends(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    owner: type,
    step: str,
    before: bool,
    at: int,
) -> None:
    job = TopicJob(spark, topics, tmp_path, "individual")
    given = job.options | {"splitBy": "keyRange", "slot.directory": str(tmp_path / "slots")}

    def start() -> Any:
        parts: dict[str, Any] = {"function": keyrange.windows.session("1m").count(n="*")}
        if kind == "timers":
            parts = {"function": remember, "schema": "key binary, n long", "on_timer": over}
            parts["state"] = {"n": keyrange.ValueState("n long")}
        made = keyrange.job(given, **parts, time=keyrange.EventTime())
        writer = made.into_topic(
            job.topic, str(job.checkpoint), value_format="json", spark=job.spark
        )
        return writer.trigger(availableNow=True).start()

    def produce(*told: tuple[str, float]) -> None:
        made = [
            Record(b"", key.encode(), ord(key) % 2, round(minute * 60_000)) for key, minute in told
        ]
        topics.produce(job.source, made)

    produce(("a", 0), ("b", 0), ("a", 0.5), ("c", 0.2))
    assert start().awaitTermination(240)
    produce(("y", 10), ("z", 10))
    whole, calls = getattr(owner, step), [0]

    def crashing(self: Any, *given: Any, **named: Any) -> Any:
        counts = owner is VerdictStore or bool(given[0])
        if owner is DeltaCommitTable:
            counts = given[0].batch_id >= 0
        calls[0] += counts
        ends = counts and calls[0] == at
        answer = None if ends and before else whole(self, *given, **named)
        if ends:
            raise Crash(f"at {step}")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crashing)
        assert f"at {step}" in failure_of(start())
    assert start().awaitTermination(240)
    counts = {key: [json.loads(each)["n"] for each in own] for key, own in job.rows().items()}
    assert counts == {"a": [2], "b": [1], "c": [1]}


@pytest.mark.parametrize("form", usually("json", "raw"))
def test_each_record_once_is_a_copy_of_it(
    spark: SparkSession, topics: Topics, tmp_path: Path, form: Any
) -> None:
    """What a job without a function copies, whether `columns` is said or not."""
    job = TopicJob(spark, topics, tmp_path, "individual")
    options = {**job.options, "splitBy": "keyRange", "slot.directory": str(tmp_path / "slots")}
    by: Any = ()
    if form == "json":
        options |= {"valueFormat": "json", "valueSchema": "id long, n long"}
        by = "id"
    time = keyrange.EventTime(delay="10m")
    for said, columns in (("a", {}), ("b", {"columns": "key,value"})):
        value = f'{{"id":1,"n":{ord(said)}}}'
        job.produce(*([said, said] if form == "raw" else []))
        again = Record(value.encode(), said.encode(), 0)
        job.topics.produce(job.source, [again, again] if form == "json" else [])
        made = keyrange.job(options | columns, keyrange.deduplicate(by=by), time=time)
        writer = made.into_topic(job.topic, str(job.checkpoint), spark=spark, value_format=form)
        assert writer.trigger(availableNow=True).start().awaitTermination(240)
        assert job.rows()[said] == [said if form == "raw" else value]
