"""Bars while a command works: on a terminal alone, on stderr alone, never for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest

from commands.terminals import read_all
from keyrange.cli.render import OutputFormat, Waiting, waiting

PROGRAM = """
import sys
from keyrange.cli.render import OutputFormat, note
from keyrange.cli.render import waiting

with waiting(OutputFormat({output!r})) as bars:
    with bars.step("rows [red]", None) as advance:
        advance(3)
    taken = list(bars.over("commits", "abcd", 4))
    note("a note")
    print("data")
print("taken", len(taken))
"""


def run(output: str, terminal: bool) -> tuple[str, str]:
    """What it wrote to stdout, a pipe, and to stderr."""
    command = [sys.executable, "-c", PROGRAM.format(output=output)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    if not terminal:
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
        return result.stdout, result.stderr
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    written = read_all(leader)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    assert process.wait(120) == 0
    return out, written.decode()


def test_lines_of_json_on_stderr_are_not_broken_by_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYRANGE_LOG", "json")
    _, err = run("text", True)
    assert json.loads(err)["message"] == "a note"


@pytest.mark.parametrize(("output", "terminal"), [("text", False), ("json", False), ("json", True)])
def test_no_terminal_and_no_program_sees_a_bar(output: str, terminal: bool) -> None:
    out, err = run(output, terminal)
    assert out == "data\ntaken 4\n"
    assert err.replace("\r", "") == "a note\n"


def test_a_terminal_sees_each_step_and_stdout_has_the_data_alone() -> None:
    out, err = run("text", True)
    assert out == "data\ntaken 4\n"
    assert "rows [red]" in err
    assert "4/4" in err
    assert "a note" in err


def test_things_are_handed_on_as_they_are() -> None:
    with waiting(OutputFormat.JSON) as bars:
        things = bars.over("things", iter([1, 2]), None)
        assert next(things) == 1
        assert list(things) == [2]
    with Waiting().step("x", 3) as advance:
        advance(1)


def test_a_step_that_fails_is_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="no"), Waiting().step("x"):
        raise RuntimeError("no")
