"""The commands, run in this process: what they print, and what they refuse."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from commands.documents import read_document
from keyrange.cli.main import app
from keyrange.errors import KeyrangeError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def succeed(*arguments: object) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    return result


def text(*arguments: object) -> str:
    """What a command prints."""
    return succeed(*arguments).stdout


def document(*arguments: object) -> Any:
    """What a command prints as JSON."""
    return read_document(text(*arguments, "--output", "json"))


def refusal(*arguments: object) -> str:
    """The error of a command, which prints nothing else."""
    result = run(*arguments)
    assert isinstance(result.exception, KeyrangeError), (result.output, result.exception)
    assert result.stdout == ""
    return str(result.exception)
