"""`into({NAME: TABLE, ...})`: one read and one manifest, a transaction in each table, each record
once in each, wherever the driver ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.storage.sink_table import SinkTable
from queries.individual import AT_ONCE, failure_of
from spark.sources import committed, options

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMAS = {
    "orders": "id long, said string",
    "items": "id long, item string",
    "last": "k string, n long",
}


class SeveralTables:
    """A job that answers with an order, with as many items as its value says, and with the last
    value of the key."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, mode: str) -> None:
        self.spark, self.topics, self.home = spark, topics, home
        self.topic = topics.create_topic("several", 2)
        self.tables = {name: str(home / name) for name in SCHEMAS}
        self.options = options(topics, self.topic, startingOffsets="earliest")
        if mode == "individual":
            own = {"commitMode": mode, "commitTable": str(home / "commits"), **AT_ONCE}
            self.options |= own

    def produce(self, *numbers: int) -> None:
        records = [Record(b"%d" % n, b"k%d" % (n % 3), n % 3 % 2) for n in numbers]
        self.topics.produce(self.topic, records)

    def start(self, said: str = "", **into: Any) -> Any:
        def work(record: Any) -> Any:
            n = int(record.value)
            if n == 13 and not said:
                raise ValueError("unlucky")
            items = [(n, f"{n}.{at}") for at in range(n % 3)]
            last = {"k": record.key.decode(), "n": n}
            return {"orders": (n, f"o{said}"), "items": items, "last": last if n else None}

        job = keyrange.job(self.options, work, SCHEMAS)
        keys = {"last": ["k"]}
        given = {"keys": keys, "evolve": {"items": "add"}, "spark": self.spark, **into}
        writer = job.into(self.tables, str(self.home / "checkpoint"), **given)
        return writer.trigger(availableNow=True).start()

    def run(self, said: str = "", **into: Any) -> None:
        assert self.start(said, **into).awaitTermination(240)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        table = DeltaTable(self.tables[name]).to_pyarrow_table()
        return sorted(tuple(row.values()) for row in table.to_pylist())

    def check(self, numbers: dict[int, str]) -> None:
        """Whether the tables have what comes of some records, by what the function said then."""
        assert self.rows("orders") == sorted((n, f"o{said}") for n, said in numbers.items())
        items = sorted((n, f"{n}.{at}") for n in numbers for at in range(n % 3))
        assert self.rows("items") == items
        last = {f"k{n % 3}": n for n in sorted(numbers) if n}
        assert self.rows("last") == sorted(last.items())


@pytest.fixture
def job(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, tmp_path: Path
) -> Iterator[SeveralTables]:
    yield SeveralTables(spark, topics, tmp_path, request.param)
    for query in spark.streams.active:
        query.stop()


class Crash(RuntimeError):
    """The driver ends here."""


def crash(
    job: SeveralTables, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, at: int
) -> None:
    """End a driver before the call number `at` of a step."""
    whole, calls = getattr(owner, step), [0]

    def crashing(self: Any, *given: Any, **named: Any) -> Any:
        if owner is DeltaCommitTable and given[0].batch_id < 0:
            return whole(self, *given, **named)
        calls[0] += 1
        if calls[0] > at:
            raise Crash(f"at {step}")
        return whole(self, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crashing)
        assert f"at {step}" in failure_of(job.start())


@pytest.mark.parametrize(
    ("job", "owner", "step", "at"),
    [
        pytest.param("batch", VerdictStore, "publish", 0, marks=pytest.mark.slow),
        pytest.param("batch", SinkTable, "append", 0, marks=pytest.mark.slow),
        ("batch", SinkTable, "append", 1),
        pytest.param("batch", SinkTable, "write", 0, marks=pytest.mark.slow),
        ("individual", SinkTable, "append", 1),
        ("individual", DeltaCommitTable, "append", 0),
    ],
    indirect=["job"],
)
def test_each_record_once_in_each_table_wherever_the_driver_ends(
    job: SeveralTables, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, at: int
) -> None:
    job.produce(*range(9))
    job.run()
    job.produce(*range(9, 13))
    crash(job, monkeypatch, owner, step, at)
    assert committed(job.home / "checkpoint") == [0]
    job.produce(14, 15)
    job.run("2")
    again = "2" if step == "publish" else ""
    said = dict.fromkeys(range(9), "") | dict.fromkeys(range(9, 13), again) | {14: "2", 15: "2"}
    job.check(said)
    # Of each table a transaction of its own, for each batch one.
    for name, path in job.tables.items():
        versions = [each["version"] for each in DeltaTable(path).history()]
        assert len(versions) == 1 + 3, name


@pytest.mark.parametrize("job", ["individual"], indirect=True)
def test_a_record_that_fails_is_in_no_table_and_then_in_each(job: SeveralTables) -> None:
    job.produce(12, 13, 14)
    job.options |= {"redelivery.backoff": "5s", "redelivery.backoff.max": "1h"}
    job.run()
    job.check({12: "", 14: ""})

    def has_all() -> bool:
        job.run("2")
        return len(job.rows("orders")) == 3

    wait_until(has_all)
    job.check({12: "", 13: "2", 14: ""})


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_what_the_next_run_may_not_change(job: SeveralTables) -> None:
    job.produce(1, 2)
    job.run()
    renamed = {**job.tables}
    job.tables["items"] = str(job.home / "other")
    with pytest.raises(KeyrangeError, match=r"OTHER_TABLE.*written to .*/items, and is to write"):
        job.start()
    assert not (job.home / "other").exists()
    Path(renamed["items"]).rename(job.home / "other")
    job.produce(4)
    job.run(moved_from={"items": renamed["items"]})
    job.check({1: "", 2: "", 4: ""})


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_arrow_batches_by_name(job: SeveralTables) -> None:
    def work(batch: pa.RecordBatch) -> Any:
        ids = pa.array([int(value) for value in batch.column("value").to_pylist()])
        even = pa.record_batch({"id": ids.filter(pa.array([i % 2 == 0 for i in ids.to_pylist()]))})
        return {"all": pa.record_batch({"id": ids}), "even": even, "none": None}

    job.produce(*range(10))
    schemas = {"all": "id long", "even": "id long", "none": "x int"}
    tables = {name: str(job.home / f"a_{name}") for name in schemas}
    writer = keyrange.job(job.options, work, schemas, mode="arrow").into(
        tables, str(job.home / "c"), spark=job.spark
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(240)
    found = {
        name: sorted(row["id"] for row in DeltaTable(path).to_pyarrow_table().to_pylist())
        for name, path in tables.items()
        if name != "none"
    }
    assert found == {"all": [*range(10)], "even": [0, 2, 4, 6, 8]}
    assert DeltaTable(tables["none"]).to_pyarrow_table().num_rows == 0


@pytest.mark.parametrize("job", ["batch"], indirect=True)
def test_rows_for_tables_that_are_not_the_jobs(job: SeveralTables) -> None:
    job.produce(1)
    for answer, text in (
        ({"order": (1, "a")}, "answered with rows for 'order', and its rows are for 'orders'"),
        ((1, "a"), "answered with a value of type tuple, and its rows are for"),
        ({"orders": (1,)}, "a row of 1 fields"),
    ):
        given = keyrange.job(job.options, lambda _, found=answer: found, SCHEMAS)
        writer = given.into(job.tables, str(job.home / "checkpoint"), spark=job.spark)
        text_of_failure = failure_of(writer.trigger(availableNow=True).start())
        assert "[WRONG_RESULT]" in text_of_failure
        assert text in text_of_failure
