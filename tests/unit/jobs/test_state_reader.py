"""`keyrange.state_reader`: of which source, and of which partition, it shows state."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.jobs import state_reader as module
from keyrange.jobs.state_reader import StateReader
from keyrange.keyed_state import cache
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from tables.state_commits import AT, NOW_MS, StateCommits


@pytest.fixture
def query(tmp_path: Path) -> StateCommits:
    made = StateCommits(tmp_path)
    made.commit(CommitKind.FENCE)
    made.batch(0, [{"key": b"a", "n": {"n": 1}}])
    return made


@pytest.fixture
def reader(query: StateCommits, tmp_path: Path) -> Iterator[StateReader]:
    with keyrange.state_reader(query.path, copies=tmp_path / "copies", follow_ms=0) as made:
        yield made


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of this machine: two hours before UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "EARLY-2")
        time.tzset()
        yield
    time.tzset()


def test_the_past_is_that_of_the_source_that_is_shown(
    query: StateCommits, reader: StateReader, tmp_path: Path
) -> None:
    """Another checkpoint has gone on with the group, and its commits have the same numbers."""
    then = StateCommits(tmp_path, "then")
    then.commit(CommitKind.FENCE)
    then.batch(0, [{"key": b"a", "n": {"n": 2}}])
    assert reader.get("a") == {"n": 1}
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    for at in (reader.seq, now):
        assert reader.as_of(at).get("a") == {"n": 1}
        assert reader.as_of(at).as_of(reader.seq).get("a") == {"n": 1}


@pytest.mark.usefixtures("zone")
def test_a_time_without_a_zone_is_utc(reader: StateReader) -> None:
    """As everywhere: in local time the commit would be two hours off."""
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert reader.as_of(now.replace(tzinfo=None)).seq == 2


def test_a_time_of_long_ago_is_found_by_a_few_commits(
    query: StateCommits, reader: StateReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a commit a second."""
    for _ in range(30):
        query.commit(CommitKind.FENCE)
    read = []
    whole = DeltaCommitTable.history

    def history(*given: Any) -> Iterator[Commit]:
        for each in whole(*given):
            read.append(each.seq)
            yield each

    monkeypatch.setattr(DeltaCommitTable, "history", history)
    long_ago = datetime.fromtimestamp(NOW_MS / 1000 - 1, UTC)
    with pytest.raises(KeyrangeError, match="INVALID_OPTIONS"):
        reader.as_of(long_ago)
    assert 0 < len(read) <= 6


def test_a_checkpoint_that_has_only_begun_shows_nothing_yet(
    reader: StateReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REOPEN_S", 0.0)
    then = StateCommits(tmp_path, "then")
    then.commit(CommitKind.FENCE)
    reader.refresh()
    assert reader.get("a") == {"n": 1}
    then.batch(0, [{"key": b"a", "n": {"n": 2}}])
    reader.refresh()
    assert reader.get("a") == {"n": 2}


@pytest.mark.parametrize("is_shared", [False, True])
def test_copies_of_runs_that_are_over_go_and_those_in_use_stay(
    query: StateCommits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    """Also where executors would have theirs: on a host without any nobody else removes them."""
    monkeypatch.setattr(cache, "_looked", {})
    home = tmp_path / "copies"
    options = {"slot.directory": str(home)} if is_shared else {}
    own = None if is_shared else home
    with keyrange.state_reader(query.path, copies=own, options=options, follow_ms=0) as reader:
        reader.refresh()
        [first] = home.rglob("*.arrow")
        aged(home, 2 * 86_400)
        cache._looked.clear()
        query.batch(1, [{"key": b"b", "n": {"n": 2}}])
        reader.refresh()
        copies = {*home.rglob("*.arrow")}
        assert first in copies, "it is open, and somebody who starts anew would read it anew"
        assert len(copies) == 2
        aged(home, 3_600)
        seq = query.table.known().seq + 1
        merged = query.written([{"key": b"a", "n": {"n": 3}}], seq)
        runs, states = {AT: (merged,)}, {AT: fresh("id", seq)}
        query.commit(CommitKind.BATCH, 2, states=states, runs=runs)
        reader.refresh()
        [only] = home.rglob("*.arrow")
        assert only not in copies
        assert reader.get("a") == {"n": 3}


def aged(home: Path, seconds: float) -> None:
    for path in home.rglob("*.arrow"):
        os.utime(path, (time.time() - seconds,) * 2)


def test_partitions_that_share_state_all_have_it(query: StateCommits, reader: StateReader) -> None:
    other = TopicPartition("airports", 0)
    query.commit(
        CommitKind.BATCH,
        1,
        states={AT: fresh("id", 1), other: fresh("id", 1)},
        runs=query.table.known().runs,
        terms=CommitSettings(state_topic=AT.topic),
    )
    reader.refresh()
    for partition in (AT, other):
        assert reader.get("a", partition=partition) == {"n": 1}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda reader: reader.get_many("ab"), "keys are several, as in a list, and not 'ab'"),
        (lambda reader: reader.get_many(b"ab"), "keys are several, as in a list, and not b'ab'"),
        (lambda reader: reader.get_many(7), "keys are several, as in a list, and not 7"),
        (lambda reader: reader.get("a", variables=7), "variables are several"),
        (lambda reader: reader.scan(limit=-1), "limit is a number of keys, and not -1"),
        (lambda reader: reader.scan(limit="5"), "limit is a number of keys, and not '5'"),
        (
            lambda reader: reader.get("a", f"{AT}"),
            r"a partition is \('orders', 3\), and not 'flights-0'",
        ),
    ],
)
def test_an_argument_that_is_none_is_refused(
    reader: StateReader, ask: Callable[[StateReader], object], said: str
) -> None:
    with pytest.raises(KeyrangeError, match=rf"\[INVALID_OPTIONS\] {said}"):
        ask(reader)


def test_an_option_that_is_none_is_not_passed_over(query: StateCommits) -> None:
    with pytest.raises(KeyrangeError, match=r"'stateDirektory' does not exist"):
        keyrange.state_reader(query.path, options={"stateDirektory": "/x"})
