"""`keyrange deadletters` of timers that were given up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import commanding
from keyrange.individual_commits.table.dead_letters import TimerLetter, open_dead_letters
from keyrange.options.commits import CommitOptions

AT_MS = 1_780_000_000_000
TIMER = TimerLetter(
    group="g",
    source_id="s",
    query_id="q",
    batch_id=4,
    topic="flights",
    topic_id="id",
    partition=0,
    key=b"N14228",
    timer_at_us=AT_MS * 1000 + 7,
    error="ValueError: no\x1b[2J",
    frames=("flights.py, line 30, in gone",),
    attempts=5,
    last_at_ms=AT_MS,
)


def test_timers_that_were_given_up_are_named(tmp_path: Path) -> None:
    table = str(tmp_path / "letters")
    letters = open_dead_letters(CommitOptions(dead_letter_table=table))
    letters.append("s", 4, [TIMER], AT_MS + 11_000)

    def read(command: str, *arguments: str) -> Any:
        told = commanding.run("deadletters", command, table, *arguments, "--output", "json")
        return json.loads(told.stdout)

    [timer] = read("list")["timers"]
    shown = read("show", "flights-0", "--key", "N14228")
    assert (shown["timers"], shown["dead_letters"]) == ([timer], [])
    assert timer["timer_at"] == "2026-05-28T20:26:40.000007+00:00"
    assert (timer["key"], timer["attempts"], timer["cause"]) == ("N14228", 5, "rejected")
    assert read("list", "--status", "replayed")["timers"] == []
    for told in (["list", table], ["show", table, "flights-0", "--key", "N14228"]):
        text = commanding.run("deadletters", *told).stdout
        assert all(each in text for each in ("N14228", "ValueError: no", "20:26:40"))
        assert "\x1b" not in text
    said = commanding.refusal("deadletters", "show", table, "flights-0", "--key", "other")
    assert "no timer of this key was given up in flights-0" in said
