"""Completion in shells, as the scripts that `--show-completion` prints ask for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ordinary

PROGRAM = "import sys; sys.argv[0] = 'keyrange'; from keyrange.cli import main; main.main()"
NOUNS = {"broker", "checkpoint", "commits", "deadletters", "doctor", "errors", "members"}
NOUNS |= {"options", "ranges", "records", "volumes"}


def ask(*arguments: str, program: str = PROGRAM, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def complete(shell: str, line: str, program: str = PROGRAM) -> list[str]:
    """What a shell is offered for a line whose last word is not finished."""
    words = line.split(" ")
    asked = {
        "_KEYRANGE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return ask(program=program, **asked).splitlines()


def test_bash_is_offered_the_commands() -> None:
    assert set(complete("bash", "keyrange ")) >= NOUNS
    assert complete("bash", "keyrange comm") == ["commits"]
    assert set(complete("bash", "keyrange commits re")) == {"reset"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_commands_with_what_they_do(shell: str) -> None:
    offered = "\n".join(complete(shell, "keyrange comm"))
    assert "commits" in offered
    assert "Show, check and reset" in offered
    assert "volumes" not in offered


def test_options_and_conditions_are_offered() -> None:
    assert "--bootstrap-servers" in complete("bash", "keyrange records --boot")
    assert complete("bash", "keyrange errors COMMITS_F") == ["COMMITS_FENCED"]
    assert complete("bash", "keyrange doctor --output j") == ["json"]


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o default -F _keyrange_completion keyrange"),
        ("zsh", "#compdef keyrange"),
        ("fish", "complete --command keyrange"),
    ],
)
def test_a_script_is_shown_for_each_shell(shell: str, line: str) -> None:
    shown = ask("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert line in shown


def test_a_completion_loads_nothing_heavy() -> None:
    """Somebody waits for it with every key."""
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sorted({'rich', 'pyspark', 'pyarrow', 'numpy', 'numba',"
        " 'kafka', 'deltalake'} & set(sys.modules)), 'is loaded'))\n" + PROGRAM.replace("; ", "\n")
    )
    assert complete("bash", "keyrange comm", program) == ["commits", "is loaded"]
