"""How commands print: data on stdout as a table or as JSON, everything else on stderr.

Rules of this file: commands hand over plain values and never format. rich is imported only when a
table is really drawn, so that `--help` stays quick. Nothing else of the command line writes to a
terminal (a test looks): here texts that others wrote lose what would move its cursor.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.text.plain import one_line, plain

if TYPE_CHECKING:
    from rich.console import Console


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[
    OutputFormat, typer.Option("--output", help="How to print: for people or for programs.")
]


def print_record(title: str, values: Mapping[str, Any]) -> None:
    """Print one thing by its named values, for people."""
    _print(title, [], list(values.items()))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print many things of one kind, for people; each row has one value per column."""
    _print(title, columns, [[each for _, each in zip(columns, row, strict=True)] for row in rows])


def _print(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table as wide as it needs to be where stdout is no terminal."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    # Text, not str: a path with "[/prod]" in it is no markup, and neither is a topic "[red]".
    head = Text(one_line(title), style="table.title")
    table = Table(title=head, title_justify="left", box=SIMPLE, show_header=bool(columns))
    for column in columns:
        table.add_column(one_line(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if value is None else plain(str(value))) for value in row))
    # A pipe must not cut values off at 80 columns.
    make_console(width=None if sys.stdout.isatty() else 10_000).print(table)


def print_text(text: str = "", end: str = "\n", flush: bool = False) -> None:
    """Print to stdout what may hold words of others, or a document as JSON."""
    print(plain(text), end=end, flush=flush)


def print_drawn(text: str) -> None:
    """Print to stdout what a console of `make_console` has drawn, with its colours."""
    print(text, flush=True)


def make_console(**settings: Any) -> Console:
    """A console of rich's whose texts are plain; what it says itself to the terminal passes."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control else Segment(plain(text), style)

    return PlainConsole(**settings)


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text in columns, the first to the left and the others to the right: where a drawn
    table would be too wide beside a picture."""
    lines = [[one_line(cell) for cell in line] for line in (columns, *rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def print_by(
    heads: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[str] = (),
) -> None:
    """Print rows in columns under the head that they have in common, each with a line below it."""
    names, *lines = aligned(columns, rows)
    last = None
    for at, (head, line) in enumerate(zip(heads, lines, strict=True)):
        if head != last:
            print_text(one_line(head))
            print_text(f"  {names}")
        last = head
        print_text(f"  {line}")
        if below:
            print_text(f"    {one_line(below[at])}")


def print_document(schema: str, values: Mapping[str, Any]) -> None:
    """Print one JSON document on a line, with the name and version of its schema, such as
    `commits.show/2`; `keyrange/schemas/documents.json` describes all of them."""
    print_text(json.dumps({"schema": f"keyrange.{schema}", **values}, default=str), flush=True)


def note(text: str) -> None:
    """Say something on stderr, as a line of JSON where KEYRANGE_LOG asks for that."""
    _say(logging.INFO, text, text)


def say_failure(text: str, condition: str) -> None:
    """Say on stderr why a command failed."""
    _say(logging.ERROR, f"error: {text}", text, condition=condition)


def _say(level: int, text: str, message: str, **fields: str) -> None:
    from keyrange.observing import logs

    if logs.wanted_format() is logs.LogFormat.JSON:
        text = logs.json_line(level, "keyrange.cli", message, **fields)
    print(plain(text), file=sys.stderr, flush=True)
