"""A driver that ends at any step between two batches: the next one finds every record once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.commit_settings import RedeliveryPolicy
from spark.handmade_batches import Graveyard, Sent, Stage, done
from tables.commit_tables import MemoryCommitTable

# Executors cannot import this file: its functions travel whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Crash(BaseException):
    """The driver ends; nothing is told apart from it by catching what a store may raise."""


class Sink:
    """Takes a batch id once, as a Delta table does by application transaction."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def write(self, frame: DataFrame, batch_id: int) -> None:
        rows = [tuple(row) for row in frame.collect()]
        self.batches.setdefault(batch_id, rows)

    @property
    def offsets(self) -> list[int]:
        return sorted(row[0] for rows in self.batches.values() for row in rows)


def at_random(record: Any) -> Any:
    import random

    if record.value.startswith(b"!") or random.random() < 0.3:
        raise ValueError("no")
    return (record.offset, "x")


SLOW = pytest.mark.slow
Step = tuple[type, str]
# A driver ends before a step, or after it.
End = tuple[type, str, bool]
STEPS: list[Step] = [
    (VerdictStore, "files_of"),
    (VerdictStore, "publish"),
    (Sink, "write"),
    (Graveyard, "append"),
    (MemoryCommitTable, "append"),
    (Graveyard, "send"),
    (EachBatch, "_clean"),
]


def before(steps: list[Step]) -> list[End]:
    return [(owner, step, True) for owner, step in steps]


def after(steps: list[Step]) -> list[End]:
    return [(owner, step, False) for owner, step in steps]


@pytest.mark.parametrize(
    "ends",
    [
        # An end after a step leaves what one before the next step leaves, but for the last one.
        pytest.param([*before(STEPS), *after(STEPS[-1:])], id="before"),
        pytest.param(after(STEPS), id="after", marks=SLOW),
    ],
)
@pytest.mark.parametrize(
    "transactional",
    [
        pytest.param(False, id="immediate"),
        pytest.param(True, id="transactional", marks=SLOW),
    ],
)
def test_every_record_once_wherever_the_driver_ends(
    spark: SparkSession, tmp_path: Path, ends: list[End], transactional: bool
) -> None:
    # Deliveries are so many that only what always fails is given up.
    policy = RedeliveryPolicy(2, 0, 0)
    stage = Stage(spark, tmp_path, policy=policy, transactional=transactional)
    sink = Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        sink.write(keyrange.process(batch, at_random, "at long, text string"), batch_id)

    dead = _dead_after_crashes(stage, body, ends)
    assert sorted(sink.offsets + dead) == list(range(len(stage.log)))
    assert {0, 5, 10} <= set(dead)
    assert [c.batch_id for c in stage.store if c.batch_id >= 0] == list(range(stage.next_batch))
    assert {letter.offset for letter in stage.graves.sent} == set(dead)


def _dead_after_crashes(
    stage: Stage, body: Callable[[DataFrame, int], None], ends: list[End]
) -> list[int]:
    """A batch, one for each end that crashes there and is run again, and those that what is left
    takes; which offsets are dead letters then."""
    stage.log = [_sent(at, fails=at % 5 == 0) for at in range(12)]
    stage.run(body)
    for end in ends:
        # Each batch gives up what failed in the one before it.
        begin = len(stage.log)
        stage.log += [_sent(at, fails=at == begin) for at in range(begin, begin + 4)]
        batch_id = stage.plan()
        with pytest.MonkeyPatch.context() as patch:
            _crash_at(patch, end)
            with pytest.raises(Crash):
                stage.each_batch(body)(stage.batch(batch_id), batch_id)
        stage.each_batch(body)(stage.batch(batch_id), batch_id)
        stage.finish(batch_id)
    for _ in range(6):
        if done(stage.state):
            stage.run(body)
    return sorted(letter.offset for letter in stage.graves.letters)


def _sent(at: int, fails: bool) -> Sent:
    """A record of a key whose place no other has, which holds back nobody."""
    return Sent("k" * (1 + at // 10) + str(at % 10), "!" if fails else "v")


def _crash_at(patch: pytest.MonkeyPatch, end: End) -> None:
    """Let a method crash, once it has to do with the batch and not with its beginning."""
    owner, step, is_before = end
    whole: Callable[..., Any] = getattr(owner, step)

    def crashing(self: Any, *arguments: Any, **named: Any) -> Any:
        if step == "append" and owner is MemoryCommitTable and arguments[0].batch_id < 0:
            return whole(self, *arguments, **named)
        if not is_before:
            whole(self, *arguments, **named)
        raise Crash

    patch.setattr(owner, step, crashing)


def test_a_verdict_that_was_damaged_meanwhile_is_never_made_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, sink = Stage(spark, tmp_path), Sink()

    def body(batch: DataFrame, batch_id: int) -> None:
        sink.write(keyrange.process(batch, at_random, "at long, text string"), batch_id)

    stage.log = [Sent("a", "v")]
    batch_id = stage.plan()
    with monkeypatch.context() as patch:
        _crash_at(patch, (MemoryCommitTable, "append", True))
        with pytest.raises(Crash):
            stage.each_batch(body)(stage.batch(batch_id), batch_id)
    [part] = (stage.verdicts / "source-1" / "0").glob("*/part-*.parquet")
    part.unlink()
    with pytest.raises(KeyrangeError, match=r"\[VERDICT_DAMAGED\].*is not there"):
        stage.each_batch(body)(stage.batch(batch_id), batch_id)


@pytest.mark.parametrize(
    ("option", "changed"),
    [
        ("commit.isolation", {"transactional": True}),
        ("unmentioned", {"unmentioned_is_done": False}),
    ],
)
def test_a_verdict_is_not_read_under_other_options(
    spark: SparkSession, tmp_path: Path, option: str, changed: dict[str, bool]
) -> None:
    stage, sink, crashes = Stage(spark, tmp_path), Sink(), True

    def body(batch: DataFrame, batch_id: int) -> None:
        output = keyrange.process(batch, at_random, "at long, text string")
        if crashes:
            raise Crash
        sink.write(output, batch_id)

    stage.log = [Sent(f"k{at}", "v") for at in range(12)]
    batch_id, options = stage.plan(), stage.options
    with pytest.raises(Crash):
        stage.each_batch(body)(stage.batch(batch_id), batch_id)
    crashes = False
    stage.options = replace(options, commits=replace(options.commits, **changed))
    with pytest.raises(KeyrangeError, match=rf"\[BATCH_UNFINISHED\] option {option} was"):
        stage.each_batch(body)(stage.batch(batch_id), batch_id)
    assert not sink.batches
    stage.options = options
    stage.each_batch(body)(stage.batch(batch_id), batch_id)
    assert sorted(sink.offsets + list(done(stage.state))) == list(range(12))
