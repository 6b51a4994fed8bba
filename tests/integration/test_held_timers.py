"""Jobs with time and commit.isolation=transactional: rows of timers wait with the records that were
read before them, in tables and topics, and stand among those of their key where they fired."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics, wait_until
from commands.commanding import succeed
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from queries.held_jobs import RETRIES, RETRY_S, Crash
from queries.individual import failure_of
from spark.sources import options

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left"),
    NEEDS_TRANSACTIONS,
]
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MINUTE = timedelta(minutes=1)
SCHEMAS = {
    "rows": "key string, offset long, text string",
    "last": "key string, offset long, text string",
    "sent": "key binary, value string",
}


def fails(home: str, key: str, text: str) -> bool:
    return text.endswith("!") and not (Path(home) / f"mended {key}").exists()


def of(key: bytes, offset: int | None, text: str) -> dict[str, Any]:
    row = (key.decode(), offset, text)
    return {"rows": row, "last": row, "sent": (key, text)}


def of_records(home: str) -> tuple[Any, Any]:
    def work(record: Any, state: Any) -> Any:
        text = record.value.decode()
        if fails(home, text[:1], text):
            raise ValueError("no")
        state.n.update(state.n.get(default=0) + 1)
        state.timers.clear()
        state.timers.set(record.timestamp + MINUTE)
        if text.endswith("?"):
            # Only its timer fails.
            state.fails.update(True)
        return of(record.key, record.offset, text)

    def over(key: bytes, at: datetime, state: Any) -> Any:
        if state.fails.get(default=False) and fails(home, key.decode(), "!"):
            raise ValueError("not yet")
        return of(key, None, f"~{state.n.get()}")

    return work, over


def batches(rows: list[tuple[bytes, int | None, str]]) -> dict[str, pa.RecordBatch]:
    keys, offsets, texts = (list(each) for each in zip(*rows, strict=True))
    names, at = [each.decode() for each in keys], pa.array(offsets, pa.int64())
    own = {"key": names, "offset": at, "text": texts}
    table = pa.RecordBatch.from_pydict(own)
    sent = pa.RecordBatch.from_pydict({"key": keys, "value": texts, "offset": at})
    return {"rows": table, "last": table, "sent": sent}


def of_batches(home: str) -> tuple[Any, Any]:
    def many(records: pa.RecordBatch, groups: pa.Array, states: pa.RecordBatch) -> Any:
        columns = [records.column(each).to_pylist() for each in ("key", "value", "offset")]
        rows = [(k, at, v.decode()) for k, v, at in zip(*columns, strict=True)]
        if any(fails(home, text[:1], text) for _, _, text in rows):
            raise ValueError("no")
        new = states.to_pylist()
        times = records.column("timestamp").to_pylist()
        for group, (_, _, text), at in zip(groups.to_pylist(), rows, times, strict=True):
            own = new[group]
            own["n"] = {"n": (own["n"] or {"n": 0})["n"] + 1}
            own["timers"] = [at + MINUTE]
            if text.endswith("?"):
                own["fails"] = {"b": True}
        return batches(rows), pa.RecordBatch.from_pylist(new, states.schema)

    def many_over(timers: pa.RecordBatch, groups: pa.Array, states: pa.RecordBatch) -> Any:
        rows, told = [], states.to_pylist()
        of_each = (timers.column("key").to_pylist(), groups.to_pylist())
        for key, group in zip(*of_each, strict=True):
            own = told[group]
            if own["fails"] and fails(home, key.decode(), "!"):
                raise ValueError("not yet")
            rows.append((key, None, f"~{own['n']['n']}"))
        return batches(rows), states

    return many, many_over


class TimedJob:
    """A record's text is its key and a number; one with '!' fails until `mended` names its key, and
    so does the timer that the key has then. A minute behind the last record of a key its timer
    makes a row '~'. All keys are in one partition."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, mode: str) -> None:
        self.spark, self.topics, self.home, self.mode = spark, topics, home, mode
        self.source, self.topic = topics.create_topic("timed", 1), topics.create_topic("out", 2)
        self.commits = home / "commits"

    def produce(self, *told: tuple[str, float]) -> None:
        made = [
            Record(text.encode(), text[:1].encode(), 0, round(minute * 60_000))
            for text, minute in told
        ]
        self.topics.produce(self.source, made)

    def mend(self, keys: str) -> None:
        for each in keys:
            (self.home / f"mended {each}").touch()

    def start(self) -> Any:
        work, over = (of_records if self.mode == "record" else of_batches)(str(self.home))
        schemas = dict(SCHEMAS)
        if self.mode == "arrow":
            schemas["sent"] += ", offset long"
        given = options(self.topics, self.source, startingOffsets="earliest") | {
            "commitMode": "individual",
            "commitTable": str(self.commits),
            "commit.isolation": "transactional",
            "maxDeliveries": "1000",
            "splitBy": "keyRange",
            "keyRangesPerPartition": "2",
            "slot.directory": str(self.home / "slots"),
            **RETRIES,
        }
        job = keyrange.job(
            given,
            work,
            schemas,
            self.mode,
            {"n": keyrange.ValueState("n long"), "fails": keyrange.ValueState("b boolean")},
            keyrange.EventTime(),
            over,
        )
        places = {
            "rows": str(self.home / "rows"),
            "last": str(self.home / "last"),
            "sent": keyrange.Topic(self.topic),
        }
        writer = job.into(
            places, str(self.home / "checkpoint"), keys={"last": "key"}, spark=self.spark
        )
        return writer.trigger(availableNow=True).start()

    def run(self) -> None:
        assert self.start().awaitTermination(240)

    def run_until(self, texts: dict[str, str]) -> None:
        """Runs until this is out."""

        def is_out() -> bool:
            self.run()
            found = sum(map(len, self.rows().values()))
            return found >= sum(len(each.split()) for each in texts.values())

        wait_until(is_out)
        self.check(texts)

    def rows(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in DeltaTable(self.home / "rows").to_pyarrow_table().to_pylist():
            found.setdefault(row["key"], []).append(row["text"])
        return found

    def check(self, texts: dict[str, str]) -> None:
        """All three have this, each row once, by key and in order."""
        wanted = {key: each.split() for key, each in texts.items()}
        wait_until_all_are_over(self.topics, self.topic)
        sent: dict[str, list[str]] = {}
        for records in committed_records(self.topics, self.topic, 2):
            for each in records:
                sent.setdefault(each.key.decode(), []).append(each.value.decode())
        assert sent == wanted
        assert {key: sorted(each) for key, each in self.rows().items()} == {
            key: sorted(each) for key, each in wanted.items()
        }
        last = DeltaTable(self.home / "last").to_pyarrow_table().to_pylist()
        assert {row["key"]: row["text"] for row in last} == {k: v[-1] for k, v in wanted.items()}


def jobs(usual: str) -> pytest.MarkDecorator:
    """A job whose function has records or batches; the other one in the long form."""
    [other] = {"record", "arrow"} - {usual}
    return pytest.mark.parametrize(
        "job", [usual, pytest.param(other, marks=pytest.mark.slow)], indirect=True
    )


@pytest.fixture
def job(
    spark: SparkSession, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest
) -> TimedJob:
    return TimedJob(spark, topics, tmp_path, request.param)


@jobs("record")
def test_rows_of_timers_wait_with_what_was_read_before_them(job: TimedJob) -> None:
    job.produce(("a1", 0), ("b1!", 0), ("c1", 0), ("a2", 0.5))
    job.run()
    job.check({"a": "a1"})
    # The timers of a and c fire, behind a record that waits.
    job.produce(("d1", 10))
    job.run()
    job.check({"a": "a1"})
    job.produce(("a3", 10.5), ("c2", 10.5))
    job.run()
    job.check({"a": "a1"})
    job.mend("b")
    done = {"a": "a1 a2 ~2 a3", "b": "b1! ~1", "c": "c1 ~1 c2", "d": "d1"}
    job.run_until(done)
    # Nothing waits any more: a batch of timers alone is out with its end.
    job.produce(("e1", 20))
    job.run()
    job.check(done | {"a": done["a"] + " ~3", "c": done["c"] + " ~2", "d": "d1 ~1", "e": "e1"})


@jobs("arrow")
def test_rows_of_a_timer_that_failed_stand_before_the_records_that_waited_for_it(
    job: TimedJob,
) -> None:
    job.produce(("a1?", 0), ("b1!", 0), ("d1", 10))
    job.run()
    job.produce(("a2", 10.1), ("d2", 10.2))
    job.run()
    job.check({"a": "a1?"})
    # Both are tried again, b's record alone with success; its timer fires behind what waits.
    job.mend("b")
    job.run_until({"a": "a1?", "b": "b1!", "d": "d1"})
    job.run()
    job.check({"a": "a1?", "b": "b1!", "d": "d1"})
    job.mend("a")
    job.run_until({"a": "a1? ~1 a2", "b": "b1! ~1", "d": "d1 d2"})


@pytest.mark.slow
@jobs("record")
def test_what_fired_once_more_behind_a_reset_is_there_once(job: TimedJob) -> None:
    job.produce(("a1", 0), ("c1", 0))
    job.run()
    job.produce(("b1!", 0), ("d1", 10))
    job.run()
    # The timers of a and c have fired, and wait.
    job.produce(("d2", 10.1))
    job.run()
    job.check({"a": "a1", "c": "c1"})
    at = ("--topic", job.source, "--partition", 0, "--to", 2)
    succeed("commits", "reset", str(job.commits), *at, "--why", "wrong prices", "--confirm")
    job.run()
    job.produce(("a2", 10.2))
    job.run()
    job.check({"a": "a1", "c": "c1"})
    job.mend("b")
    job.run_until({"a": "a1 ~1 a2", "b": "b1! ~1", "c": "c1 ~1", "d": "d1 d2"})


@pytest.mark.slow
@pytest.mark.parametrize("resets", [False, True], ids=["goes on", "is reset"])
@pytest.mark.parametrize(
    ("owner", "step", "before"),
    [
        (VerdictStore, "publish", False),
        (VerdictStore, "release", False),
        (DeltaCommitTable, "append", True),
    ],
)
def test_each_row_once_wherever_the_driver_ends(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    before: bool,
    resets: bool,
) -> None:
    job = TimedJob(spark, topics, tmp_path, "record")
    job.produce(("a1", 0), ("c1", 0))
    job.run()
    job.produce(("b1!", 0), ("d1", 10))
    whole, calls = getattr(owner, step), [0]

    def crashing(*given: Any, **named: Any) -> Any:
        counts = not (owner is DeltaCommitTable and given[1].batch_id < 0)
        calls[0] += counts
        # Behind the batch of the records timers fire.
        ends = counts and calls[0] == 2
        answer = None if ends and before else whole(*given, **named)
        if ends:
            raise Crash(f"at {step}")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crashing)
        assert f"at {step}" in failure_of(job.start())
    if resets:
        place = ("--topic", job.source, "--partition", 0, "--to", 2)
        succeed("commits", "reset", str(job.commits), *place, "--why", "prices", "--confirm")
    job.run()
    job.produce(("a2", 10.2))
    time.sleep(RETRY_S)
    job.mend("b")
    job.run_until({"a": "a1 ~1 a2", "b": "b1! ~1", "c": "c1 ~1", "d": "d1"})


def test_windows_wait_with_what_was_read_before_they_were_over(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, topic = topics.create_topic("timed", 1), topics.create_topic("out", 2)
    gate = tmp_path / "bad"
    given = options(topics, source, startingOffsets="earliest") | {
        "commitMode": "individual",
        "commitTable": str(tmp_path / "commits"),
        "commit.isolation": "transactional",
        "splitBy": "keyRange",
        "slot.directory": str(tmp_path / "slots"),
        "maxDeliveries": "1000",
        **RETRIES,
    }

    def run() -> dict[str, list[int]]:
        def longest(rows: pa.RecordBatch, _groups: pa.Array, windows: pa.RecordBatch) -> Any:
            if b"!" in windows.column("key").to_pylist() and not gate.exists():
                raise ValueError("not yet")
            return pa.RecordBatch.from_pydict({"rows": pa.array([1] * windows.num_rows)})

        made = keyrange.windows.session("1m").count(n="*").apply(longest, "rows long", "value")
        job = keyrange.job(given, made, time=keyrange.EventTime())
        writer = job.into_topic(
            topic, str(tmp_path / "checkpoint"), value_format="json", spark=spark
        )
        assert writer.trigger(availableNow=True).start().awaitTermination(240)
        wait_until_all_are_over(topics, topic)
        found: dict[str, list[int]] = {}
        for records in committed_records(topics, topic, 2):
            for each in records:
                found.setdefault(each.key.decode(), []).append(json.loads(each.value)["n"])
        return found

    def produce(*told: tuple[str, float]) -> None:
        made = [Record(b"", key.encode(), 0, round(at * 60_000)) for key, at in told]
        topics.produce(source, made)

    produce(("a", 0), ("a", 0.5), ("!", 0), ("c", 0))
    assert run() == {}
    # The window of one key fails: no others wait for it, but the key's own record.
    produce(("d", 10))
    assert run() == {"a": [2], "c": [1]}
    produce(("!", 20), ("d", 20))
    assert run() == {"a": [2], "c": [1]}
    gate.touch()
    wait_until(lambda: run() == {"a": [2], "c": [1], "!": [1], "d": [1]})
