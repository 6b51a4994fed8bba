"""Every command of the command line, by its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from keyrange.cli.main import app


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """A command's commands with their words."""
    children = getattr(command, "commands", None)
    if children is None:
        yield " ".join(words), command
        return
    for name, child in children.items():
        yield from leaves(child, (*words, name))


COMMANDS = dict(leaves(typer.main.get_command(app)))
