"""`keyrange.job` beside what else the source can do, in both commit modes."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from keyrange.errors import KeyrangeError
from queries.individual import AT_ONCE, LATER
from queries.table_jobs import TableJob, individual
from spark.sources import committed

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MODES = ["batch", "individual"]
# Other tests have the same by individual commits.
LONG_BY_RECORDS = ["batch", pytest.param("individual", marks=pytest.mark.slow)]
NUMBER = "n long, partition int, offset long"


@pytest.fixture
def job(spark: SparkSession, topics: Topics, tmp_path: Path) -> TableJob:
    return TableJob(spark, topics, tmp_path)


def own(mode: str, home: Path, **given: str) -> dict[str, str]:
    return individual(home, **AT_ONCE, **given) if mode == "individual" else given


def number(record: Any) -> Any:
    return (int(record.value), record.partition, record.offset)


def records(count: int, first: int = 0) -> list[Record]:
    return [Record(b"%d" % n, b"k%d" % (n % 37), n % 2) for n in range(first, first + count)]


def numbers(job: TableJob) -> list[int]:
    return sorted(row["n"] for row in job.rows())


@pytest.mark.parametrize("mode", LONG_BY_RECORDS)
def test_key_ranges_that_share_what_they_fetch(job: TableJob, tmp_path: Path, mode: str) -> None:
    job.produce(*records(2400))
    given = {
        "splitBy": "keyRange",
        "keyRangesPerPartition": "3",
        "bytesPerTask": "0",
        "maxOffsetsPerTrigger": "900",
        "maxBatchRows": "100",
    }
    job.run(number, NUMBER, **own(mode, tmp_path, **given))
    assert numbers(job) == list(range(2400))
    assert len(committed(job.checkpoint)) >= 3


@pytest.mark.parametrize("mode", LONG_BY_RECORDS)
def test_a_topic_that_is_created_anew_and_grows(job: TableJob, tmp_path: Path, mode: str) -> None:
    given = own(mode, tmp_path, failOnDataLoss="false")
    job.produce(*records(100))
    job.run(number, NUMBER, **given)
    job.topics.delete_topic(job.topic)
    job.topics.create_named(job.topic, 3)
    job.produce(*records(50, 1000), Record(b"7777", b"k", 2))
    job.run(number, NUMBER, **given)
    job.topics.add_partitions(job.topic, 4)
    job.produce(Record(b"8888", b"k", 3))
    job.run(number, NUMBER, **given)
    assert numbers(job) == [*range(100), *range(1000, 1050), 7777, 8888]


@pytest.mark.parametrize("mode", MODES)
def test_nulls_and_transactions(
    spark: SparkSession, topics: Topics, tmp_path: Path, mode: str
) -> None:
    job = TableJob(spark, topics, tmp_path, 1)
    job.produce(Record(None, b"k"), Record(b"", b""), Record(b"x", None))
    topics.produce_transaction(job.topic, [Record(b"tx", b"k")])
    topics.produce_transaction(job.topic, [Record(b"no", b"k")], commit=False)
    given = own(mode, tmp_path, **{"kafka.isolation.level": "read_committed"})
    job.run(lambda record: (record.key, record.value), "key binary, value binary", **given)
    found = [(row["key"], row["value"]) for row in job.rows()]
    assert found == [(b"k", None), (b"", b""), (None, b"x"), (b"k", b"tx")]


@pytest.mark.parametrize("mode", MODES)
def test_columns_that_were_chosen_and_no_others(job: TableJob, tmp_path: Path, mode: str) -> None:
    job.produce(*records(10))
    job.run(**own(mode, tmp_path, columns="offset,headers,keyHash"))
    assert list(job.rows()[0]) == ["offset", "headers", "keyHash"]


def test_time_limits(job: TableJob, tmp_path: Path) -> None:
    def work(record: Any) -> Any:
        time.sleep(20 if record.value == b"4" else 0.05)
        return number(record)

    job.produce(*records(20))
    limits = {"record.timeout": "500ms", "batch.time.budget": "700ms", **LATER}
    job.run_until(19, work, NUMBER, **individual(tmp_path, **limits))
    assert numbers(job) == [n for n in range(20) if n != 4]


def test_what_a_function_may_hold(job: TableJob) -> None:
    value, lock = job.spark.sparkContext.broadcast([1]), threading.Lock()
    for function in (lambda _, held=[value]: held, lambda _: (value.value[0],)):
        with pytest.raises(KeyrangeError, match=r"UNPICKLABLE_FUNCTION.*Broadcast"):
            job.start(function, "n int")
    with pytest.raises(KeyrangeError, match="UNPICKLABLE_FUNCTION"):
        job.start(lambda _: (lock,), "n int")
    huge, large = os.urandom(65 << 20), os.urandom(2 << 20)
    with pytest.raises(KeyrangeError, match=r"UNPICKLABLE_FUNCTION.*64 MiB"):
        job.start(lambda _: (len(huge),), "n int")
    job.produce(b"1")
    job.run(lambda _: (len(large),), "n int")
    assert job.rows() == [{"n": 2 << 20}]
