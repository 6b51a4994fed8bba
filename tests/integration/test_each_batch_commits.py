"""`keyrange.each_batch` beside others that write to the commit table: drivers, and people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.model.commit_settings import RedeliveryPolicy
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.query_ranges import EVERY
from keyrange.options.key_ranges import KeyRangeOptions
from project.forms import usually
from spark.handmade_batches import PLACE, SCHEMA, SOURCE, Sent, Sink, Stage, done, refused, working


def test_what_is_set_by_hand_while_a_batch_runs_stays_set(stage: Stage) -> None:
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("c", "z")]
    stage.run(working(Sink()))
    stage.log.append(Sent("d", "w"))
    batch_id = stage.plan(due=False)
    set_by_hand = rewind(stage.state, 1).state
    known = stage.table().known()
    stage.table().append(
        Commit(
            seq=known.seq + 1,
            kind=CommitKind.RESET,
            group="g",
            source_id=SOURCE,
            query_id="query-1",
            run_id="by hand",
            batch_id=-1,
            committed_at_ms=1,
            states={PLACE: set_by_hand},
        )
    )
    stage.each_batch(working(Sink()))(stage.batch(batch_id), batch_id)
    assert stage.state.committed == 1
    assert stage.state.scanned == 1
    stage.finish(batch_id)
    sink = Sink()
    stage.log[1] = Sent("b", "mended")
    stage.run(working(sink))
    assert sink.rows == [(1, "MENDED"), (2, "Z"), (3, "W")]
    assert stage.state.committed == 4


def test_a_commit_says_which_key_ranges_its_query_reads(stage: Stage) -> None:
    ranges = {TopicPartition("t", EVERY): (KeyRange(0, 6),)}
    stage.log = [Sent("a", "x")]
    stage.run(working(Sink()))
    assert stage.table().known().ownership == {}
    partial = KeyRangeOptions(partial=True, ranges=ranges)
    stage.options = replace(stage.options, key_ranges=partial)
    stage.run(working(Sink()))
    assert stage.table().known().ownership == ranges


def test_a_replay_gives_up_what_its_first_run_did(stage: Stage) -> None:
    stage.log = [Sent("a", "!"), Sent("b", "y")]
    batch_id = stage.plan(deliveries_max=1)
    stage.options = replace(
        stage.options,
        commits=replace(stage.options.commits, policy=RedeliveryPolicy(deliveries_max=9)),
    )
    stage.each_batch(working(Sink()))(stage.batch(batch_id), batch_id)
    assert [letter.offset for letter in stage.graves.letters] == [0]
    assert done(stage.state) == {}


def test_lag_is_that_of_the_log_as_the_batch_knew_it(stage: Stage) -> None:
    stage.log = [Sent("a", "x"), Sent("b", "y")]
    batch_id = stage.plan(end=1, log_end=2)
    stage.each_batch(working(Sink()))(stage.batch(batch_id), batch_id)
    assert [counts.log_end for counts in stage.store[-1].counts.values()] == [2]


def test_the_second_driver_stops_the_first(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "x")]
    first = stage.each_batch(working(sink))
    first(stage.batch(stage.plan()), 0)
    stage.finish(0)
    stage.log.append(Sent("b", "y"))
    batch_id = stage.plan()
    stage.each_batch(working(sink))(stage.batch(batch_id), batch_id)
    with refused("COMMITS_FENCED"):
        first(stage.batch(batch_id), batch_id)


def test_a_driver_that_is_replaced_while_it_works_commits_nothing(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "x")]
    batch_id = stage.plan()

    def slow(batch: DataFrame, batch_id: int) -> None:
        working(sink)(batch, batch_id)
        stage.each_batch(working(sink))(stage.batch(batch_id), batch_id)

    with refused("COMMITS_FENCED"):
        stage.each_batch(slow)(stage.batch(batch_id), batch_id)
    assert [c.run_id for c in stage.store if c.batch_id == 0] == [stage.store[1].run_id]


@pytest.mark.parametrize("transactional", usually(True, False))
def test_a_batch_for_another_sources_sake_changes_nothing(
    spark: SparkSession, tmp_path: Path, transactional: bool
) -> None:
    stage, sink = Stage(spark, tmp_path, transactional=transactional), Sink()
    stage.log = [Sent("a", "v"), Sent("b", "!"), Sent("c", "v")]
    stage.run(working(sink))
    before = stage.state
    offsets = stage.checkpoint / "offsets"
    # Such a batch has the offset of the one before, with its mark.
    (offsets / "1").write_text((offsets / "0").read_text())
    nothing = spark.createDataFrame([], SCHEMA)
    for _ in range(2):
        stage.each_batch(working(sink))(nothing, 1)
        assert stage.state == before
        assert done(stage.state) == {1: ("REJECTED", 1)}
    stage.finish(1)
    stage.next_batch = 2
    stage.log[1] = Sent("b", "mended")
    stage.run(working(sink))
    assert [row[0] for row in sink.rows] == [0, 1, 2]
    assert done(stage.state) == {}
