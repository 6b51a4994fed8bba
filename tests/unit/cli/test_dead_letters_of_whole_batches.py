"""`keyrange deadletters` on a table of dead letters that has no commit table."""

from __future__ import annotations

from pathlib import Path

from commands import commanding
from keyrange.individual_commits.table.dead_letters import DeadLetter, open_dead_letters
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause


def test_they_are_listed_and_not_replayed(tmp_path: Path) -> None:
    table = str(tmp_path / "dead")
    letter = DeadLetter(
        group="default",
        source_id="source-1",
        query_id="query-1",
        batch_id=3,
        topic="flights",
        topic_id="",
        partition=0,
        offset=4,
        key=None,
        value=b"{",
        error="value: no JSON",
        cause=Cause.UNREADABLE,
        attempts=1,
    )
    options = CommitOptions(dead_letter_table=table)
    open_dead_letters(options).append("source-1", 3, [letter], 1_700_000_000_000)
    [found] = commanding.document("deadletters", "list", table)
    assert (found["offset"], found["cause"]) == (4, "unreadable")
    assert commanding.document("deadletters", "show", table, "flights-0:4") == [found]
    text = commanding.refusal("deadletters", "replay", table, "--all")
    assert "commit whole batches do not have" in text
