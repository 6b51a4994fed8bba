"""`keyrange.state_reader` beside a query that goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics, wait_until
from keyrange.errors import KeyrangeError
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def count(record: Any, state: Any) -> Any:
    total = state.total.get(default=0) + 1
    state.total.update(total)
    return record.key.decode(), total


def run(job: TableJob, start: int, stop: int) -> None:
    """Each of 40 keys in one partition."""
    job.produce(*(Record(b"", b"k%d" % (n % 40), n % 40 % 2) for n in range(start, stop)))
    given = individual(job.home, splitBy="keyRange", **{"slot.directory": str(job.home / "slots")})
    total = {"total": keyrange.ValueState("n long")}
    job.run(count, "key string, n long", state=total, **given)


def test_it_shows_what_is_committed_and_follows(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job, commits, copies = (
        TableJob(spark, topics, tmp_path),
        tmp_path / "commits",
        tmp_path / "read",
    )
    run(job, 0, 120)
    with keyrange.state_reader(commits, copies=copies, follow_ms=50) as reader:
        first = reader.seq
        assert reader.get("k7") == {"total": 3}
        assert reader.get("none") is None
        assert reader.scan("k1", limit=3).column("key").to_pylist() == [b"k1", b"k10", b"k11"]
        wait_until(lambda: len([*copies.rglob("*.arrow")]) > 0)
        run(job, 120, 160)
        wait_until(lambda: reader.get("k7") == {"total": 4})
        assert {row["total"]["n"] for row in reader.get_many(["k1", "k2"]).to_pylist()} == {4}
        assert reader.as_of(first).get("k7") == {"total": 3}
        assert reader.get("k7", (job.topic, 0)) is None
    with pytest.raises(KeyrangeError, match="copies cannot be kept there"):
        keyrange.state_reader(commits, copies="/proc/none")
