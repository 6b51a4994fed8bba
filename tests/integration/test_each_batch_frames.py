"""Jobs that decide about records by DataFrames: materialize, acknowledge, reject."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange
from keyrange.model.commit_settings import RedeliveryPolicy
from spark.handmade_batches import Sent, Sink, Stage, done, place_of, refused, working

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_jobs_may_decide_by_data_frames(stage: Stage) -> None:
    sink = Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        rows = keyrange.materialize(
            batch.withColumn("bad", F.when(F.rand() < 0.5, F.concat(F.lit("x"), F.rand())))
        )
        good = rows.where("bad is null")
        sink.write(good.select("offset"), batch_id)
        keyrange.acknowledge(good)
        keyrange.reject(rows.where("bad is not null"), "bad")

    stage.log = [Sent(f"k{at}", "v") for at in range(60)]
    stage.run(body)
    succeeded = {row[0] for row in sink.rows}
    assert succeeded | set(done(stage.state)) == set(range(60))
    assert not succeeded & set(done(stage.state))
    [counts] = stage.store[-1].counts.values()
    assert (counts.done, counts.rejected) == (len(succeeded), 60 - len(succeeded))


def test_a_column_of_errors_may_decide(stage: Stage) -> None:
    sink = Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        failed = F.col("value").cast("string").startswith("!")
        errors = batch.withColumn("bad", F.when(failed, F.lit("begins with !")))
        # A literal is never null, and nothing of a record that failed is there.
        kept = keyrange.materialize(errors.withColumn("by", F.lit(7)), "bad")
        sink.write(kept.select("offset", "by"), batch_id)

    stage.log = [Sent("a", "x"), Sent("b", "!"), Sent("b", "y"), Sent("c", "z")]
    stage.run(body)
    assert sink.rows == [(0, 7), (3, 7)]
    assert done(stage.state) == {1: ("REJECTED", 1), 2: ("HELD_BACK", 0)}
    stage.log += [Sent("b", "w"), Sent("a", "v")]
    # The pending record is not due: what comes of its key waits, in whatever way the job decides.
    stage.run(lambda batch, batch_id: keyrange.acknowledge(keyrange.materialize(batch)), due=False)
    assert done(stage.state)[4] == ("HELD_BACK", 0)
    assert 5 not in done(stage.state)


@pytest.mark.parametrize("call", [keyrange.acknowledge, keyrange.reject])
@pytest.mark.parametrize("what", ["the batch", "another file", "both", "cached"])
def test_what_was_not_materialized_is_refused(
    stage: Stage, tmp_path: Path, call: Any, what: str
) -> None:
    stage.log = [Sent("a", "x")]
    elsewhere = str(tmp_path / "elsewhere")

    def body(batch: DataFrame, batch_id: int) -> None:
        batch.write.parquet(elsewhere)
        other = batch.sparkSession.read.parquet(elsewhere)
        rows = keyrange.materialize(batch)
        both = rows.unionByName(other)
        given = {"the batch": batch, "another file": other, "both": both, "cached": rows}[what]
        call(given.cache() if what == "cached" else given)

    with refused("NOT_MATERIALIZED"):
        stage.run(body)


def test_a_record_of_no_batch_is_refused(stage: Stage) -> None:
    stage.log = [Sent("a", "x")]

    def body(batch: DataFrame, batch_id: int) -> None:
        rows = keyrange.materialize(batch)
        keyrange.reject(rows.withColumn("offset", F.col("offset") + 100))

    with refused("IMPLAUSIBLE_VERDICT"):
        stage.run(body)
    assert [commit.kind.value for commit in stage.store] == ["fence"]


def test_what_is_not_mentioned_comes_again_where_that_was_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(5)
    stage = Stage(spark, tmp_path, unmentioned_is_done=False)
    stage.log = [Sent(f"k{at}", "v") for at in range(300)]
    left = set(chance.sample(range(300), 20))

    def body(batch: DataFrame, batch_id: int) -> None:
        rows = keyrange.materialize(batch)
        mentioned = rows.where(~F.col("offset").isin(sorted(left)))
        keyrange.acknowledge(mentioned.where("offset != 7"))
        keyrange.reject(mentioned.where("offset = 7"))

    stage.run(body)
    left.discard(7)
    expected = dict.fromkeys(left, ("UNMENTIONED", 1))
    if 7 not in left:
        expected[7] = ("REJECTED", 1)
    assert {at: cause for at, cause in done(stage.state).items() if at != 7} == {
        at: cause for at, cause in expected.items() if at != 7
    }


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys lie where these tests put them."""
    found = "keyrange.individual_commits.given_up_records.hash_of_record"
    monkeypatch.setattr(found, lambda key, *_: place_of(key.decode()))


@pytest.mark.usefixtures("places")
def test_dead_letters_of_data_frames_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    stage = Stage(spark, tmp_path, policy=RedeliveryPolicy(1, 0, 0))
    stage.log = [Sent("a", "x"), Sent("b", "secret")]

    def body(batch: DataFrame, batch_id: int) -> None:
        rows = keyrange.materialize(
            batch.where("offset = 1").select("topic", "partition", "offset", "keyHash")
        )
        keyrange.reject(rows.withColumn("why", F.lit("so")), "why")

    stage.run(body)
    [letter] = stage.graves.letters
    assert (letter.offset, letter.key, letter.value, letter.error) == (1, b"b", b"secret", "so")


@pytest.mark.usefixtures("places")
def test_a_dead_letter_has_the_key_of_its_record(spark: SparkSession, tmp_path: Path) -> None:
    """A replay looks for the record among those of the key that its letter has."""
    stage = Stage(spark, tmp_path, policy=RedeliveryPolicy(1, 0, 0))
    stage.log = [Sent("a", "x"), Sent("b", "!")]

    def run(key: Any) -> None:
        batch = stage.batch(batch_id).withColumn("key", key)
        stage.each_batch(working(Sink()))(batch, batch_id)

    batch_id, text = stage.plan(), F.col("key").cast("string")
    with refused("UNSUITABLE_FRAME", "column 'key'"):
        run(F.upper(text))
    assert stage.graves.letters == []
    run(text)
    assert [letter.key for letter in stage.graves.letters] == [b"b"]
