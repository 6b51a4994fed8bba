"""commit.isolation=transactional: what is finished above a pending record waits, and comes out in
order."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.offset_reset import reopen, rewind
from keyrange.model.commit_settings import RedeliveryPolicy
from project.forms import usually
from spark.handmade_batches import PLACE, Sent, Stage, place_of

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def parse(record: Any) -> Any:
    text = record.value.decode()
    if text.startswith("!"):
        raise ValueError(f"no {text}")
    return None if text == "left out" else (record.offset, text)


class Sink:
    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        output = keyrange.process(batch, parse, "at long, text string")
        self.batches[batch_id] = [row[0] for row in output.collect()]


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Stage:
    return Stage(spark, tmp_path, transactional=True)


def test_45_to_49_wait_while_40_to_44_are_in_flight(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "v") for _ in range(40)]
    stage.run(sink)
    stage.log += [Sent("a", "!") for _ in range(5)] + [Sent("b", "v") for _ in range(5)]
    stage.run(sink)
    assert sink.batches == {0: list(range(40)), 1: []}
    assert stage.state.committed == 40
    for at in range(40, 45):
        stage.log[at] = Sent("a", "mended")
    batch_id = stage.plan()
    # It is run again when it was committed, and releases the same.
    for _ in range(2):
        stage.each_batch(sink)(stage.batch(batch_id), batch_id)
        assert sink.batches == {0: list(range(40)), 1: [], 2: list(range(40, 50))}
        assert stage.state.committed == 50
    stage.finish(batch_id)
    assert sorted(path.name for path in (stage.verdicts / "source-1").iterdir()) == ["1", "2"]


def test_output_waits_over_several_batches_and_comes_once(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "v"), Sent("bad", "!"), Sent("c", "v")]
    stage.run(sink)
    for _ in range(2):
        stage.log += [Sent("d", "v"), Sent("e", "v")]
        stage.run(sink, due=False)
    assert sink.batches == {0: [0], 1: [], 2: []}
    stage.log += [Sent("worse", "!"), Sent("f", "v")]
    stage.log[1] = Sent("bad", "mended")
    stage.run(sink)
    assert sink.batches[3] == list(range(1, 7))
    stage.log[7] = Sent("worse", "mended")
    batch_id = stage.run(sink)
    assert sink.batches[4] == [7, 8]
    # A replay releases the same.
    stage.each_batch(sink)(stage.batch(batch_id), batch_id)
    assert sink.batches[4] == [7, 8]


@pytest.mark.parametrize("in_flight", usually(True, False), ids=["a batch is in flight", ""])
def test_what_was_released_is_not_released_again_when_records_are_replayed(
    spark: SparkSession, tmp_path: Path, in_flight: bool
) -> None:
    stage, sink = Stage(spark, tmp_path, transactional=True, policy=RedeliveryPolicy(1)), Sink()
    stage.log = [Sent("a", "v"), Sent("b", "!"), Sent("c", "v"), Sent("d", "!"), Sent("e", "v")]
    stage.run(sink)
    released = {0: [0, 2, 4]}
    assert sink.batches == released
    planned = -1
    if in_flight:
        stage.log += [Sent("f", "v"), Sent("g", "v")]
        planned = stage.plan()
    known = stage.table().known()
    again = reopen(stage.state, [(at, place_of(stage.log[at].key)) for at in (1, 3)], 0)
    replay = replace(
        stage.store[-1],
        seq=known.seq + 1,
        kind=CommitKind.RESET,
        batch_id=-1,
        run_id="by hand",
        states={PLACE: again.state},
        counts={},
    )
    stage.table().append(replay)
    if in_flight:
        # It was planned from what was there before, and releases what it says.
        stage.each_batch(sink)(stage.batch(planned), planned)
        stage.finish(planned)
        released[planned] = [5, 6]
        assert sink.batches == released
    # The second is done before the first, and waits for it.
    stage.options = replace(
        stage.options,
        commits=replace(stage.options.commits, policy=RedeliveryPolicy(5, 0, 0)),
    )
    stage.log[3] = Sent("d", "mended")
    waiting = stage.run(sink)
    stage.log[1] = Sent("b", "mended")
    batch_id = stage.run(sink)
    assert sink.batches == released | {waiting: [], batch_id: [1, 3]}
    stage.each_batch(sink)(stage.batch(batch_id), batch_id)
    assert sink.batches[batch_id] == [1, 3]
    assert stage.state.committed == len(stage.log)


@pytest.mark.parametrize("in_flight", usually(True, False), ids=["a batch is in flight", ""])
def test_what_waits_comes_once_where_somebody_resets_the_commits(
    stage: Stage, in_flight: bool
) -> None:
    """Output that was not released is made again, and the first of it counts no more."""
    sink = Sink()
    stage.log = [Sent("a", "v"), Sent("b", "!"), Sent("c", "v"), Sent("d", "v"), Sent("e", "v")]
    stage.run(sink)
    assert sink.batches == {0: [0]}
    batch_id = -1
    if in_flight:
        stage.log.append(Sent("f", "v"))
        batch_id = stage.plan(due=False)
    reset = replace(
        stage.store[-1],
        seq=stage.table().known().seq + 1,
        kind=CommitKind.RESET,
        batch_id=-1,
        run_id="by hand",
        states={PLACE: rewind(stage.state, 0).state},
        counts={},
    )
    stage.table().append(reset)
    if in_flight:
        stage.each_batch(sink)(stage.batch(batch_id), batch_id)
        stage.finish(batch_id)
    stage.log[1] = Sent("b", "mended")
    # What the function leaves out by now is not there because it was made before.
    stage.log[3] = Sent("d", "left out")
    last = stage.run(sink)
    assert sink.batches[last] == [at for at in range(len(stage.log)) if at != 3]
    assert sink.batches.get(batch_id, []) == []
    assert stage.state.committed == len(stage.log)


def test_a_column_of_errors_decides_what_is_released(stage: Stage) -> None:
    released: list[list[int]] = []

    def body(batch: DataFrame, batch_id: int) -> None:
        failed = F.col("value").cast("string").startswith("!")
        errors = batch.withColumn("bad", F.when(failed, F.lit("begins with !")))
        rows = keyrange.materialize(errors, "bad").select("offset")
        released.append([row[0] for row in rows.collect()])

    stage.log = [Sent("a", "v"), Sent("b", "!"), Sent("c", "v")]
    stage.run(body)
    stage.log[1] = Sent("b", "mended")
    stage.run(body)
    assert released == [[0], [1, 2]]


def test_saying_more_behind_the_verdict_is_refused(stage: Stage) -> None:
    stage.log = [Sent("a", "v")]
    with pytest.raises(KeyrangeError, match=r"\[VERDICT_TOO_LATE\]"):
        stage.run(lambda batch, batch_id: keyrange.reject(keyrange.materialize(batch)))


def test_staged_output_that_is_gone_is_never_passed_over(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "!"), Sent("c", "v")]
    stage.run(sink)
    shutil.rmtree(stage.verdicts / "source-1" / "0")
    stage.log[0] = Sent("a", "mended")
    with pytest.raises(KeyrangeError, match=r"\[VERDICT_DAMAGED\] the verdict of batch 0 is gone"):
        stage.run(sink)


def test_batches_without_records_are_links_of_the_chain(stage: Stage) -> None:
    sink = Sink()
    stage.log = [Sent("a", "!"), Sent("c", "v")]
    stage.run(sink)
    stage.run(lambda batch, batch_id: None, due=False)
    stage.log[0] = Sent("a", "mended")
    stage.run(sink)
    assert sink.batches == {0: [], 2: [0, 1]}
