"""What the nemesis reads out of logs and journals."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from nemesis.consumers import consumed
from nemesis.driver import cause_of
from nemesis.facts import Again, Place, ResetCommit, Row
from nemesis.modes import MODES
from nemesis.operations import follow_resets
from nemesis.store import Files
from nemesis.tables import SinkRows, committed_offsets
from nemesis.work import Content, written
from queries.consuming import Journal, read_journal


def said(message: str, level: str = "ERROR") -> str:
    return json.dumps({"at": "now", "level": level, "logger": "ingest", "message": message})


def test_a_driver_says_why_it_ended() -> None:
    log = "\n".join(["WARN X: y", said("[RECORDS_OUT_OF_ORDER] at A_B"), said("ended", "INFO")])
    assert cause_of(1, log) == ("RECORDS_OUT_OF_ORDER", "[RECORDS_OUT_OF_ORDER] at A_B")
    assert cause_of(-9, log)[0] == "KILLED"
    assert cause_of(1, f"java: No space left on device\n{said('x')}")[0] == "NO_SPACE"
    cut = said("[COMMITS_FENCED] another run writes")[:-20]
    assert cause_of(1, f"{cut}26/11/27 WARN Utils: x\n")[0] == "COMMITS_FENCED"
    assert cause_of(3, "nothing")[0] == "EXIT_3"
    assert cause_of(3, "")[0] == "EXIT_3"


def line(what: str, *offsets: int, at: int = 1) -> dict[str, Any]:
    places = [(0, offset, offset) for offset in offsets]
    return {"what": what, "at": at, "places": places, "keys": ["k"] * len(offsets)}


def of(tmp_path: Path, *lives: list[dict[str, Any]]) -> list[Place]:
    for number, lines in enumerate(lives, 1):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        # The last line of a process that was killed.
        (tmp_path / f"journal-{number}").write_text(text + '{"what": "comm')
    world: Any = SimpleNamespace(logs=tmp_path, run="run", copies_topic="")
    return [row.place for row in consumed(world)]


def test_what_a_consumer_has_committed_is_done(tmp_path: Path) -> None:
    lives = [line("handed", 0, 1), line("committed", 0, 1), line("finished")]
    assert of(tmp_path, lives) == [Place(0, 0, 0), Place(0, 1, 1)]


def test_what_two_consumers_have_committed_is_there_twice(tmp_path: Path) -> None:
    lives = [line("handed", 0), line("committed", 0), line("finished")]
    assert of(tmp_path, lives, lives) == [Place(0, 0, 0)] * 2


def test_a_commit_that_was_refused_is_none(tmp_path: Path) -> None:
    assert of(tmp_path, [line("handed", 0), {"what": "refused"}, line("finished")]) == []


def test_the_last_commit_of_one_that_was_killed_may_have_landed(tmp_path: Path) -> None:
    """It counts where nobody else has committed the records, and once."""
    dying = [line("handed", 0, 1)]
    assert of(tmp_path, dying, dying) == [Place(0, 0, 0), Place(0, 1, 1)]
    again = [line("handed", 0), line("committed", 0), line("finished")]
    assert sorted(of(tmp_path, dying, again)) == [Place(0, 0, 0), Place(0, 1, 1)]


def test_rows_that_came_since_the_last_look(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(store=Files(tmp_path), mode=MODES["batch"])
    looks = SinkRows(world)
    assert looks.rows() == []
    for version, offsets in enumerate([[0, 1], [2]]):
        rows = [
            {"partition": 0, "offset": n, "key": b"k", "value": written(Content("run", n, "."), 1)}
            for n in offsets
        ]
        write_deltalake(str(tmp_path / "table"), pa.Table.from_pylist(rows), mode="append")
        found = looks.rows()
        assert found == SinkRows(world).rows()
        assert found[-1] == Row(
            Place(0, offsets[-1], offsets[-1]),
            "k",
            "run",
            (version, version, len(rows) - 1),
            version,
        )
    assert [row.place.n for row in looks.rows()] == [0, 1, 2]


def test_a_line_that_a_kill_has_cut_short_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Journal(path).write("handed", offset=1)
    path.write_bytes(path.read_bytes() + b'{"what": "committed", "offsets": [1, ')
    assert read_journal(path) == [{"what": "handed", "offset": 1}]
    Journal(path).write("handed", offset=1, run="1")
    assert read_journal(path)[1:] == [{"what": "handed", "offset": 1, "run": "1"}]


def test_what_was_done_of_a_topic_is_not_done_of_the_one_that_was_made_in_its_place(
    tmp_path: Path,
) -> None:
    table = open_commit_table(CommitOptions(table=str(tmp_path / "commits")), "s")
    table.append(Commit(1, CommitKind.FENCE, "g", "s", "q", "r", -1, 0))
    states = {TopicPartition("orders", 1): fresh("old", 70)}
    table.append(Commit(2, CommitKind.BATCH, "g", "s", "q", "r", 0, 1000, states=states))
    topics = SimpleNamespace(topic_id=lambda _: "old")
    mode = SimpleNamespace(individual=True)
    world: Any = SimpleNamespace(store=Files(tmp_path), topic="orders", topics=topics, mode=mode)
    assert committed_offsets(world) == {1: 70}
    topics.topic_id = lambda _: "new"
    assert committed_offsets(world) == {}


def test_a_reset_hands_out_again_what_was_planned_before_it(tmp_path: Path) -> None:
    """Whose batch is of another source, or was planned from the reset, is handed out once."""
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for number, (source, seq, end) in enumerate((("a", 6, 70), ("a", 7, 80), ("b", 1, 90))):
        mark = {"commits": {"sourceId": source, "seq": seq}}
        planned = {"orders": {"0": 500, "1": end}, "@keyrange": mark}
        (offsets / str(number)).write_text(f"v1\n{{}}\n{json.dumps(planned)}\n")
    world: Any = SimpleNamespace(
        store=Files(tmp_path), topic="orders", resets={ResetCommit("a", 7): Again(1, 40, 40)}
    )
    follow_resets(world)
    assert world.resets == {ResetCommit("a", 7): Again(1, 40, 70)}
