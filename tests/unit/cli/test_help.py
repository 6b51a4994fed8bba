"""What `--help` says: examples of every command that can be typed as they stand, exit codes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from commands.command_words import COMMANDS, leaves
from keyrange.cli.examples import EXAMPLES
from keyrange.cli.exit_codes import EXIT_CODES
from keyrange.cli.main import app
from project.snippets import command_lines


def help_of(*words: str, **settings: Any) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="keyrange", **settings)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_command_has_examples_and_no_other() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    assert len(COMMANDS) > 20
    assert all(EXAMPLES.values())


@pytest.mark.parametrize("words", COMMANDS)
def test_help_says_what_it_does_and_ends_with_the_examples(words: str) -> None:
    shown = help_of(*words.split())
    assert shown.startswith(f"Usage: keyrange {words} ")
    _, _, examples = shown.partition("\nExamples:\n")
    lines = [line for each in EXAMPLES[words] for line in each.splitlines()]
    assert command_lines(examples) == command_lines("\n".join(lines))
    described = COMMANDS[words].help
    assert described
    assert described.strip().partition("\n\n")[0].endswith(".")


GROUPS = ["", *sorted({words.rpartition(" ")[0] for words in COMMANDS} - {""})]


@pytest.mark.parametrize("words", [*GROUPS, *COMMANDS])
def test_help_fits_a_terminal_and_cuts_no_word(words: str) -> None:
    wide = help_of(*words.split(), max_content_width=1_000, terminal_width=1_000)
    for width in (60, 80):
        shown = help_of(*words.split(), max_content_width=width, terminal_width=width - 2)
        assert max(map(len, shown.splitlines())) <= width
        # A line may end at a hyphen of a word, and an example goes on behind a backslash.
        told, whole = (re.sub(r"(?<=\w)-\n +", "-", each).split() for each in (shown, wide))
        assert sorted(set(told) - {"\\"}) == sorted(set(whole))
        given = command_lines(shown.partition("\nExamples:\n")[2])
        assert given == command_lines("\n".join(EXAMPLES.get(words, ())))


@pytest.mark.parametrize("words", ["errors", "options"])
@pytest.mark.parametrize("width", [60, 80])
def test_references_fit_a_terminal(words: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = CliRunner().invoke(app, [words]).stdout.splitlines()
    assert len(lines) > 100
    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_is_described(words: str) -> None:
    # NAME of `--option` and TABLE speak for themselves where their help says so; none is silent.
    silent = [each.name for each in COMMANDS[words].params if not getattr(each, "help", None)]
    assert silent == []


def noted(called: list[str], words: str) -> Callable[..., None]:
    return lambda **_: called.append(words)


@pytest.mark.parametrize("words", EXAMPLES)
def test_examples_are_taken(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to where the command would begin."""
    called: list[str] = []
    command = typer.main.get_command(app)
    for each, leaf in leaves(command):
        monkeypatch.setattr(leaf, "callback", noted(called, each))
    for example in EXAMPLES[words]:
        [given] = command_lines(example)
        assert given[0] == "keyrange"
        called.clear()
        command.main(given[1:], prog_name="keyrange", standalone_mode=False)
        assert called == [words], example


def test_what_the_history_says_of_somebody_was_confirmed() -> None:
    options = {words: {o for p in each.params for o in p.opts} for words, each in COMMANDS.items()}
    named = {words for words, own in options.items() if "--who" in own}
    assert "commits reset" in named
    assert {words for words in named if "--confirm" not in options[words]} == set()


def test_the_exit_codes_stand_in_the_help() -> None:
    shown = " ".join(help_of().split())
    for code, meaning in EXIT_CODES:
        assert f" {code} {meaning}" in shown


def test_help_is_plain_and_loads_little() -> None:
    program = (
        "import sys\nsys.argv = ['keyrange', 'commits', 'show', '--help']\n"
        "from keyrange.cli import main\ntry:\n    main.main()\nfinally:\n"
        "    print('rich' in sys.modules, 'deltalake' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.splitlines()[-1] == "False False"
    assert "\x1b" not in result.stdout
    assert result.stdout.isascii()


def test_examples_hold_no_secret() -> None:
    for each in (line for found in EXAMPLES.values() for line in found):
        assert not {"password", "secret", "jaas"} & set(shlex.split(each.lower(), comments=True))
