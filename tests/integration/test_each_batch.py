"""`keyrange.each_batch` on a real Spark session: verdicts, replays, and what is refused."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange
from keyrange.model.commit_settings import RedeliveryPolicy
from spark.handmade_batches import Sent, Sink, Stage, done, refused, upper, working

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_what_succeeds_is_done_and_what_fails_is_a_hole(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("b", "y"), Sent("c", "-"), Sent("d", "*")]
    stage.run(working(sink))
    assert sink.rows == [(0, "X"), (4, "*"), (4, "*")]
    assert done(stage.state) == {1: ("REJECTED", 1), 2: ("HELD_BACK", 0)}
    assert stage.state.committed == 1
    commit = stage.store[-1]
    [counts] = commit.counts.values()
    assert (counts.done, counts.rejected, counts.held_back, counts.dead) == (3, 1, 1, 0)


def test_what_failed_comes_again_with_what_waited_for_it(stage: Stage) -> None:
    sink = Sink()
    seen: list[tuple[int, int]] = []
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("b", "y"), Sent("c", "z")]
    stage.run(working(sink))
    stage.log[1] = Sent("b", "mended")
    stage.log.append(Sent("b", "later"))

    def noting(record: Any) -> Any:
        return (record.offset, f"{record.deliveries}")

    stage.run(working(sink, noting))
    assert sink.batches[1] == [(1, "1"), (2, "0"), (4, "0")]
    assert done(stage.state) == {}
    assert stage.state.committed == 5
    assert seen == []


def test_the_function_runs_once_for_a_batch_that_is_replayed(stage: Stage, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    ran.mkdir()

    def at_random(record: Any) -> Any:
        import uuid

        (ran / f"{record.offset}-{uuid.uuid4().hex}").touch()
        if random.random() < 0.5:
            raise ValueError("by chance")
        return (record.offset, "x")

    sink, crashes = Sink(), iter([True, True, False])

    def body(batch: DataFrame, batch_id: int) -> None:
        output = keyrange.process(batch, at_random, "at long, text string")
        sink.write(output, batch_id)
        assert sorted(map(tuple, output.collect())) == sorted(sink.batches[batch_id])
        if next(crashes):
            raise RuntimeError("the sink's second action fails")

    stage.log = [Sent(f"k{at}", "v") for at in range(40)]
    batch_id = stage.plan()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            stage.each_batch(body)(stage.batch(batch_id), batch_id)
        assert {commit.kind.value for commit in stage.store} == {"fence"}
    stage.each_batch(body)(stage.batch(batch_id), batch_id)
    ran_of = [int(path.name.partition("-")[0]) for path in ran.iterdir()]
    held = {at for at, (cause, _) in done(stage.state).items() if cause == "HELD_BACK"}
    assert sorted(ran_of) == sorted(set(range(40)) - held)
    succeeded = {row[0] for row in sink.rows}
    assert succeeded | set(done(stage.state)) == set(range(40))
    assert not succeeded & set(done(stage.state))


def test_a_replay_behind_the_commit_changes_nothing(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "x"), Sent("b", "!")]
    batch_id = stage.plan()
    stage.each_batch(working(sink))(stage.batch(batch_id), batch_id)
    before = stage.state
    stage.each_batch(working(sink))(stage.batch(batch_id), batch_id)
    assert stage.state == before
    assert [commit.kind.value for commit in stage.store] == ["fence", "batch", "fence"]
    assert sink.writes == 2


def test_a_batch_of_which_nothing_is_said_fails(stage: Stage) -> None:
    stage.log = [Sent("a", "x")]
    with refused("NO_VERDICT"):
        stage.run(lambda batch, batch_id: None)
    with refused("NO_VERDICT"):
        stage.next_batch = 0
        stage.run(lambda batch, batch_id: keyrange.materialize(batch))
    assert [commit.kind.value for commit in stage.store] == ["fence", "fence"]


@pytest.mark.parametrize("call", ["process", "reject"])
def test_a_call_that_failed_fails_the_batch_although_the_function_catches_it(
    stage: Stage, call: str
) -> None:
    """Nothing is known of the records then, and all of them would count as done."""
    stage.log = [Sent("a", "x"), Sent("a", "y")]
    goes_on = False

    def body(batch: DataFrame, batch_id: int) -> None:
        with suppress(Exception):
            if call == "process":
                keyrange.process(batch.sort(F.desc("offset")), upper, "at long, text string")
            else:
                kept = keyrange.materialize(batch)
                keyrange.acknowledge(kept)
                keyrange.reject(kept.withColumn("why", F.raise_error(F.lit("no"))), "why")
        if goes_on:
            keyrange.process(batch, upper, "at long, text string")

    batch_id = stage.plan()
    for _ in range(2):
        with refused("RECORDS_OUT_OF_ORDER" if call == "process" else "USER_RAISED_EXCEPTION"):
            stage.each_batch(body)(stage.batch(batch_id), batch_id)
    assert {commit.kind.value for commit in stage.store} == {"fence"}
    if call == "process":
        goes_on = True
        stage.each_batch(body)(stage.batch(batch_id), batch_id)
        assert stage.state.committed == 2


def test_an_empty_batch_needs_no_verdict(stage: Stage) -> None:
    stage.run(lambda batch, batch_id: None)
    assert stage.store[-1].kind.value == "batch"
    sink = Sink()
    stage.run(working(sink))
    assert sink.rows == []


def test_a_second_verdict_and_a_call_outside_are_refused(stage: Stage) -> None:
    stage.log = [Sent("a", "x")]

    def twice(batch: DataFrame, batch_id: int) -> None:
        keyrange.process(batch, upper, "at long, text string")
        keyrange.materialize(batch)

    with refused("VERDICT_TWICE"):
        stage.run(twice)
    with refused("OUTSIDE_EACH_BATCH"):
        keyrange.process(stage.batch(0), upper, "at long, text string")


def test_records_out_of_order_are_refused(stage: Stage) -> None:
    stage.log = [Sent("a", "x"), Sent("a", "y")]

    def body(batch: DataFrame, batch_id: int) -> None:
        backwards = batch.sort(F.desc("offset"))
        keyrange.process(backwards, upper, "at long, text string")

    with refused("RECORDS_OUT_OF_ORDER"):
        stage.run(body)


def test_records_of_a_key_in_two_tasks_are_refused(stage: Stage) -> None:
    """Each task has its own in order, and one that fails holds back nothing in the other."""
    stage.log = [Sent("a", text) for text in ("!", "x", "y", "z")]

    def body(batch: DataFrame, batch_id: int) -> None:
        keyrange.process(batch.repartition(2), upper, "at long, text string")

    with refused("RECORDS_OUT_OF_ORDER"):
        stage.run(body)


def test_columns_have_any_names(stage: Stage) -> None:
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("c", "y")]
    sink = Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        schema = "`at.offset` long, at struct<offset: long>"
        sink.write(keyrange.process(batch, lambda r: (upper(r)[0], None), schema), batch_id)

    stage.run(body)
    assert sink.rows == [(0, None), (2, None)]


def test_a_column_that_takes_no_nulls_is_refused(stage: Stage) -> None:
    """Spark fails with an error of Java that names no column: rows of failures have nulls."""
    stage.log = [Sent("a", "x")]
    sink = Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        sink.write(keyrange.process(batch, lambda _: (None,), "at long NOT NULL"), batch_id)

    with refused("INVALID_OPTIONS", "column 'at' of schema is not nullable"):
        stage.run(body)
    assert sink.rows == []


@pytest.mark.parametrize("result", [3, {"wrong": 1}, (1,)])
def test_a_function_that_answers_something_else_fails_the_batch(stage: Stage, result: Any) -> None:
    stage.log = [Sent("a", "x")]
    with refused("WRONG_RESULT"):
        stage.run(working(Sink(), lambda record: result))


def test_a_value_that_does_not_fit_rejects_its_record(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("b", "y"), Sent("c", "z")]
    stage.run(working(sink, lambda record: (2**63 if record.offset == 1 else record.offset, "x")))
    assert [row[0] for row in sink.rows] == [0, 3]
    assert done(stage.state) == {1: ("REJECTED", 1), 2: ("HELD_BACK", 0)}


def test_functions_of_arrow_batches(stage: Stage) -> None:
    import pyarrow as pa

    def many(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value").to_pylist()
        if b"!" in values:
            raise ValueError("there is a !")
        return pa.record_batch(
            {"at": batch.column("offset"), "text": pa.array([v.decode() for v in values])}
        )

    sink = Sink()
    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("c", "y"), Sent("d", "z")]
    stage.run(working(sink, many, mode="arrow"))
    assert sink.rows == [(0, "x"), (2, "y"), (3, "z")]
    assert done(stage.state) == {1: ("REJECTED", 1)}


def test_process_mentions_what_it_was_given(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, unmentioned_is_done=False)
    stage.log = [Sent(f"k{at}", "-" if at % 2 else "!") for at in range(10)]

    def body(batch: DataFrame, batch_id: int) -> None:
        keyrange.process(batch.where("offset != 4"), upper, "at long, text string")

    stage.run(body)
    expected = dict.fromkeys(range(0, 10, 2), ("REJECTED", 1))
    assert done(stage.state) == {**expected, 4: ("UNMENTIONED", 1)}


def test_time_that_is_up_hands_back_what_is_left(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, batch_time_budget_ms=500, record_timeout_ms=200)
    stage.log = [Sent("a", "x"), Sent("slow", "s"), Sent("b", "y"), Sent("slow2", "s")]
    stage.log += [Sent("slow3", "s"), Sent("c", "z"), Sent("d", "z")]

    def sleepy(record: Any) -> Any:
        import time

        if record.value == b"s":
            time.sleep(30)
        return (record.offset, "x")

    sink = Sink()
    stage.run(working(sink, sleepy))
    assert [row[0] for row in sink.rows] == [0, 2]
    assert done(stage.state) == {1: ("TIMED_OUT", 1), 3: ("TIMED_OUT", 1)}
    assert stage.state.scanned == 4
    stage.run(working(sink, sleepy), due=False)
    assert [row[0] for row in sink.rows] == [0, 2, 5, 6]


def test_the_last_delivery_goes_to_the_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, policy=RedeliveryPolicy(2, 0, 0))
    sink = Sink()
    stage.log = [Sent("a", "x"), Sent("b", "!1"), Sent("b", "y")]
    stage.run(working(sink))
    assert stage.graves.letters == []
    batch_id = stage.run(working(sink))
    [letter] = stage.graves.letters
    assert (letter.offset, letter.key, letter.value) == (1, b"b", b"!1")
    assert letter.error.startswith("ValueError: no !1 (handmade_batches.py, line ")
    assert letter.attempts == 2
    assert stage.graves.sent == [letter]
    # Its key has gone on.
    assert [row[0] for row in sink.rows] == [0, 2]
    assert done(stage.state) == {}
    stage.each_batch(working(sink))(stage.batch(batch_id), batch_id)
    assert stage.graves.letters == [letter]
    assert len(stage.graves.sent) == 2


def test_verdicts_that_nobody_needs_are_removed(stage: Stage) -> None:
    sink = Sink()
    for at in range(4):
        stage.log.append(Sent(f"k{at}", "v"))
        stage.run(working(sink))
    assert sorted(path.name for path in (stage.verdicts / "source-1").iterdir()) == ["3"]
