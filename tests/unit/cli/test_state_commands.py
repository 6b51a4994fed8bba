"""`keyrange state`: what it says of states that are gone, and what it leaves where it fails."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

import keyrange
from commands import commanding
from keyrange.cli.state.verify import _options
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.partition_progress import PendingRecord, fresh
from keyrange.keyed_state.variables import StateForm, variables_of
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.model.subscription import Assign
from keyrange.model.timers import UNKNOWN, NextTimer
from keyrange.model.watermarks import PartitionTime
from keyrange.options import parse_options
from keyrange.storage import directory
from tables.state_commits import AT, NOW_MS, StateCommits

OTHER = TopicPartition("flights", 1)


@pytest.fixture
def query(tmp_path: Path) -> StateCommits:
    """Of two partitions that have state."""
    made = StateCommits(tmp_path)
    made.commit(CommitKind.FENCE)
    made.batch(0, [{"key": b"a", "n": {"n": 1}}, {"key": b"b", "n": {"n": 2}}])
    made.batch(1, [{"key": b"a", "n": {"n": 3}}], OTHER)
    return made


def test_state_that_a_reset_took_back_to_none_is_gone(query: StateCommits) -> None:
    query.commit(CommitKind.RESET, states={AT: fresh("id", 0)}, runs={AT: ()}, who="ann")
    found = commanding.document("state", "diff", query.path, "--from", 3)
    assert (found["new"], found["changed"], found["gone"]) == (0, 0, 2)
    assert {row["key"]: row["after"] for row in found["rows"]} == {"a": None, "b": None}
    rows = commanding.document("state", "history", query.path, "--key", "a")["rows"]
    told = [(row["seq"], row["partition"], row["state"]) for row in rows]
    assert told == [(4, 0, None), (3, 1, {"n": 3}), (2, 0, {"n": 1})]


def test_it_is_said_when_timers_fire_and_fire_again(query: StateCommits) -> None:
    """Nobody knows when they are due behind a reset."""
    timers = {
        "2026-05-28T20:28:40.000+00:00": NextTimer(SPACE, (NOW_MS + 60_000) * 1000, NOW_MS),
        None: UNKNOWN[0],
    }
    for number, (due, timer) in enumerate(timers.items(), 2):
        known = query.table.known()
        times = {AT: PartitionTime(None, (timer,), late=5)}
        runs = {AT: known.runs[AT]}
        begun = fresh("id", 9)
        piece = replace(begun.pieces[0], pending=(PendingRecord(4, 5),))
        states = {AT: replace(begun, pieces=(piece,))}
        query.commit(CommitKind.BATCH, number, states=states, runs=runs, times=times)
        shown, other = commanding.document("state", "show", query.path)["partitions"]
        assert (shown["watermark"], shown["next_timer"]) == (None, due)
        assert (other["next_timer"], other["next_retry"]) == (None, None)
        assert [(each["late"], each["pending"]) for each in (shown, other)] == [(5, 1), (0, 0)]
        told = commanding.text("state", "show", query.path)
        assert "late" in told
        assert "n: value of n bigint" in told
        assert "timer_retry: keyrange's own, of a timer that failed" in told
        assert (shown["next_retry"] is None) == (due is None)


def form_of(schema: str, ttl: str | None = None) -> StateForm:
    return StateForm(variables_of({"n": keyrange.ValueState(schema, ttl)}))


def test_what_expired_since_was_there_then(tmp_path: Path) -> None:
    query = StateCommits(tmp_path)
    query.form = form_of("n long", "1s")
    for number in range(2):
        row = {"key": b"a", "n": {"n": number}, "n_expires_ms": NOW_MS + 1_000}
        query.batch(number, [row])
    rows = commanding.document("state", "history", query.path, "--key", "a")["rows"]
    assert [(row["seq"], row["state"]) for row in rows] == [(2, {"n": 1}), (1, {"n": 0})]
    found = commanding.document("state", "diff", query.path, "--from", 1)
    assert [(row["before"], row["after"]) for row in found["rows"]] == [({"n": 0}, None)]


def test_a_field_that_was_added_and_nan_are_no_change(tmp_path: Path) -> None:
    query = StateCommits(tmp_path)
    query.form = form_of("n double")
    query.batch(0, [{"key": b"a", "n": {"n": math.nan}}])
    query.form = form_of("n double, m long")
    query.batch(1, [{"key": b"b", "n": {"n": math.nan, "m": 1}}])
    found = commanding.document("state", "diff", query.path, "--from", 1)
    assert (found["new"], found["changed"], found["gone"]) == (1, 0, 0)
    assert found["rows"][0]["after"] == {"n": {"n": "nan", "m": 1}}
    rows = commanding.document("state", "history", query.path, "--key", "a")["rows"]
    assert [row["seq"] for row in rows] == [1]


def test_a_log_is_read_with_all_options_of_a_query() -> None:
    """Those of a stream, which a batch read refuses, stay out."""
    own = {"commitTable": "/c", "stateDirectory": "/s", "deadLetterTable": "/d", "Assign": "{}"}
    own |= {"commitMode": "individual", "startingTimestamp": "5", "valueFormat": "json"}
    own |= {"valueSchema": "n int", "kafka.bootstrap.servers": "h:1", "badValues": "deadLetter"}
    place = TopicPartition("t", 1)
    options = parse_options(_options(own, {place: OffsetRange(3, 9)}), "batch")
    assert (options.values.format, options.values.bad) == ("json", "null")
    assert options.include_key_hash
    assert isinstance(options.subscription, Assign)


def test_an_export_goes_to_a_store_by_the_settings_of_options(
    query: StateCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opened = LocalStore(tmp_path / "lake", mkdir=True), []
    monkeypatch.setattr(directory, "open_store", lambda *given: opened.append(given) or store)
    to = ("--to", "s3://lake/out/state.parquet", "--option", "objectStore.aws_region=x")
    commanding.succeed("state", "export", query.path, *to)
    [(place, settings)] = opened
    assert (place, settings["aws_region"]) == ("s3://lake/out", "x")
    rows = pq.read_table(tmp_path / "lake" / "state.parquet").select(["partition", "key"])
    assert sorted(map(tuple, (row.values() for row in rows.to_pylist()))) == [
        (0, b"a"),
        (0, b"b"),
        (1, b"a"),
    ]
    again = commanding.run("state", "export", query.path, *to)
    assert "is there already" in str(again.exception)
    wrong = commanding.run("state", "export", query.path, "--to", "foo://lake/state.parquet")
    assert "INVALID_OPTIONS" in str(wrong.exception)


def test_an_export_that_fails_leaves_no_file(query: StateCommits, tmp_path: Path) -> None:
    """It would be a Parquet file of some of the keys, which `state import` takes."""
    query.batch(2, [{"key": b"c", "n": {"n": 4}}])
    [run] = query.table.known().runs[OTHER]
    (tmp_path / "commits_state" / run.file).unlink()
    to = tmp_path / "state.parquet"
    assert "STATE_GONE" in str(commanding.run("state", "export", query.path, "--to", to).exception)
    assert not to.exists()
