"""What becomes of a query when something is done to its commit table or its verdicts while it runs:
the batch fails by name before a position moves, and goes on after the remedy."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from brokers.real_broker import Topics
from faults.damaged_tables import Undo, fill, make_read_only, set_property
from keyrange.errors import CATALOGUE
from queries.individual import LATER, Job, failure_of, mended, values
from spark.sources import committed

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.usefixtures("no_query_left")

# Does something to a directory that has the table in `commits`, or to a disk.
Happens = Callable[[Path], Undo]
BY_NAME = {
    "delta.columnMapping.mode": "name",
    "delta.minReaderVersion": "2",
    "delta.minWriterVersion": "5",
}


def deleted(home: Path) -> Undo:
    gone = (home / "commits").rename(home / "elsewhere")
    return partial(gone.rename, home / "commits")


def bring_back(home: Path) -> Undo:
    """As people do who have a copy of it."""
    kept = shutil.copytree(home / "commits", home / "kept")

    def undo() -> None:
        shutil.rmtree(home / "commits")
        kept.rename(home / "commits")

    return undo


def another_kind(home: Path) -> Undo:
    undo = bring_back(home)
    set_property(home / "commits", "keyrange.table", "other")
    return undo


def alter(home: Path, change: str) -> Undo:
    spark = SparkSession.active()
    undo = bring_back(home)
    table = f"delta.`{home / 'commits'}`"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in BY_NAME.items())
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE {table} {change}")
    return undo


def column_dropped(home: Path) -> Undo:
    return alter(home, "DROP COLUMN rejected")


def column_renamed(home: Path) -> Undo:
    return alter(home, "RENAME COLUMN done TO finished")


def run_that_is_stopped(query: Job, happens: Happens, place: Path) -> tuple[str, str]:
    """Two batches with a pending record; then something happens, and the next batch comes: how that
    fails, and how it does for who starts the query again without a remedy. Ends with the remedy."""
    running = query.start()
    # Behind the second one the process that plans knows the table too.
    for batch_id, records in enumerate((values(range(10), [3]), values(range(10, 20)))):
        query.produce(records)
        query.wait_for(running, batch_id)
    before = query.known()
    undo = happens(place)
    query.produce(values(range(20, 30)))
    text = failure_of(running)
    restarted = failure_of(query.start())
    undo()
    assert committed(query.checkpoint) == [0, 1]
    known = query.known()
    assert (known.states, known.batch_id) == (before.states, before.batch_id)
    return named(text), named(restarted)


def named(text: str) -> str:
    """The condition of the catalogue in the failure of a query."""
    names = (each for each in re.findall(r"\[([A-Z_]+)[.\]]", text) if each in CATALOGUE)
    name = next(names, text)
    assert "To mend it: " in text
    return name


def goes_on(query: Job) -> None:
    query.run(mended)
    assert query.numbers() == sorted(set(range(30)) - {3})
    assert [len(state.pending) for state in query.known().states.values()].count(1) == 1


@pytest.mark.parametrize(
    ("happens", "condition", "again"),
    [
        # One more batch was planned from what the table said last.
        pytest.param(deleted, "COMMITS_GONE", "COMMITS_BEHIND"),
        pytest.param(column_dropped, "FOREIGN_TABLE", "FOREIGN_TABLE", marks=pytest.mark.slow),
        pytest.param(column_renamed, "FOREIGN_TABLE", "FOREIGN_TABLE", marks=pytest.mark.slow),
        pytest.param(another_kind, "FOREIGN_TABLE", "FOREIGN_TABLE", marks=pytest.mark.slow),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_commit_table_is_changed_under_a_query(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    happens: Happens,
    condition: str,
    again: str,
) -> None:
    topic = topics.create_topic("changed", 2)
    query = Job(spark, topics, topic, tmp_path, into=True, **LATER)
    assert run_that_is_stopped(query, happens, tmp_path) == (condition, again)
    goes_on(query)


@pytest.mark.parametrize(
    ("happens", "on_disk", "condition"),
    [
        pytest.param(fill, "verdicts", "VERDICT_UNWRITABLE"),
        pytest.param(make_read_only, "verdicts", "VERDICT_UNWRITABLE", marks=pytest.mark.slow),
        pytest.param(fill, "commits", "COMMITS_UNWRITABLE"),
        pytest.param(make_read_only, "commits", "COMMITS_UNWRITABLE", marks=pytest.mark.slow),
    ],
    ids=["full-verdicts", "read-only-verdicts", "full", "read-only"],
)
def test_a_place_takes_no_files_any_more(
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    small_disk: Path,
    happens: Happens,
    on_disk: str,
    condition: str,
) -> None:
    places = {name: str(tmp_path / name) for name in ("commits", "verdicts")}
    places[on_disk] = str(small_disk / on_disk)
    query = Job(
        spark,
        topics,
        topics.create_topic("places", 2),
        tmp_path,
        into=True,
        commitTable=places["commits"],
        verdictDirectory=places["verdicts"],
        **LATER,
    )
    assert run_that_is_stopped(query, happens, small_disk) == (condition, condition)
    goes_on(query)


def test_a_table_is_vacuumed_under_a_query(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """What the log does not name any more goes at once, whoever may be reading it; then files that
    it does name."""
    topic = topics.create_topic("vacuumed", 2)
    query = Job(spark, topics, topic, tmp_path, into=True, **LATER)
    query.produce(values(range(20), failing=[3]))
    running = query.start()
    query.wait_for(running, 0)
    table = DeltaTable(query.table)
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    query.produce(values(range(20, 25)))
    query.wait_for(running, 1)
    running.stop()
    before = query.known()
    query.produce(values(range(25, 30)))
    kept = shutil.copytree(query.table, tmp_path / "kept")
    for file in Path(query.table).glob("*.parquet"):
        file.unlink()
    assert named(failure_of(query.start())) == "COMMITS_GONE"
    shutil.copytree(kept, query.table, dirs_exist_ok=True)
    assert committed(query.checkpoint) == [0, 1]
    assert query.known().states == before.states
    goes_on(query)
