"""What people see while they wait: a bar on stderr for each step of a command.

Rule of this file: nothing is drawn where stderr is no terminal, nor for programs (`--output json`,
KEYRANGE_LOG=json), and nothing ever goes to stdout. rich is imported only when something is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from keyrange.cli.render import OutputFormat, make_console
from keyrange.observing import logs
from keyrange.text.escaping import one_line

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
