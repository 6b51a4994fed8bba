"""Which errors keep records pending, as far as known: `commits gaps`, `commits show`, reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commands import commanding
from keyrange.cli.commits.commit_source import errors_of
from keyrange.individual_commits.model.batch_results import Failure
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.pending_errors import PendingErrors
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause
from samples.commit_samples import SOURCE, Query, put_in_place
from samples.report_samples import Lake, read_at

PLACE = TopicPartition("flights", 0)
LONG = "s3cret" * 30
# What takes more room where it is shown than it has characters.
STEERING = "\x1b" * 40


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Records 3, 4 and 6 failed, 7 waits for one of them; of 6 no error is known. The option that
    names the directory with the errors."""
    query = Query(1, 1, fails=0.0)
    query.batch(10)
    records = (
        PendingRecord(3, 3, 1),
        PendingRecord(4, 4, 1),
        PendingRecord(6, 6, 1),
        PendingRecord(7, 3, 0, cause=Cause.HELD_BACK),
    )
    state = PartitionState("", 10, (KeyRangeState(SPACE, 10, records),))
    commit = query.table.store[-1]
    commit.states.clear()
    commit.states[PLACE] = state
    put_in_place(monkeypatch, query)
    texts = {
        3: "KeyError: 'pri\nce' (prices.py, line 12, in price)",
        4: f"KeyError: {STEERING}",
        7: f"KeyError: '{LONG}'",
    }
    failures = [Failure(PLACE, at, Cause.REJECTED, text) for at, text in texts.items()]
    PendingErrors(str(tmp_path), SOURCE).update(columns_of({PLACE: state}), failures)
    return "--option", f"verdictDirectory={tmp_path}"


def text(command: str, *arguments: object) -> str:
    return commanding.text("commits", command, "/t", *arguments)


def document(command: str, *arguments: object) -> Any:
    return commanding.document("commits", command, "/t", *arguments)


def test_gaps_shows_the_last_error_of_each_record(where: tuple[str, str]) -> None:
    errors = [row["error"] for row in document("gaps", *where)]
    assert errors[0] == "KeyError: 'pri\nce' (prices.py, line 12, in price)"
    assert errors[1:] == [f"KeyError: {STEERING}", None, f"KeyError: '{LONG}'"]
    shown = text("gaps", *where)
    assert "KeyError: 'pri ce'" in shown
    assert max(map(len, shown.splitlines())) <= 80
    # Those of earlier commits are not kept.
    assert {row["error"] for row in document("gaps", *where, "--at", 2)} == {None}


def test_gaps_shows_the_name_where_no_more_is_kept(
    where: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    location = where[1].partition("=")[2]
    monkeypatch.setattr("keyrange.individual_commits.pending_errors._TEXTS_MAX", 0)
    state = PartitionState("", 10, (KeyRangeState(SPACE, 10, (PendingRecord(3, 3, 1),)),))
    PendingErrors(location, SOURCE).update(columns_of({PLACE: state}), [])
    assert document("gaps", *where)[0]["error"] == "KeyError"


def test_show_counts_pending_records_by_their_errors(where: tuple[str, str]) -> None:
    found = [tuple(row.values()) for row in document("show", *where)["pending_by_error"]]
    assert found == [
        ("rejected", "KeyError", 2, "flights", 0, 3, "prices.py, line 12, in price"),
        ("held_back", None, 1, "flights", 0, 7, None),
        ("rejected", None, 1, "flights", 0, 6, None),
    ]
    lines = [" ".join(line.split()) for line in text("show", *where).splitlines()]
    begin = lines.index("error records such as")
    assert lines[begin + 1 : begin + 4] == [
        "KeyError 2 offset 3 of flights-0; prices.py, line 12, in price",
        "held back 1 offset 7 of flights-0",
        "rejected 1 offset 6 of flights-0",
    ]


def test_show_counts_by_cause_where_no_error_is_known(where: tuple[str, str]) -> None:
    rows = document("show", *where, "--at", 2)["pending_by_error"]
    assert [(row["cause"], row["error"], row["records"]) for row in rows] == [
        ("rejected", None, 3),
        ("held_back", None, 1),
    ]


def test_errors_are_beside_the_table_unless_an_option_says_where(tmp_path: Path) -> None:
    state = PartitionState("", 10, (KeyRangeState(SPACE, 10, (PendingRecord(3, 3, 1),)),))
    failed = [Failure(PLACE, 3, Cause.REJECTED, "KeyError")]
    commits = Commits(f"{tmp_path}/t/", SOURCE, Query().table)
    PendingErrors(f"{tmp_path}/t_verdicts", SOURCE).update(columns_of({PLACE: state}), failed)
    assert list(errors_of(commits, {})) == [(PLACE, 3)]
    for option in ("verdictDirectory", "VERDICTDIRECTORY"):
        assert errors_of(commits, {option: f"{tmp_path}/elsewhere"}) == {}


@pytest.mark.ordinary
def test_a_report_counts_them_too(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    failed = [
        Failure(partition, record.offset, Cause.REJECTED, "KeyError: 's3cret'")
        for partition, state in lake.query.states.items()
        for record in state.pending
    ]
    PendingErrors(f"{lake.commits}_verdicts", SOURCE).update(columns_of(lake.query.states), failed)
    facts = dict(read_at(lake.query.now_ms, **lake.places).state.facts)
    assert "KeyError " in facts["pending"]
    assert "s3cret" not in facts["pending"]
