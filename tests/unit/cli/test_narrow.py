"""What a terminal of 60 columns shows: every word whole, and nothing beyond its edge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.commanding import text
from keyrange.cli import render
from keyrange.cli.commits import commands as commits
from keyrange.cli.members import commands as members
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from samples.commit_samples import BEGAN_MS, Query, put_in_place
from samples.member_samples import append_all, assignment, member, owned, stored, table_at

WIDTH = 60
COLUMNS = ["check", "state", "what is to be said of it"]
ROWS = [["java", "ok", "Java 17.0.2 of a very long vendor name"], ["arrow", "failed", "none " * 30]]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (render, commits, members):
        monkeypatch.setattr(module, "terminal_width", lambda: WIDTH)
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def words(text: str) -> set[str]:
    return {word.strip(",:") for word in text.split()}


def check(shown: str, wanted: set[str]) -> None:
    assert max(map(len, shown.splitlines())) <= WIDTH
    assert wanted - words(shown) == set()


@pytest.mark.usefixtures("narrow")
def test_a_table_whose_words_fit_breaks_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    render.print_table("keyrange doctor", COLUMNS, ROWS)
    shown = capsys.readouterr().out
    check(shown, words(json.dumps(ROWS).replace('"', "").replace("[", "").replace("]", "")))
    assert "  check   state    what is to be said of it" in shown


@pytest.mark.usefixtures("narrow")
def test_a_table_whose_words_do_not_fit_is_paragraphs(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a-long-name-{at}" for at in range(6)]
    render.print_table("Positions", names, [[f"value-{at}" for at in range(6)]])
    render.print_record("Checkpoint", {"planned, not committed": "x" * 50, "id": "y z"})
    render.print_by(["t-0"], names, [names], [["what is said below each of them " * 4]])
    shown = capsys.readouterr().out
    check(shown, {*names, *(f"value-{at}" for at in range(6)), "x" * 50, "below"})
    assert "  id: y z" in shown


@pytest.mark.usefixtures("narrow")
def test_commits_show_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(2, 64, 0.05, 0.2, begin=1_204_311_000).run(4, 8_000, tail=5_000_000)
    put_in_place(monkeypatch, query)
    monkeypatch.setattr(commits, "now", lambda: query.now_ms + 90_000)
    for command in ("show", "gaps", "history"):
        shown = text("commits", command, "/t")
        assert max(map(len, shown.splitlines())) <= WIDTH
    shown = text("commits", "show", "/t")
    state = min(query.states.items())[1]
    check(shown, {f"{state.committed:,}", f"{state.position:,}", "5,000,000", "pending"})


@pytest.mark.usefixtures("narrow")
def test_members_list_fits(tmp_path: Path) -> None:
    slots = ("executor-with-a-name-0", "executor-with-a-name-1")
    rows = stored(
        1,
        epoch=1,
        members=[member(slot, at_ms=BEGAN_MS) for slot in slots],
        at_ms=BEGAN_MS,
        reason="the first assignment of all that there is, for a reason that is long",
        assignment=assignment(1, {each: owned(*slots) for each in Query(3).run(1, 1).states}),
    )
    append_all(table_at(tmp_path / "members"), [rows])
    shown = text("members", "list", tmp_path / "members")
    own = [line for line in shown.splitlines() if str(tmp_path) not in line]
    assert max(map(len, own)) <= WIDTH
    assert set(slots) <= words(shown)


def test_a_pipe_gets_titles_and_tables_as_wide_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    title = f"Checkpoint /lake/{'a' * 60}/{'b' * 60} of a query"
    render.print_record(title, {"id": "x" * 90})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == title
    assert any(line.endswith("x" * 90) for line in lines)
    # A terminal that is called dumb is 80 columns wide for rich.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    render.print_table("t", ["column"], [["y" * 200]])
    assert "y" * 200 in capsys.readouterr().out
    home = make_checkpoint(tmp_path / "cp")
    plan_batch(home, 0, BEGAN_MS, {"0": 1})
    commit_batch(home, 0)
    shown = text("checkpoint", "show", home)
    assert f"Checkpoint {home}" in [line.rstrip() for line in shown.splitlines()]
