"""`keyrange deadletters`: what it shows of records that were given up, and how they come again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import mmh3
import pytest
from typer.testing import Result

import keyrange
from commands import commanding
from commands.documents import read_document
from keyrange.cli.commits import reset as commits_reset
from keyrange.cli.commits import verify as commits_verify
from keyrange.cli.deadletters import commands as dead_letters
from keyrange.cli.deadletters import documents
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.offset_reset import reopen, rewind
from keyrange.individual_commits.table import commit_admin
from keyrange.individual_commits.table.commit_admin import open_commits, write_reset
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.individual_commits.table.dead_letter_replay import plan_replay
from keyrange.individual_commits.table.dead_letters import (
    DeadLetter,
    DeadLetters,
    open_dead_letters,
)
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.work.model.outcome import Cause
from samples.commit_samples import BEGAN_MS, GROUP, QUERY, SOURCE, TOPIC_ID, Query

A = TopicPartition("flights", 0)


def place_of(key: bytes | None, offset: int) -> int:
    text = offset.to_bytes(8, "big") if key is None else key
    return mmh3.hash64(text, 0, signed=False)[0] >> 1


def letter(offset: int, key: bytes | None = b"N14228", **fields: Any) -> DeadLetter:
    usual: dict[str, Any] = {
        "group": GROUP,
        "source_id": SOURCE,
        "query_id": QUERY,
        "batch_id": 3,
        "topic": "flights",
        "topic_id": TOPIC_ID,
        "partition": 0,
        "offset": offset,
        "key": key,
        "value": b'{"carrier":"UA"}',
        "headers": (("trace", b"\x00\xff"), ("trace", b"again"), ("none", None)),
        "timestamp_ms": BEGAN_MS,
        "error": "ValueError: no such carrier",
        "frames": ("flights.py, line 12, in carrier",),
        "cause": Cause.REJECTED,
        "attempts": 5,
        "first_at_ms": BEGAN_MS + 1_000,
        "last_at_ms": BEGAN_MS + 9_000,
    }
    return DeadLetter(**{**usual, **fields})


class Lake:
    """A commit table of one partition without pending records, and its dead letters."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "commits")
        self.options = CommitOptions(
            individual=True, table=self.path, dead_letter_table=f"{self.path}_dead_letters"
        )
        query = Query(1, 2, fails=0.0).run(5, 60)
        self.table = open_commit_table(self.options, SOURCE)
        for commit in query.table.store:
            self.table.append(commit)
        self.letters = [
            letter(40),
            letter(41, None, error="KeyError: 'x'\n  at line 3", cause=Cause.TIMED_OUT),
            letter(77, b"\xff\x1b[2J", value=b"v" * 9000, error="bad \x1b[2J"),
        ]
        self.store().append(SOURCE, 3, self.letters, BEGAN_MS + 10_000)

    def store(self) -> DeadLetters:
        return open_dead_letters(self.options)

    def run(self, command: str, *arguments: object) -> Result:
        return commanding.run("deadletters", command, self.path, *arguments)

    def document(self, command: str, *arguments: object) -> Any:
        return commanding.document("deadletters", command, self.path, *arguments)

    def offsets(self, *arguments: object) -> list[int]:
        return [row["offset"] for row in self.document("list", *arguments)]

    def refusal(self, command: str, *arguments: object) -> str:
        return commanding.refusal("deadletters", command, self.path, *arguments)

    def pending(self) -> dict[int, int]:
        return {record.offset: record.key_hash for record in self.table.known().states[A].pending}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for module in (dead_letters, commits_reset):
        monkeypatch.setattr(module, "now", lambda: BEGAN_MS + 60_000)
    return Lake(tmp_path)


def test_the_document_of_a_dead_letter(lake: Lake) -> None:
    first, second, third = lake.document("list")
    assert first == {
        "group": GROUP,
        "source_id": SOURCE,
        "query_id": QUERY,
        "batch_id": 3,
        "topic": "flights",
        "partition": 0,
        "offset": 40,
        "topic_id": TOPIC_ID,
        "timestamp": "2026-05-28T20:26:40.000+00:00",
        "key": "N14228",
        "value": '{"carrier":"UA"}',
        "headers": [["trace", {"hex": "00ff"}], ["trace", "again"], ["none", None]],
        "error": "ValueError: no such carrier",
        "frames": ["flights.py, line 12, in carrier"],
        "cause": "rejected",
        "attempts": 5,
        "first_at": "2026-05-28T20:26:41.000+00:00",
        "last_at": "2026-05-28T20:26:49.000+00:00",
        "written_at": "2026-05-28T20:26:50.000+00:00",
        "status": "dead",
        "replayed_by": None,
        "replayed_to": None,
    }
    assert second["key"] is None
    assert third["key"] == {"hex": "ff1b5b324a"}
    assert lake.document("show", "flights-0:40") == [first]


def test_a_list_can_be_narrowed(lake: Lake) -> None:
    assert lake.offsets() == [40, 41, 77]
    assert lake.offsets("--error", "valueerror") == [40]
    assert lake.offsets("--since", "49s") == []
    assert lake.offsets("--since", "51s") == [40, 41, 77]
    assert lake.offsets("--topic", "flights", "--partition", 0) == [40, 41, 77]
    assert lake.offsets("--topic", "trains") == lake.offsets("--group", "g") == []
    assert lake.offsets("--source", "source-") == [40, 41, 77]
    assert lake.offsets("--status", "dead") == [40, 41, 77]
    assert lake.offsets("--status", "replayed") == []
    result = lake.run("list", "--limit", 2, "--output", "json")
    assert len(read_document(result.stdout)) == 2
    assert "the first 2 of 3 dead letters" in result.stderr
    assert lake.run("list", "--partition", 0).exit_code == 2


def test_a_list_fits_a_terminal_and_does_not_move_its_cursor(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = lake.run("list").stdout
    assert "flights-0" in shown
    assert "ValueError: no such carrier" in shown
    assert "timed out" in shown
    assert r"bad \u001b[2J" in shown
    assert "\x1b" not in shown
    assert "KeyError: 'x' at line 3" in shown
    lines = shown.splitlines()
    assert lines.count('    value {"carrier":"UA"}') == 2
    assert f"    value {'v' * 37}..." in lines
    assert lake.run("list", "--topic", "trains").stdout == "no dead letters\n"
    many = [letter(at, b"k" * 99, batch_id=4, error="long " * 50) for at in range(5)]
    lake.store().append(SOURCE, 4, many, BEGAN_MS)
    monkeypatch.setattr(documents, "_ERROR_CHARACTERS", 80)
    assert max(map(len, lake.run("list").stdout.splitlines())) == 80


def test_one_is_shown_with_all_that_is_known(lake: Lake) -> None:
    shown = lake.run("show", "flights-0:40").stdout
    for text in ('{"carrier":"UA"}', "hex:00ff", "again", "N14228", "attempts", "header trace'"):
        assert text in shown
    bounded = lake.run("show", "flights-0:77", "--bytes", 3).stdout
    assert "vvv... (9,000 bytes)" in bounded
    assert "hex:ff1b5b... (5 bytes)" in bounded
    assert "\x1b" not in bounded
    assert "offset 39 of flights-0 is no dead letter" in lake.refusal("show", "flights-0:39")


@pytest.mark.parametrize(
    ("content", "most", "said"),
    [
        ("häß".encode(), 2, "h... (5 bytes)"),
        ("häß".encode(), 5, "häß"),
        (None, 1, "null"),
        (b"", 1, ""),
        (b"hex:00", 5, "hex:0... (6 bytes)"),
    ],
)
def test_text_is_cut_between_characters(content: bytes | None, most: int, said: str) -> None:
    assert documents._bounded(content, most) == said


def test_a_table_that_is_none_is_named(lake: Lake, tmp_path: Path) -> None:
    said = commanding.refusal("deadletters", "list", tmp_path / "nope")
    assert "there is no commit table at" in said
    said = lake.refusal("list", "--dead-letters", tmp_path / "nope")
    assert "there is no table of dead letters at" in said
    assert "FOREIGN_TABLE" in lake.refusal("list", "--dead-letters", lake.path)
    with_none = tmp_path / "more"
    with_none.mkdir()
    other = Lake(with_none)
    lake.document("list", "--dead-letters", f"{other.path}_dead_letters")


def test_a_replay_makes_pending_records_of_them(lake: Lake) -> None:
    before = lake.table.known()
    plan = lake.document("replay", "--all")
    assert plan["written"] is None
    assert [each["offset"] for each in plan["replayed"]] == [40, 41, 77]
    assert lake.table.known() == before
    assert "in a table with keys its row replaces theirs" in lake.run("replay", "--all").stderr
    done = lake.document("replay", "--all", "--who", "ann", "--why", "mended", "--confirm")
    assert done["written"] == before.seq + 1
    keys = {each.offset: each.key for each in lake.letters}
    assert lake.pending() == {at: place_of(key, at) for at, key in keys.items()}
    [record, *_] = lake.table.known().states[A].pending
    assert (record.deliveries, record.due_ms) == (0, BEGAN_MS + 60_000)
    commit = list(lake.table.history())[-1]
    assert (commit.kind, commit.who, commit.why) == (CommitKind.RESET, "ann", "mended")
    first, *_ = lake.document("list", "--status", "replayed")
    assert (first["replayed_by"], first["replayed_to"]) == ("ann", f"commit {before.seq + 1}")
    assert lake.offsets("--status", "dead") == []
    again = lake.run("replay", "--all", "--confirm")
    assert "0 of 0 dead letters" in again.stdout
    assert "nothing was written" in again.stderr
    shown = lake.run("show", "flights-0:40").stdout
    assert f"replayed by ann, commit {before.seq + 1}" in shown


def test_some_of_them_are_replayed(lake: Lake) -> None:
    lake.document("replay", "--error", "keyerror", "--confirm")
    assert lake.pending().keys() == {41}
    where = ("--topic", "flights", "--partition", 0)
    said = lake.run("replay", *where, "--offset", 77, "--offset", 99, "--confirm").stderr
    assert "offset 99 is none of these dead letters" in said
    assert lake.pending().keys() == {41, 77}
    assert lake.offsets("--status", "dead") == [40]


def test_a_replay_that_was_not_noted_is_found_by_its_commit(lake: Lake) -> None:
    """Ended between its commit and the note, it left pending records behind."""
    lake.document("replay", "--all", "--confirm")
    seq = lake.table.known().seq
    lake.store().append(SOURCE, 4, [letter(40, batch_id=4)], BEGAN_MS)
    assert lake.offsets("--status", "dead") == []
    result = lake.run("replay", "--all", "--confirm")
    assert "0 of 0 dead letters" in result.stdout
    assert lake.table.known().seq == seq
    assert lake.offsets("--status", "dead") == []


def test_what_cannot_come_again_is_left_and_said(lake: Lake) -> None:
    others = [
        letter(50, batch_id=4, topic_id="another"),
        letter(51, batch_id=4, partition=7),
        letter(60, batch_id=4),
    ]
    lake.store().append(SOURCE, 4, others, BEGAN_MS)
    commits = open_commits(lake.path, "", "", {})
    known = commits.table.known()
    write_reset(commits, known, {A: rewind(known.states[A], 55).state}, "w", "y", BEGAN_MS)
    done = lake.document("replay", "--all", "--confirm")
    assert [each["offset"] for each in done["replayed"]] == [40, 41]
    left = {each["offset"]: each["why"] for each in done["left"]}
    assert left == {
        50: "its topic was made anew since",
        51: "the commits do not know its partition",
    }
    assert lake.pending().keys() == {40, 41}
    assert lake.offsets("--status", "dead") == [50, 51]
    # A reset has handed these out again.
    assert lake.offsets("--status", "replayed") == [40, 41, 60, 77]


def test_what_a_batch_gave_up_that_is_not_committed_is_not_replayed(lake: Lake) -> None:
    """Its commit will close the pending record, and nothing would hand the record out again."""
    commits = open_commits(lake.path, "", "", {})
    known = commits.table.known()
    write_reset(commits, known, {A: reopen(known.states[A], [(50, 7)], 0).state}, "w", "y", 0)
    lake.store().append(SOURCE, 5, [letter(at, batch_id=5) for at in (50, 77)], BEGAN_MS)
    done = lake.document("replay", "--topic", "flights", "--confirm")
    assert [each["offset"] for each in done["replayed"]] == [40, 41]
    left = [(each["offset"], each["why"]) for each in done["left"]]
    # The last was given up before, too.
    assert left == [(at, "the batch that gave it up is not committed yet") for at in (50, 77, 77)]
    assert lake.offsets("--status", "dead") == [50, 77, 77]


def test_what_another_source_gave_up_last_is_replayed(lake: Lake) -> None:
    """One that was begun anew counts its batches from 0, and no batch of the other one commits."""
    known = replace(lake.table.known(), batch_id=0)
    assert plan_replay(known, [letter(41, batch_id=3)], 0, "another").taken
    assert not plan_replay(known, [letter(41, batch_id=3)], 0, SOURCE).taken


def test_what_a_log_has_lost_is_not_taken_for_what_is_there_now(lake: Lake) -> None:
    """Their offsets are of other records since it was cut back; and the clock was set back too."""
    known = lake.table.known()
    batch = known.batch_id + 1
    cut = Commit(
        *(known.seq + 1, CommitKind.BATCH, GROUP, SOURCE, QUERY, known.run_id, batch),
        committed_at_ms=BEGAN_MS + 5_000,
        states=known.states,
        cut_back={A: 41},
    )
    lake.table.append(cut)
    lake.store().append(SOURCE, batch, [letter(50, batch_id=batch)], BEGAN_MS + 20_000)
    done = lake.document("replay", "--all", "--confirm")
    assert [each["offset"] for each in done["replayed"]] == [40, 50]
    reason = "the log was cut back to 41 since, and has lost its record"
    assert [(each["offset"], each["why"]) for each in done["left"]] == [(41, reason), (77, reason)]
    assert keyrange.replay_dead_letters(lake.path) == 0
    # Another source has gone on since: batches have other numbers there, and times tell.
    lost = letter(41, source_id="before", batch_id=9, written_at_ms=BEGAN_MS)
    assert not plan_replay(lake.table.known(), [lost], 0, SOURCE, [cut]).taken
    late = replace(lost, written_at_ms=BEGAN_MS + 30_000)
    assert plan_replay(lake.table.known(), [late], 0, SOURCE, [cut]).taken


def test_jobs_replay_without_a_command_line(lake: Lake) -> None:
    where = {"topic": "flights", "partition": 0}
    assert keyrange.replay_dead_letters(lake.path, **where, offsets=[40, 41], error="Key") == 1
    assert lake.pending().keys() == {41}
    assert list(lake.table.history())[-1].why == "replay"
    assert keyrange.replay_dead_letters(lake.path, who="ann", why="mended") == 2
    assert lake.pending().keys() == {40, 41, 77}
    assert list(lake.table.history())[-1].who == "ann"
    assert keyrange.replay_dead_letters(lake.path) == 0
    with pytest.raises(KeyrangeError, match=r"NO_COMMIT_TABLE.*no commit table at"):
        keyrange.replay_dead_letters(f"{lake.path}/nope")


def test_null_keys_lie_where_the_commits_say(tmp_path: Path, lake: Lake) -> None:
    from keyrange.model.commit_settings import CommitSettings

    known = replace(lake.table.known(), terms=CommitSettings(null_keys="first"))
    plan = plan_replay(known, [letter(41, None)], 0, SOURCE)
    [record] = plan.states[A].pending
    assert record.key_hash == 0


@pytest.mark.parametrize(
    "arguments", [(), ("--confirm",), ("--topic", "flights", "--offset", "4"), ("--all", "--live")]
)
def test_a_replay_says_of_which(lake: Lake, arguments: tuple[str, ...]) -> None:
    result = lake.run("replay", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_dead_letters_are_not_missed_in_a_sink(lake: Lake, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    done = [at for at in range(300) if at not in (40, 41, 77)]
    rows = {"topic": ["flights"] * 297, "partition": pa.array([0] * 297, pa.int32())}
    write_deltalake(str(tmp_path / "sink"), pa.table({**rows, "offset": done}))

    def verify() -> Any:
        arguments = ("commits", "verify", lake.path, "--sink", tmp_path / "sink")
        return read_document(commanding.run(*arguments, "--output", "json").stdout)

    assert verify()["agrees"]
    lake.document("replay", "--error", "keyerror", "--confirm")
    assert verify()["agrees"]


def test_a_query_that_was_started_afresh_replays_what_others_gave_up(lake: Lake) -> None:
    """It goes on with their commits; theirs are over, and nobody would hand out what they hold."""
    *_, last = lake.table.history()
    heir = open_commit_table(lake.options, "source-2")
    heir.append(replace(last, source_id="source-2", seq=1, committed_at_ms=BEGAN_MS + 90_000))
    for command in (("replay", "--all"), ("replay", "--topic", "flights", "--confirm")):
        said = lake.refusal(*command, "--source", SOURCE)
        assert f"source {SOURCE} is over: source source-2" in said
    with pytest.raises(KeyrangeError, match="is over"):
        keyrange.replay_dead_letters(lake.path, source=SOURCE)
    assert lake.offsets("--status", "replayed") == []
    own = commit_admin.open_commits(lake.path, "", "", {})
    given_up = commits_verify._dead(lake.path, "", own, own.table.known(), {})
    assert {key_hash: at.tolist() for key_hash, at in given_up.items()} == {A: [40, 41, 77]}
    assert keyrange.replay_dead_letters(lake.path, offsets=[40]) == 1
    done = lake.document("replay", "--all", "--confirm")
    assert [each["offset"] for each in done["replayed"]] == [41, 77]
    assert [record.offset for record in heir.known().states[A].pending] == [40, 41, 77]
    assert lake.pending() == {}
