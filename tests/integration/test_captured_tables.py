"""`valueFormat=debezium` into a table with keys: it is the captured table, deletions included."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from brokers.real_broker import Record, Topics
from captured.source_table import DDL, Row, Source, Written, json_with_schemas
from keyrange.embedded import jars
from keyrange.errors import KeyrangeError
from keyrange.individual_commits import table_output
from keyrange.storage.sink_table import SinkTable
from project.forms import usually
from queries.individual import failure_of
from queries.table_jobs import TableJob, individual
from spark.sources import committed
from spark.worker_python import WORKER_PYTHON

CAPTURING = Path(__file__).parents[1] / "handed" / "capturing.py"
INTO: dict[str, Any] = {"keys": ["id"]}
OPTIONS = {"valueFormat": "debezium", "valueSchema": DDL}


@pytest.fixture(params=usually("driver", "spark"))
def merger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who merges: Spark what is too much for the driver."""
    if request.param == "spark":
        monkeypatch.setattr(table_output, "BYTES_MAX", 0)
    name: str = request.param
    return name


class Captured:
    """A table of Postgres that does not tell large values that stay, and its topic."""

    def __init__(self, job: TableJob, seed: int, write: Any = json_with_schemas) -> None:
        self.job, self._random = job, random.Random(seed)
        self.source = Source("postgres", write, whole=False)

    def change(self, count: int) -> None:
        """So many changes at random."""
        records: list[Written] = []
        for _ in range(count):
            keys = sorted(self.source.rows)
            id = self._random.randrange(40)
            if id not in self.source.rows:
                records += self.source.insert({"id": id, **self.row(id)})
                continue
            what = self._random.choice(["update"] * 5 + ["delete", "key"])
            to = self._random.randrange(40, 80)
            if what == "delete":
                records += self.source.delete(id)
            elif what == "key" and to not in keys:
                records += self.source.update(id, {"id": to})
            else:
                row = self.row(id)
                some = self._random.sample([*row], 3)
                records += self.source.update(id, {name: row[name] for name in some})
        self.produce(records)

    def produce(self, records: list[Written]) -> None:
        made = []
        for key, value in records:
            assert key is not None
            at = int(json.loads(key)["payload"]["id"]) if key[:1] == b"{" else key[-1]
            made.append(Record(value, key, at % 2))
        self.job.produce(*made)

    def row(self, id: int) -> Row:
        n = self._random.randrange(1_000_000)
        return {
            "name": f"name {n}",
            "day": date(2020, 1, 1) + timedelta(days=n % 3000),
            "at": datetime(2020, 1, 1) + timedelta(microseconds=n),
            "seen": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=n),
            "price": Decimal(n).scaleb(-2),
            "note": "large " * 20 + str(n) if n % 5 else None,
            "blob": b"\x00" + str(n).encode() if n % 4 else None,
            "tags": [f"tag {n}", None],
            "counts": [n, -n],
        }


def rows(table: Path) -> dict[int, Row]:
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    by_key: dict[int, Row] = {row["id"]: row for row in found}
    assert len(by_key) == len(found), found
    return by_key


@pytest.mark.parametrize("mode", usually("individual", "batch"))
def test_the_table_is_the_captured_one(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str, mode: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=5)
    given = {"splitBy": "keyRange", "keyRangesPerPartition": "3", "maxOffsetsPerTrigger": "150"}
    if mode == "individual":
        given |= individual(tmp_path)
    table.change(60)
    table.produce(table.source.snapshot())
    for _ in range(2):
        table.change(150)
        job.run(into=INTO, **OPTIONS, **given)
        assert rows(job.table) == table.source.rows
    assert len(committed(job.checkpoint)) >= 3
    assert DeltaTable(job.table).schema().to_arrow().names == [
        *next(iter(table.source.rows.values()))
    ]
    # With rows of the Kafka record beside them.
    job.table, job.checkpoint = tmp_path / "more", tmp_path / "more_checkpoint"
    if mode == "batch":
        job.run(into=INTO, columns="value,partition,timestamp", **OPTIONS, **given)
        assert {id: row.pop("partition") for id, row in rows(job.table).items()} == {
            id: id % 2 for id in table.source.rows
        }


def test_a_column_that_rows_keep_comes_with_them(
    spark: SparkSession, topics: Topics, tmp_path: Path, merger: str
) -> None:
    """The table does not have it yet, and a row that was changed elsewhere does not tell it."""
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=7)
    table.change(100)
    narrow = {"valueSchema": DDL.replace("note string, ", "")}
    job.run(into=INTO, **OPTIONS | narrow)
    records = [
        written
        for id, row in sorted(table.source.rows.items())
        for written in table.source.update(id, {"name": f"{row['name']} again"})
    ]
    id = min(table.source.rows)
    table.produce([*records, *table.source.update(id, {"note": "new"})])
    job.run(into=INTO | {"evolve": "add"}, **OPTIONS)
    expected = {key: row | {"note": None} for key, row in table.source.rows.items()}
    expected[id]["note"] = "new"
    assert rows(job.table) == expected


@pytest.mark.parametrize("mode", usually("individual", "batch"))
def test_what_has_no_column_is_in_the_column_of_its_row(
    spark: SparkSession, topics: Topics, tmp_path: Path, mode: str
) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=11)
    narrow = {"valueSchema": DDL.replace("note string, ", ""), "rescuedData": "rest"}
    more = individual(tmp_path) if mode == "individual" else {}
    rest = {}
    for id in range(4):
        table.produce(table.source.insert({"id": id, **table.row(id)}))
        note = table.source.rows[id].pop("note")
        rest[id] = None if note is None else json.dumps({"note": note}, separators=(",", ":"))
    job.run(into=INTO, **OPTIONS | narrow, **more)
    assert rows(job.table) == {
        id: row | {"rest": rest[id]} for id, row in table.source.rows.items()
    }


@pytest.mark.parametrize("before", [True, False])
def test_a_driver_that_fails_between_files_and_merge(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    merger: str,
    before: bool,
) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=6)
    table.change(80)
    job.run(into=INTO, **OPTIONS)
    whole: Callable[..., Any] = SinkTable.write

    def crashing(*arguments: Any, **named: Any) -> Any:
        if not before:
            whole(*arguments, **named)
        raise RuntimeError("the driver ends")

    table.change(80)
    with monkeypatch.context() as patch:
        patch.setattr(SinkTable, "write", crashing)
        assert "the driver ends" in failure_of(job.start(into=INTO, **OPTIONS))
    table.change(80)
    job.run(into=INTO, **OPTIONS)
    assert rows(job.table) == table.source.rows


@pytest.mark.slow  # a driver's end between steps is above, its kill in test_faults.py
def test_a_driver_that_is_killed_between_files_and_merge(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """kill -9 of it and its JVM, before and behind a merge; no option says the columns."""
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=9)
    given = {"valueFormat": "debezium"}
    table.change(80)
    job.run(into=INTO, **given)
    for when in ("before", "behind"):
        table.change(80)
        version = DeltaTable(job.table).version()
        assert killed_run(topics, job, tmp_path, when) == -signal.SIGKILL
        assert (DeltaTable(job.table).version() > version) == (when == "behind")
    table.change(80)
    job.run(into=INTO, **given)
    assert rows(job.table) == table.source.rows


def killed_run(topics: Topics, job: TableJob, home: Path, when: str) -> int:
    confs = jars.delta_confs()
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[2]"),
        *(f"--conf={name}={value}" for name, value in confs.items()),
        *(str(CAPTURING), topics.cluster.bootstrap_servers, job.topic, str(home), when),
    ]
    log = home / f"{when}.log"
    with log.open("wb") as out:
        ended = subprocess.run(
            command,
            stdout=out,
            stderr=out,
            cwd=home,
            env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON},
            start_new_session=True,
            timeout=400,
            check=False,
        )
    return ended.returncode


def test_what_has_no_row(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=7)
    table.change(5)
    job.produce(Record(json.dumps({"op": "t", "source": {}}).encode(), None, 0))
    text = failure_of(job.start(into=INTO, **OPTIONS))
    assert "[BAD_CHANGE]" in text
    assert "op t empties the captured table" in text
    # It goes to the dead letters where it is said, and nothing else does.
    given = individual(tmp_path, badValues="deadLetter")
    job.checkpoint = tmp_path / "another"
    job.run(into=INTO, **OPTIONS, **given)
    assert rows(job.table) == table.source.rows
    for into, more, why in [
        (INTO | {"deletes": "name"}, {}, "deletes is said by the changes themselves"),
        ({"keys": ["ids"]}, {}, r"no column 'ids'.*; it has id, name"),
        (INTO, {"badValues": "null"}, "'badValues' is null, and what cannot be read has no row"),
    ]:
        with pytest.raises(KeyrangeError, match=why):
            job.start(into=into, **(OPTIONS | more))


def test_without_keys_the_changes_are_appended(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    job = TableJob(spark, topics, tmp_path)
    table = Captured(job, seed=8)
    table.produce(table.source.insert({"id": 1, **table.row(1)}) + table.source.delete(1))
    job.run(columns="value", **OPTIONS)
    assert [each and each["op"] for each in job.rows()] == ["c", "d", None]
