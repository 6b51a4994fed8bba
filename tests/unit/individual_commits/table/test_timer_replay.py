"""Timers that were given up are set again in the state of their keys, once for each letter."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import keyrange
from commands import commanding
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table import dead_letter_replay
from keyrange.individual_commits.table.commit_admin import Commits, open_commits
from keyrange.individual_commits.table.dead_letters import TimerLetter, open_dead_letters
from keyrange.individual_commits.table.keyed_state_rows import StoredState
from keyrange.model.timers import UNKNOWN
from keyrange.model.watermarks import Watermark
from tables.state_commits import AT, AT_US, NOW_MS, StateCommits


class Query(StateCommits):
    """A query that has given timers up, stopped."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.letters = open_dead_letters(self.options)

    def gives_up(self, batch_id: int, *timers: tuple[bytes, int]) -> None:
        letter = TimerLetter(
            group="g",
            source_id="s",
            query_id="q",
            batch_id=batch_id,
            topic=AT.topic,
            topic_id="id",
            partition=AT.partition,
            key=b"",
            timer_at_us=0,
            error="ValueError: no",
            attempts=5,
        )
        told = [replace(letter, key=key, timer_at_us=at_us) for key, at_us in timers]
        self.letters.append("s", batch_id, told, NOW_MS)

    def replay(self, *arguments: str) -> Any:
        line = ["deadletters", "replay", self.path, "--all", "--confirm", *arguments]
        return commanding.document(*line)

    def counted(self) -> int:
        found: int = commanding.document("commits", "show", self.path)["dead_timers"]
        return found

    def listed(self, status: str, *more: str) -> list[dict[str, Any]]:
        line = ["deadletters", "list", self.path, "--status", status, "--output", "json", *more]
        timers: list[dict[str, Any]] = json.loads(commanding.text(*line))["timers"]
        return timers

    def state(self) -> dict[bytes, Any]:
        known = self.table.known()
        stored = StoredState(f"{self.path}_state", known.runs, NOW_MS)
        found: dict[bytes, Any] = {}
        for block in stored.rows(AT):
            at = block.schema.get_field_index("timers")
            column = block.column(at).cast(pa.list_(pa.int64()))
            found |= {row["key"]: row for row in block.set_column(at, "timers", column).to_pylist()}
        return found


@pytest.fixture
def query(tmp_path: Path) -> Query:
    made = Query(tmp_path)
    made.commit(CommitKind.FENCE)
    made.commit(CommitKind.BATCH, 0, states={AT: fresh("id", 1)})
    retry = {"deliveries": 3, "due_ms": NOW_MS + 9, "clock_us": AT_US + 9}
    made.batch(
        1,
        [
            {"key": b"a", "n": {"n": 1}, "timers": [AT_US + 7]},
            {"key": b"b", "n": {"n": 2}, "timers": [AT_US + 5], "timer_retry": retry},
        ],
    )
    made.gives_up(1, (b"a", AT_US), (b"b", AT_US + 3), (b"new", AT_US + 1))
    return made


def test_the_querys_own_options_say_where_dead_letters_are(query: Query, tmp_path: Path) -> None:
    Path(f"{query.path}_dead_letters").rename(tmp_path / "theirs")
    own = ("--option", f"deadLetterTable={tmp_path / 'theirs'}")
    of_another = (*own, "--option", "commitGroup=another")
    assert [len(query.listed("all", *each)) for each in ((), own, of_another)] == [0, 3, 0]
    replay = ("deadletters", "replay", query.path, "--all", *of_another)
    assert "holds no such source" in commanding.refusal(*replay)
    assert len(query.replay(*own)["timers"]) == 3


def test_timers_are_set_again_in_the_state_of_their_keys(query: Query) -> None:
    assert query.counted() == 3
    found = query.replay()
    assert [each["key"] for each in found["timers"]] == ["a", "new", "b"]
    assert query.counted() == 0
    state = query.state()
    assert (state[b"a"]["n"], state[b"a"]["timers"]) == ({"n": 1}, [AT_US, AT_US + 7])
    assert (state[b"new"]["n"], state[b"new"]["timers"]) == (None, [AT_US + 1])
    assert state[b"b"]["timers"] == [AT_US + 3, AT_US + 5]
    # The tries were of another timer.
    assert (state[b"b"]["timer_retry"]["deliveries"], state[b"a"]["timer_retry"]) == (0, None)
    # The next batch looks for what is due, by the clock that was.
    time = query.table.known().times[AT]
    assert (time.watermark, time.timers) == (Watermark(AT_US, 0), UNKNOWN)


def test_no_timer_is_set_twice_for_one_letter(query: Query) -> None:
    assert query.replay()["written"] == 4
    again = query.replay()
    assert (again["written"], again["timers"], again["timers_left"]) == (None, [], [])
    listed = query.listed("replayed")
    assert {each["replayed_to"] for each in listed} == {"commit 4"}
    # Given up once more it has another letter.
    query.batch(2, [{"key": b"a", "n": {"n": 1}, "timers": [AT_US + 7]}])
    query.gives_up(2, (b"a", AT_US))
    assert [each["key"] for each in query.replay()["timers"]] == ["a"]


def test_a_replay_that_ended_before_its_commit_has_set_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dead_letter_replay, "write_reset", ends)
        with pytest.raises(KeyboardInterrupt):
            keyrange.replay_dead_letters(query.path)
    assert len(query.listed("dead")) == 3
    assert keyrange.replay_dead_letters(query.path) == 3
    assert keyrange.replay_dead_letters(query.path) == 0


@pytest.mark.parametrize("nothing", [{"offsets": []}, {"topic": ""}])
def test_no_places_are_not_all_of_them(query: Query, nothing: dict[str, Any]) -> None:
    assert keyrange.replay_dead_letters(query.path, **nothing) == 0
    assert len(query.listed("dead")) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": 7}, "topic is a text, and not 7"),
        ({"partition": "0"}, "partition is a whole number, and not '0'"),
        ({"offsets": 5}, "offsets are whole numbers, and not 5"),
        ({"offsets": "5"}, "offsets are whole numbers, and not '5'"),
    ],
)
def test_a_place_that_is_none_is_refused(query: Query, given: dict[str, Any], said: str) -> None:
    with pytest.raises(KeyrangeError, match=rf"\[INVALID_OPTIONS\].*{said}"):
        keyrange.replay_dead_letters(query.path, **given)


def test_letters_that_the_state_does_not_have_are_left(query: Query) -> None:
    """A batch that is not committed, and one whose state a reset took back."""
    query.gives_up(2, (b"c", AT_US))
    [left] = query.replay("--error", "no")["timers_left"]
    assert (left["key"], left["why"]) == ("c", "the batch that gave it up is not committed yet")
    query.commit(CommitKind.RESET, states={AT: fresh("id", 1)}, runs={AT: ()})
    said = query.replay()["timers_left"]
    assert {each["key"]: each["why"] for each in said} == {
        "a": "the state of its key was set back since, and the timer fires by itself",
        "b": "the state of its key was set back since, and the timer fires by itself",
        "new": "the state of its key was set back since, and the timer fires by itself",
        "c": "the batch that gave it up is not committed yet",
    }


def test_a_replay_that_a_reset_took_back_can_be_done_again(query: Query) -> None:
    before = query.table.known().runs
    query.replay()
    query.commit(CommitKind.RESET, states={AT: fresh("id", 3)}, runs=before)
    assert len(query.replay()["timers"]) == 3
    assert query.replay()["timers"] == []


def test_offsets_choose_records_alone(query: Query) -> None:
    line = ["deadletters", "replay", query.path, "--topic", AT.topic, "--partition", "0"]
    found = commanding.document(*line, *shlex.split("--offset 7 --confirm"))
    assert (found["timers"], found["written"]) == ([], None)
    commits: Commits = open_commits(query.path, "", "", {})
    assert commits.table.known().seq == 3


def test_who_names_no_checkpoint_is_told_of_the_batch_that_may_be_open(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.batch(0, [{"key": b"a", "n": {"n": 1}}])
    query.gives_up(0, (b"a", AT_US))
    told = commanding.succeed("deadletters", "replay", query.path, "--all")
    assert "--checkpoint LOCATION refuses while there is one" in told.output
