"""`keyrange state verify --function`: what the log makes of the state once more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import keyrange
from brokers.real_broker import Record, Topics
from commands.commanding import document, run
from commands.documents import read_document
from queries.individual import SOON
from queries.table_jobs import TableJob, individual

cloudpickle.register_pickle_by_value(sys.modules[__name__])

TOTAL = {"total": keyrange.ValueState("n long")}
# What the command imports, which knows nothing of this file.
MODULE = """
from test_state_fold import count


def twice(record, state):
    state.total.update(state.total.get(default=0) + 2)
"""


def count(record: Any, state: Any) -> Any:
    if record.value == b"!":
        raise ValueError("no")
    state.total.update(state.total.get(default=0) + 1)
    return record.key.decode(), state.total.get()


def test_the_log_makes_the_state_once_more(
    spark: SparkSession, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside records that failed, and came again or were given up, and some without a key."""
    (tmp_path / "counting.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "test_state_fold", sys.modules[__name__])
    job = TableJob(spark, topics, tmp_path)
    given = individual(tmp_path, splitBy="keyRange", maxDeliveries="1", **SOON)
    given["slot.directory"] = str(tmp_path / "slots")
    for start in (0, 100, 200):
        wrong = Record(b"!", b"k%d" % (start // 100), 0)
        keyed = (Record(b"%d" % n, b"k%d" % (n % 40), n % 2) for n in range(start, start + 100))
        job.produce(*keyed, wrong, Record(b"none", None, 0))
        job.run(count, "key string, n long", state=TOTAL, **given)
    servers = ("--bootstrap-servers", topics.cluster.bootstrap_servers)
    verify = ("state", "verify", tmp_path / "commits", *servers, "--function")
    made = document(*verify, "counting:count")["fold"]
    # Of each of two batches, 100 records and the one that is given up.
    assert made["records"] == 202
    assert (made["differing"], made["failed"], made["left_out"]) == (0, 0, 3)
    other = run(*verify, "counting:twice", "--output", "json")
    assert other.exit_code == 1
    # Two of the 40 keys have dead letters in the partition that holds their state.
    assert read_document(other.stdout)["fold"]["differing"] == 38
