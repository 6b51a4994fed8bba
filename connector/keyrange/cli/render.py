"""How commands print: data on stdout as a table or as JSON, everything else on stderr, where people
see a bar for each step of a command while they wait.

Rules of this file: commands hand over plain values and never format. rich is imported only when a
table or a bar is really drawn, so that `--help` stays quick. Nothing else of the command line
writes to a terminal (a test looks): here texts that others wrote lose what would move its cursor.
No bar is drawn where stderr is no terminal, nor for programs (`--output json`, KEYRANGE_LOG=json).
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from keyrange.observing import logs
from keyrange.text.escaping import one_line, plain
from keyrange.text.wrapping import as_entry, as_paragraph, fitted, wrapped

if TYPE_CHECKING:
    from rich.console import Console


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


LimitOption = Annotated[int, typer.Option(min=1, help="How many to print at most.")]
OutputOption = Annotated[
    OutputFormat, typer.Option(help="How to print: for people or for programs.")
]
# By the title of a column what of a row its cell is: a value by its name, or what is made of it.
Columns = Mapping[str, str | Callable[[Any], Any]]


def print_as(
    output: OutputFormat,
    schema: str,
    values: Mapping[str, Any],
    for_people: Callable[[Mapping[str, Any]], object],
) -> None:
    """Print a document as JSON, as `print_document`, or as `for_people` prints it."""
    if output is OutputFormat.JSON:
        print_document(schema, values)
    else:
        for_people(values)


def by_name(*names: str) -> Columns:
    """Columns that are called as the values in them, but for spaces."""
    return {name.replace("_", " "): name for name in names}


def table_of(columns: Columns, rows: Iterable[Any]) -> tuple[list[str], list[list[str]]]:
    """The titles of a table, and its lines; None is an empty cell."""
    made = [
        [row[each] if isinstance(each, str) else each(row) for each in columns.values()]
        for row in rows
    ]
    return [*columns], [["" if cell is None else str(cell) for cell in cells] for cells in made]


def print_record(title: str, values: Mapping[str, Any]) -> None:
    """Print one thing by its named values, for people."""
    _print(title, [], list(values.items()))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print many things of one kind, for people; each row has one value per column."""
    _print(title, columns, [[each for _, each in zip(columns, row, strict=True)] for row in rows])


def _print(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table as wide as it needs to be where stdout is no terminal; on one that has no room for
    its words each row is a paragraph."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    names = [one_line(column) for column in columns]
    cells = [["" if each is None else plain(str(each)) for each in row] for row in rows]
    width = terminal_width()
    lines = [names, *cells] if columns else cells
    widths = _widths(lines, width) if width is not None else None
    if width is not None and widths is None:
        print_words(title)
        for row in cells:
            entry = as_paragraph(names, row, width) if columns else as_entry(row[0], row[1], width)
            for line in entry:
                print_text(line)
        print_text()
        return
    # Text, not str: a path with "[/prod]" in it is no markup, and neither is a topic "[red]".
    table = Table(box=SIMPLE, show_header=bool(columns))
    for at in range(len(lines[0]) if lines else 0):
        header = names[at] if columns else ""
        table.add_column(header, overflow="fold", width=widths[at] if widths else None)
    for row in cells:
        table.add_row(*map(Text, row))
    # A pipe must not cut values off at 80 columns, and neither must a terminal that is called dumb.
    size = {} if width is not None else {"width": 10_000, "height": 10_000}
    console = make_console(**size)
    # Not the table's own title, which would be broken at the table's width.
    console.print(Text(one_line(title), style="table.title"))
    console.print(table)


def _widths(lines: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """How wide columns may be for their table to fit; None where their words would not."""
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    natural = [max(map(cell_len, "\n".join(each).splitlines()), default=0) for each in columns]
    least = [max(map(cell_len, " ".join(each).split()), default=0) for each in columns]
    # A column has a space on either side, and one before it; the table has one at its end.
    return fitted(natural, least, width - 3 * len(columns) - 1)


def terminal_width() -> int | None:
    """How many columns the terminal on stdout has. None where there is none: nothing has to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_words(text: str, indent: str = "") -> None:
    """Print a text of words to stdout, which a terminal breaks between them only."""
    width, line = terminal_width(), one_line(text)
    for each in [f"{indent}{line}"] if width is None else wrapped(line, width, indent):
        print_text(each)


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


def _lines_of(
    columns: Sequence[str], rows: Sequence[Sequence[str]], indent: str
) -> tuple[list[str], list[list[str]]]:
    """The line of the columns' names, and the lines of each row: one, or on a terminal that has no
    room for them a paragraph, without a line of names."""
    names, *lines = [f"{indent}{line}".rstrip() for line in aligned(columns, rows)]
    width = terminal_width()
    if width is None or max(map(len, (names, *lines))) <= width:
        return [names], [[line] for line in lines]
    return [], [[*as_paragraph(columns, row, width)] for row in rows]


def print_aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Print rows in columns; on a terminal that has no room for them each row is a paragraph."""
    names, lines = _lines_of(columns, rows, indent)
    for line in chain(names, *lines):
        print_text(line)


def print_by(
    heads: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    below: Sequence[Sequence[str]] = (),
    nothing: str = "",
) -> None:
    """Print rows in columns under the head that they have in common, each with the lines below it
    that are not empty. `nothing` is what is said where there are none."""
    names, lines = _lines_of(columns, rows, "  ")
    if not rows:
        print_text(nothing)
    for at, head in enumerate(heads):
        if not at or head != heads[at - 1]:
            print_words(head)
            for name in names:
                print_text(name)
        for line in lines[at]:
            print_text(line)
        for each in filter(None, below[at] if below else ()):
            print_words(each, "    ")


def print_document(schema: str, values: Mapping[str, Any]) -> None:
    """Print one JSON document on a line, with the name and version of its schema, such as
    `commits.show/1`; `keyrange/schemas/documents.json` describes all of them."""
    print_text(json.dumps(document_of(schema, values), default=str), flush=True)


def document_of(schema: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What `print_document` prints."""
    return {"schema": f"keyrange.{schema}", **values}


def note(text: str) -> None:
    """Say something on stderr, as a line of JSON where KEYRANGE_LOG asks for that."""
    _say(logging.INFO, text, text)


def say_failure(text: str, condition: str) -> None:
    """Say on stderr why a command failed."""
    _say(logging.ERROR, f"error: {text}", text, condition=condition)


def _say(level: int, text: str, message: str, **fields: str) -> None:
    if logs.wanted_format() is logs.LogFormat.JSON:
        text = logs.json_line(level, "keyrange.cli", message, **fields)
    elif sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        text = "\n".join(wrapped(text, width))
    print(plain(text), file=sys.stderr, flush=True)


T = TypeVar("T")

# How wide a bar is, and how much of a line is for what stands beside it.
_BAR: Final = 40
_BAR_MIN: Final = 6
_WORDS: Final = 46

# Told of so many more that are done.
Advance = Callable[[int], None]


class Waiting:
    """The steps of a command, one bar below the other; without `progress` nothing is shown."""

    def __init__(self, progress: Any = None) -> None:
        self._progress = progress

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Iterator[Advance]:
        """A step of `total` things, None where nobody knows how many; yields what counts them."""
        if self._progress is None:
            yield lambda _: None
            return
        task = self._progress.add_task(one_line(title), total=total)
        yield lambda count: self._progress.advance(task, count)
        # How many there were is known in the end.
        done = self._progress.tasks[task].completed
        whole = max(done, total or 0, 1)
        self._progress.update(task, total=whole, completed=whole)

    def over(self, title: str, things: Iterable[T], total: int | None = None) -> Iterator[T]:
        """The things, counted as they are taken."""
        with self.step(title, total) as advance:
            for each in things:
                yield each
                advance(1)


@contextmanager
def waiting(output: OutputFormat = OutputFormat.TEXT) -> Iterator[Waiting]:
    """Bars for as long as a command waits. They go when it is done, and what it says then stays."""
    as_json = output is OutputFormat.JSON or logs.wanted_format() is logs.LogFormat.JSON
    if as_json or not sys.stderr.isatty():
        yield Waiting()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = make_console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        # Words and counts come first where there is little room.
        BarColumn(max(min(_BAR, console.width - _WORDS), _BAR_MIN)),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    # What is printed meanwhile stands above the bars; on stdout only where that is the same screen.
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()
    ) as progress:
        yield Waiting(progress)
