"""Batches in which records fail: the line of the log, and how many may fail."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError
from keyrange.individual_commits import api, reported_outcomes
from keyrange.individual_commits import each_batch as module
from keyrange.individual_commits.batch_failure_limit import Worked, check_failures
from keyrange.individual_commits.batch_in_checkpoint import Planned
from keyrange.individual_commits.batch_run import current
from keyrange.individual_commits.dead_letter_sink import LettersOfWholeBatches
from keyrange.individual_commits.each_batch import EachBatch
from keyrange.individual_commits.last_batch_results import result_of
from keyrange.individual_commits.model.batch_results import BatchResult, Failure
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.pending_errors import PendingErrors, pending_errors
from keyrange.individual_commits.table_output import BatchOutput, TableOutput
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.work.appended_files import HANDED_ON
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import member_rows, other_rows
from tables.commit_tables import MemoryCommitTable
from tables.committing import commit_states

FORM = StructType([]).jsonValue()

PLACE = TopicPartition("t", 0)
# Nobody looks at the frame of a verdict's rows.
FILES = SimpleNamespace(parquet=lambda *_: None)
READER = SimpleNamespace(schema=lambda _: SimpleNamespace(options=lambda **_: FILES))
NOTHING: Any = SimpleNamespace(isEmpty=lambda: True, sparkSession=SimpleNamespace(read=READER))
SECRET = "KeyError: 's3cret'"


class Batch:
    """Batch 5 of a query: 100 records, or those that were pending before, and what its job says."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, pending: int = 0) -> None:
        self.home, self.table = home, MemoryCommitTable("s")
        self.until = 0 if pending else 100
        start, mark = Checkpoint({PLACE: 0}), CommitMark("s", 0)
        if pending:
            records = tuple(PendingRecord(at, at, 1) for at in range(pending))
            state = PartitionState("", 100, (KeyRangeState(SPACE, 100, records),))
            commit_states(self.table.store, "s", {PLACE: state})
            seq = self.table.known().seq
            start, mark = Checkpoint({PLACE: 100}), CommitMark("s", seq, due_ms=10**15)
        end = Checkpoint({PLACE: 101 if pending else 100}, commits=mark)
        planned = Planned(f"query of {home}", 5, start, end, 4)
        monkeypatch.setattr(module, "read_planned", lambda *_: planned)
        monkeypatch.setattr(reported_outcomes, "handed_on", lambda batch: batch.rows())
        self.sink: Any = SimpleNamespace(
            uri="/sink",
            keys=(),
            evolves=False,
            prepare=lambda *_, **__: True,
            check_restored=lambda _: None,
            table_id=str,
            append=lambda *_, **__: None,
        )
        self.query_id = planned.query_id

    def run(
        self, done: int, errors: Sequence[str | None], tombstones: int = 0, **options: str
    ) -> None:
        """`errors` are those of the first records, None of one that waits."""

        def rows() -> Any:
            attempt, path = current("the test").store.new_attempt(5)
            outcomes = [
                {
                    "topic": "t",
                    "partition": 0,
                    "offset": at,
                    "key_hash": at,
                    "cause": int(Cause.HELD_BACK if text is None else Cause.REJECTED),
                    "error": text,
                }
                for at, text in enumerate(errors)
            ]
            Path(path).mkdir(parents=True)
            file = Path(path) / "part-0.parquet"
            batch = other_rows(pa.schema([]), member_rows("outcome", outcomes))
            pq.write_table(pa.Table.from_batches([batch]), file)
            found: Any = {member: [] for member in HANDED_ON}
            found["outcome_file"].append((attempt, file.name, file.stat().st_size, None))
            found["done"].append(("t", 0, done))
            found["tombstones"].append(("t", 0, tombstones))
            return found

        def job(*_: Any) -> None:
            current("the test").write_verdict(
                BatchOutput({"": TableOutput(self.sink, FORM, "")}, None, {})
            )

        given = {
            "kafka.bootstrap.servers": "h:9",
            "subscribe": "t",
            "commitMode": "individual",
            "commitTable": "/t",
            "verdictDirectory": str(self.home),
            "commitTable.onFreshStart": "ignore",
            **options,
        }
        parsed = parse_options(given, "stream")
        frame: Any = SimpleNamespace(**vars(NOTHING), rows=rows)
        EachBatch(job, parsed, "/c", open_table=lambda *_: self.table)(frame, 5)

    @property
    def is_committed(self) -> bool:
        return any(each.kind is CommitKind.BATCH for each in self.table.store[1:])


def test_one_line_says_what_failed_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.run(96, [SECRET, None, SECRET, "ValueError: s3cret"])
    [line] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert line == (
        "batch 5: 3 records failed, 0 of them for the last time, and 1 wait for them: "
        "KeyError 2 (such as offset 0 of t-0), ValueError 1 (such as offset 3 of t-0)"
    )
    assert result_of(batch.query_id, 5) == BatchResult(96, 3, 1, 0, 4)
    kept = {at: each.text for at, each in pending_errors(str(tmp_path), "s").items()}
    assert kept == {(PLACE, 0): SECRET, (PLACE, 2): SECRET, (PLACE, 3): "ValueError: s3cret"}


def test_errors_that_cannot_be_kept_change_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    (tmp_path / "s" / "pending_errors.json").mkdir(parents=True)
    batch.run(99, [SECRET])
    assert batch.is_committed
    assert "batch 5 is committed; its errors cannot be told: " in caplog.text


def test_a_batch_in_which_nothing_fails_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.run(100, [])
    assert caplog.records == []
    assert result_of(batch.query_id, 5) == BatchResult(100, 0, 0, 0, 0)


def test_a_partition_that_is_not_in_the_batch_counts_and_keeps_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(tmp_path, monkeypatch, pending=1)
    other = TopicPartition("t", 1)
    [state] = batch.table.known().states.values()
    commit_states(batch.table.store, "s", {other: state})
    failed = [Failure(other, 0, Cause.REJECTED, SECRET)]
    PendingErrors(str(tmp_path), "s").update(columns_of({other: state}), failed)
    batch.run(1, [SECRET], **{"commitTable.onFreshStart": "resume"})
    assert result_of(batch.query_id, 5) == BatchResult(1, 1, 0, 0, 2)
    assert pending_errors(str(tmp_path), "s").keys() == {(PLACE, 0), (other, 0)}


def test_texts_of_a_column_are_no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that looks like the name of one may be a customer's."""
    plan = SimpleNamespace(
        commits=SimpleNamespace(transactional=False),
        deliveries=SimpleNamespace(holds_keys=False),
        keeps_offsets=False,
        settings=CommitSettings(null_keys="first"),
        terms=lambda **_: None,
        wants_mentions=False,
        works=dict,
    )
    run: Any = SimpleNamespace(
        plan=plan, said=False, errors_are_exceptions=True, check_first=lambda _: None
    )
    run.make_verdict = lambda *_, **__: None
    monkeypatch.setattr(api, "current", lambda _: run)
    names = ("topic", "partition", "offset", "keyHash", "why")
    schema = StructType()
    for name in names:
        schema = schema.add(name, "string")
    frame: Any = SimpleNamespace(columns=names, schema=schema)
    api.materialize(frame)
    assert run.errors_are_exceptions
    api.materialize(frame, "why")
    assert not run.errors_are_exceptions


def test_more_failures_than_may_be_stop_the_query_before_anything_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.sink.append = lambda *_, **__: pytest.fail("nothing is to be written")
    with pytest.raises(KeyrangeError) as raised:
        batch.run(79, [SECRET] * 21, maxFailureRatio="0.2")
    assert raised.value.condition.name == "TOO_MANY_FAILURES"
    assert raised.value.message == (
        "21 of 100 records failed, and maxFailureRatio is 0.2: "
        "KeyError 21 (such as offset 0 of t-0) (batch=5)"
    )
    assert not batch.is_committed
    # The next run calls the function again: here one that was corrected.
    batch.sink.append = lambda *_, **__: None
    batch.run(80, [SECRET] * 20, maxFailureRatio="0.2")
    assert result_of(batch.query_id, 5) == BatchResult(80, 20, 0, 0, 20)


@pytest.mark.parametrize(("done", "ratio"), [(0, "0.9"), (10**6, "0.0")])
def test_ten_failures_may_stop_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int, ratio: str
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    with pytest.raises(KeyrangeError, match="TOO_MANY_FAILURES"):
        batch.run(done, [SECRET] * 10, maxFailureRatio=ratio)


@pytest.mark.parametrize("errors", [[SECRET] * 9, [SECRET] * 9 + [None] * 91])
def test_few_failures_stop_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: list[str | None]
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.run(0, errors, maxFailureRatio="0.2")
    assert batch.is_committed


def test_records_that_come_again_stop_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(tmp_path, monkeypatch, pending=20)
    batch.run(1, [SECRET] * 20, **{"maxFailureRatio": "0.0", "commitTable.onFreshStart": "resume"})
    assert batch.is_committed


def test_a_run_in_which_all_fail_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(tmp_path, monkeypatch)
    with pytest.raises(KeyrangeError, match=r"TOO_MANY_FAILURES.* 10 of 10 records failed, and by"):
        batch.run(0, [SECRET] * 10)
    assert not batch.is_committed
    batch.run(0, [SECRET] * 10, maxFailureRatio="1")
    assert batch.is_committed


def test_tombstones_are_no_records_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    told = r"10 of 12 records failed, and by default a run stops in which no record is done but tom"
    with pytest.raises(KeyrangeError, match=rf"TOO_MANY_FAILURES.* {told}"):
        batch.run(2, [SECRET] * 10, tombstones=2)
    assert not batch.is_committed
    batch.run(3, [SECRET] * 10, tombstones=2)
    assert batch.is_committed


@pytest.mark.parametrize(("done", "errors"), [(0, [SECRET] * 9), (1, [SECRET] * 99)])
def test_a_run_goes_on_that_has_done_records_or_seen_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int, errors: list[str | None]
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.run(done, errors)
    assert batch.is_committed


PROGRAM = [
    "NameError: name 'prise' is not defined (prices.py, line 12, in price)",
    "UnboundLocalError: cannot access local variable 'x' where it is not associated with a value",
    "ModuleNotFoundError: No module named 'prices'",
    "ImportError: cannot import name 'a' from 'b' (/srv/b.py)",
    "SyntaxError: invalid syntax",
    "AttributeError: module 'json' has no attribute 'load5'",
    "AttributeError: 'KeyState' object, with total, has no attribute 's3cret'",
    "AttributeError: state.total cannot be set: call its update, put or append",
    "AttributeError: 'Record' object has no attribute 's3cret'",
    "AttributeError: 'ValueRow' object, with id, price, has no attribute 's3cret'",
    "RuntimeError: the job has no on_timer: give keyrange.job the function",
    "TypeError: price() missing 1 required positional argument: 'rate'",
    "TypeError: price() takes 1 positional argument but 2 were given",
    "TypeError: Order.__init__() got an unexpected keyword argument 's3cret'",
]


@pytest.mark.parametrize("error", PROGRAM)
def test_an_error_of_the_program_stops_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    with pytest.raises(KeyrangeError, match="FUNCTION_FAILED") as raised:
        batch.run(1, [error, SECRET, error, error])
    assert "3 of the first 5 records ended in an error of the program" in str(raised.value)
    assert "offset=0" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    if error is PROGRAM[0]:
        assert f": {error} (partition=" in str(raised.value)
    assert not batch.is_committed


@pytest.mark.parametrize(
    "errors",
    [
        PROGRAM[:1],
        ["AttributeError: 'NoneType' object has no attribute 'x'"] * 2,
        ["TypeError: unsupported operand type(s) for +: 'int' and 'str'"] * 2,
    ],
)
def test_what_unusual_records_raise_stops_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: list[str | None]
) -> None:
    batch = Batch(tmp_path, monkeypatch)
    batch.run(1, errors)
    assert batch.is_committed
    # A user who says that all may fail is taken at his word.
    other = Batch(tmp_path / "other", monkeypatch)
    other.run(0, [PROGRAM[0]] * 100, maxFailureRatio="1")
    assert other.is_committed


def test_later_batches_count_with_those_before() -> None:
    failures = [Failure(PLACE, 4, Cause.REJECTED, PROGRAM[0])]
    check_failures(7, None, Worked(5, 0), Worked(4, 0), lambda: failures)
    check_failures(7, None, Worked(50, 0), Worked(4, 1), lambda: failures)
    with pytest.raises(KeyrangeError, match=r"10 of 10 records.*prices.py, line 12, in price"):
        check_failures(7, None, Worked(6, 0), Worked(4, 0), lambda: failures)


def test_whole_batches_stop_where_no_record_of_a_run_can_be_read() -> None:
    given = {"valueFormat": "json", "valueSchema": "id int", "badValues": "deadLetter"}
    own = {"kafka.bootstrap.servers": "h:9", "subscribe": "t", "deadLetterTable": "/dead"}
    unread = Failure(PLACE, 4, Cause.UNREADABLE, "value: field id", is_exception=False)

    def work(letters: LettersOfWholeBatches, failed: int, done: int, tombstones: int = 0) -> None:
        store: Any = SimpleNamespace(failures_in=lambda _: [unread] * failed)
        rows = {"done": [("t", 0, done)] * bool(done)}
        rows["tombstones"] = [("t", 0, tombstones)] * bool(tombstones)
        letters.check(store, Manifest(3, rows=rows))

    letters = LettersOfWholeBatches(parse_options(given | own, "stream"))
    work(letters, 9, 0)
    with pytest.raises(KeyrangeError, match=r"TOO_MANY_FAILURES.*10 of 10 records.*unreadable 1"):
        work(letters, 1, 0)
    letters.begin()
    work(letters, 5, 1, tombstones=1)
    with pytest.raises(KeyrangeError, match=r"TOO_MANY_FAILURES.*999 of 1,001 records.*tombstones"):
        work(letters, 994, 1, tombstones=1)
    letters.begin()
    work(letters, 9, 0)
    work(letters, 90, 1)
    work(letters, 90, 0)
    limited = LettersOfWholeBatches(parse_options(given | own | {"maxFailureRatio": "0.1"}))
    work(limited, 10, 90)
    with pytest.raises(KeyrangeError, match=r"11 of 101 records .*maxFailureRatio is 0.1"):
        work(limited, 11, 90)
