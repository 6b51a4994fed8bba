"""The suite of all commit tables, on the one that is written through Spark, and both on one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from commit_contract import (
    EXTREMES,
    FLIGHTS,
    SOURCE,
    CommitTableContract,
    OpenTable,
    append_all,
    batch,
    condition,
    fence,
)
from delta_commits import table_at
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitCounts, known_at
from keyrange.individual_commits.table.commit_table import LAYOUT, open_commit_table
from keyrange.individual_commits.table.delta_spark import (
    SparkStore,
    open_writable_commit_table,
    open_writable_dead_letters,
)
from keyrange.options.commits import CommitOptions
from racing_writers import in_threads


class TestBySpark(CommitTableContract):
    many = 14

    @pytest.fixture
    def open_table(self, tmp_path: Path, spark: SparkSession) -> OpenTable:
        options = CommitOptions(table=str(tmp_path / "commits"), writer="delta-spark")
        return lambda source_id: open_writable_commit_table(options, source_id, spark)

    # Those with the most commits, each of which costs Spark seconds; with the other writer they are
    # in every run, and what is of Spark alone is tried below: both writers take turns.
    @pytest.mark.slow
    def test_commits_come_back_as_they_were_written(self, open_table: OpenTable) -> None:
        super().test_commits_come_back_as_they_were_written(open_table)

    @pytest.mark.slow
    def test_a_commit_that_is_written_again_changes_nothing(self, open_table: OpenTable) -> None:
        super().test_a_commit_that_is_written_again_changes_nothing(open_table)

    @pytest.mark.slow
    def test_a_batch_is_known_by_its_number_whichever_run_writes_it(
        self, open_table: OpenTable
    ) -> None:
        super().test_a_batch_is_known_by_its_number_whichever_run_writes_it(open_table)

    @pytest.mark.slow
    def test_who_was_replaced_is_told(self, open_table: OpenTable) -> None:
        super().test_who_was_replaced_is_told(open_table)

    @pytest.mark.slow
    def test_a_commit_without_the_one_before_it_is_refused(self, open_table: OpenTable) -> None:
        super().test_a_commit_without_the_one_before_it_is_refused(open_table)

    @pytest.mark.slow
    def test_sources_do_not_see_each_other(self, open_table: OpenTable) -> None:
        super().test_sources_do_not_see_each_other(open_table)

    @pytest.mark.slow
    def test_of_two_drivers_that_begin_at_once_one_is_refused(self, open_table: OpenTable) -> None:
        super().test_of_two_drivers_that_begin_at_once_one_is_refused(open_table)

    @pytest.mark.slow
    def test_what_another_handle_wrote_is_seen(self, open_table: OpenTable) -> None:
        super().test_what_another_handle_wrote_is_seen(open_table)

    @pytest.mark.slow
    def test_a_whole_commit_ends_what_it_leaves_out(self, open_table: OpenTable) -> None:
        super().test_a_whole_commit_ends_what_it_leaves_out(open_table)

    @pytest.mark.slow
    def test_nothing_changes_with_many_commits_and_maintenance(self, open_table: OpenTable) -> None:
        super().test_nothing_changes_with_many_commits_and_maintenance(open_table)


def test_both_writers_take_turns_at_one_table(tmp_path: Path, spark: SparkSession) -> None:
    by_rs = CommitOptions(table=str(tmp_path / "commits"))
    by_spark = CommitOptions(table=str(tmp_path / "commits"), writer="delta-spark")
    # The fourth is written through Spark: all that a state may hold, and that it says of itself.
    last = batch(4, 1, "run-2", states={FLIGHTS: EXTREMES}, whole=True)
    last = replace(last, who="ada", why="a 'poisoned' record\nis gone")
    commits = [fence(1), batch(2), fence(3, "run-2"), last]
    # Both go on with what they know already, and each finds what the other wrote meanwhile.
    sides = [open_writable_commit_table(each, SOURCE, spark) for each in (by_spark, by_rs)]
    for commit in commits[:3]:
        writer, other = sides if commit.seq % 2 == 0 else reversed(sides)
        writer.append(commit)
        # Which changes nothing, since it is there.
        other.append(commit)
    # Run 2 writes batch 0, which run 1 has written, and a commit that has none before it.
    sides[0].append(batch(4, batch_id=0, run_id="run-2"))
    with pytest.raises(KeyrangeError) as raised:
        sides[0].append(batch(5, batch_id=1, run_id="run-2"))
    assert condition(raised) == "COMMITS_BEHIND"
    sides[0].append(last)
    for options in (by_rs, by_spark):
        table = open_writable_commit_table(options, SOURCE, spark)
        assert table.known() == known_at(commits, 4)
        assert list(table.history()) == commits


def test_a_driver_of_the_other_writer_is_fenced(tmp_path: Path, spark: SparkSession) -> None:
    by_spark = CommitOptions(table=str(tmp_path / "commits"), writer="delta-spark")
    table = open_writable_commit_table(by_spark, SOURCE, spark)
    other = open_commit_table(CommitOptions(table=by_spark.table), SOURCE)
    append_all(other, [fence(1), batch(2)])
    assert table.known().seq == 2
    other.append(fence(3, "run-2"))
    # It knows commit 2 and writes the third: Delta leaves that out, and says nothing.
    for late in (batch(3), batch(4)):
        with pytest.raises(KeyrangeError) as raised:
            table.append(late)
        assert condition(raised) == "COMMITS_FENCED"
    assert list(other.history()) == [fence(1), batch(2), fence(3, "run-2")]


@pytest.mark.parametrize(
    "there",
    [pytest.param(False, marks=pytest.mark.slow, id="no table"), pytest.param(True, id="a table")],
)
def test_of_drivers_that_begin_a_group_at_once_one_goes_on_at_the_most(
    tmp_path: Path, spark: SparkSession, there: bool
) -> None:
    """Each with a checkpoint of its own, so that their commits know nothing of each other."""
    table = str(tmp_path / "commits")
    sides = [CommitOptions(table=table), CommitOptions(table=table, writer="delta-spark")]
    if there:
        append_all(open_writable_commit_table(sides[0], SOURCE, spark), [fence(1), batch(2)])
    began: list[int] = []

    def begin(side: int) -> None:
        drivers = open_writable_commit_table(sides[side], f"source-{side}", spark)
        before = drivers.begun("orders")
        looked.wait()
        drivers.append(fence(1, f"driver-{side}", f"source-{side}"), before)
        began.append(side)

    looked = Barrier(2)
    failures = in_threads(2, begin)
    # Where each sees the other, neither does.
    assert len(began) <= 1
    assert len(failures) == 2 - len(began)
    assert {each.condition.name for each in failures if isinstance(each, KeyrangeError)} == {
        "COMMITS_FENCED"
    }


def test_a_table_of_the_catalogue_is_written_by_its_name(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA IF NOT EXISTS control")
    try:
        options = CommitOptions(table="control.order_commits", writer="delta-spark")
        begun = fence(1, states={FLIGHTS: EXTREMES}, counts={FLIGHTS: CommitCounts(done=2)})
        open_writable_commit_table(options, SOURCE, spark).append(begun)
        table = open_writable_commit_table(options, SOURCE, spark)
        assert table.known() == known_at([begun], 1)
        rows = spark.sql("SELECT sum(done_records), max(committed) FROM control.`order_commits`")
        assert rows.collect()[0][0] == 2
    finally:
        spark.sql("DROP SCHEMA control CASCADE")


def test_what_happens_to_the_table_is_named(tmp_path: Path, spark: SparkSession) -> None:
    options = CommitOptions(table=str(tmp_path / "commits"), writer="delta-spark")
    table_at(tmp_path / "commits").append(fence(1))
    DeltaTable(options.table).alter.add_columns([Field("more", PrimitiveType("string"))])
    fresh = open_writable_commit_table(options, SOURCE, spark)
    with pytest.raises(KeyrangeError, match="altered: more") as raised:
        fresh.known()
    assert condition(raised) == "FOREIGN_TABLE"
    foreign = tmp_path / "foreign"
    write_deltalake(foreign, pa.table({"id": [0, 1, 2]}))
    options = CommitOptions(table=str(foreign), writer="delta-spark")
    with pytest.raises(KeyrangeError) as raised:
        open_writable_commit_table(options, SOURCE, spark).append(fence(1))
    assert condition(raised) == "FOREIGN_TABLE"


def test_dead_letters_are_written_through_spark_too(tmp_path: Path, spark: SparkSession) -> None:
    from keyrange.individual_commits.table.dead_letters import DeadLetter, open_dead_letters

    path = str(tmp_path / "dead")
    options = CommitOptions(dead_letter_table=path, writer="delta-spark")
    letter = DeadLetter(
        group="orders",
        source_id=SOURCE,
        query_id="query",
        batch_id=3,
        topic="flights",
        topic_id="t",
        partition=1,
        offset=2,
        key=None,
        value=b"\xff",
        headers=(("a", None), ("b", b"c")),
        written_at_ms=5,
    )
    for _ in range(2):
        open_writable_dead_letters(options, spark).append(SOURCE, 3, [letter], 5)
    assert open_writable_dead_letters(options, spark).read() == [letter]
    assert open_dead_letters(CommitOptions(dead_letter_table=path)).read() == [letter]


def test_it_is_compacted_by_hand(tmp_path: Path, spark: SparkSession) -> None:
    """What `jobs/compact_commits.py` does with tables that only Spark can write."""
    by_spark = CommitOptions(table=str(tmp_path / "commits"), writer="delta-spark")
    by_rs = open_commit_table(CommitOptions(table=by_spark.table), SOURCE)
    append_all(by_rs, [fence(1), *(batch(seq) for seq in range(2, 6))])
    store = SparkStore(spark, by_spark.table, LAYOUT)
    assert store.refresh()
    assert store.extent()[0] == 5
    spark.sparkContext.setJobGroup("tidying", "")
    store.tidy_up()
    spark.sparkContext.setJobGroup("", "")
    files, size_bytes = store.extent()
    assert files == 1
    assert size_bytes > 1_000
    assert [commit.seq for commit in by_rs.history()] == [1, 2, 3, 4, 5]
    assert 0 < most_tasks(spark, "tidying") < 100


def most_tasks(spark: SparkSession, group: str) -> int:
    """How many tasks the largest stage of a group of jobs had."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return max(stage.numTasks for stage in stages if stage)
