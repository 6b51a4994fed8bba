"""`keyrange watch`: where a query is, how fast, and why it is stuck, again and again.

Rule of this file: it asks, waits and prints. What is asked is in `observers`, what follows from it
in `document`, why it is held up in `reasons`, and how it looks in `view`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import GroupOption, named_group
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import (
    OutputFormat,
    OutputOption,
    make_console,
    print_as,
    print_drawn,
    print_text,
)
from keyrange.cli.source_options import (
    ServersOption,
    SourceOptionsOption,
    named_options,
    storage_of,
)
from keyrange.cli.values import now, read_pause
from keyrange.cli.volumes.commands import VolumeLooks

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Where

_EVERY_MS_MIN: Final = 50
# What a look waits for at the most before it shows what is known; a single look waits for all.
_WAIT_S: Final = 1.0
_WAIT_ONCE_S: Final = 45.0

QueryArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="The query's checkpoint location: a directory or a URI such as s3://...",
    ),
]
ProgressOption = Annotated[str, typer.Option(metavar="FILE", help="The query's progress file.")]
CommitsOption = Annotated[str, typer.Option(metavar="TABLE", help="The query's commitTable.")]
MembersOption = Annotated[str, typer.Option(metavar="TABLE", help="The query's memberTable.")]


def watch(
    query: QueryArgument,
    progress: ProgressOption = "",
    commits: CommitsOption = "",
    members: MembersOption = "",
    bootstrap_servers: ServersOption = "",
    group: GroupOption = "",
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="The pause between two looks, such as 2s.")
    ] = "2s",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Watch the rate, the lag and the problems of a query.

    The view shows the rate, read lag and commit lag, pending records, members, the throttle factor,
    and the causes of a delay.

    The command needs the checkpoint only. Options name the rest, and may be the query's own
    (--option commitTable=..., kafka.admin.bootstrap.servers=...). On a terminal the view is live;
    elsewhere the command prints a line for each interval, and with --output json a document on each
    line. Ctrl-C ends it. If a broker or a table does not answer, the view names it and the remedy,
    and --once ends with exit code 1.
    """
    from keyrange.cli.watch.observers import Where, tables
    from keyrange.cli.watch.view import line

    every_ms = read_pause(interval, "--interval", _EVERY_MS_MIN)
    named = named_options(bootstrap_servers, "", option)
    chosen = tables(named, commits=commits, members=members)
    group = named_group(named, group)
    where = Where(checkpoint=query, named=named, progress=progress, group=group, **chosen)
    with _quiet():
        if once:
            document = Watcher(where).look(_WAIT_ONCE_S)
            print_as(output, "watch/1", document, lambda it: print_drawn(_once(it)))
            if document["failures"]:
                raise typer.Exit(ExitCode.FINDING)
            return
        looks = _looks(where, every_ms)
        if output is OutputFormat.TEXT and sys.stdout.isatty():
            _live(looks)
            return
        for document in looks:
            print_as(output, "watch/1", document, lambda it: print_text(line(it), flush=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """What is logged of a broker that does not answer is said in the view."""
    logger = logging.getLogger("keyrange")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Watcher:
    """Everything that is looked at. Raises INVALID_CHECKPOINT_PATH where there is no checkpoint at
    first; one that is gone later is said in the documents."""

    def __init__(self, where: Where) -> None:
        from keyrange.cli.watch import observers as sources
        from keyrange.cli.watch.document import Seen

        self._where = where
        self._seen = Seen()
        read = sources.checkpoint_source(where.checkpoint, storage_of(where.named))
        query_id = read().query_id
        self._checkpoint = sources.Source("checkpoint", read)
        wanted: dict[str, Any] = {
            "progress": where.progress and (lambda: sources.read_told(where.progress, query_id)),
            "broker": where.asks_kafka and sources.EndsSource(where.named, self._partitions),
            "commits": where.commits and sources.CommitsSource(where, self._commit_source),
            "members": where.members and (lambda: sources.read_members(where)),
            "volumes": where.asks_brokers and VolumeLooks(where.named),
        }
        self._others = {name: sources.Source(name, ask) for name, ask in wanted.items() if ask}

    def look(self, wait_s: float) -> dict[str, Any]:
        """Ask all sources, and say what is known after so long at the most."""
        from keyrange.cli.watch.document import describe
        from keyrange.cli.watch.observers import Answers

        until = time.monotonic() + wait_s
        self._checkpoint.ask()
        # The first one is waited for: which partitions there are is asked of it.
        self._checkpoint.wait(until if self._checkpoint.answer.value else until + _WAIT_ONCE_S)
        for source in self._others.values():
            source.ask()
        for source in self._others.values():
            source.wait(until)
        answers = Answers(
            self._checkpoint.answer,
            **{name: source.answer for name, source in self._others.items()},
        )
        return describe(self._where.checkpoint, answers, self._seen, now())

    def _commit_source(self) -> str:
        """The source whose commits the checkpoint names; "" where it names none, or several."""
        progress = self._checkpoint.answer.value
        found = progress.commit_sources if progress is not None else set()
        return found.pop() if len(found) == 1 else ""

    def _partitions(self) -> dict[Any, str]:
        """Those of the last planned batch, with the ids of their topics."""
        progress = self._checkpoint.answer.value
        ends = progress.planned[-1].ends if progress is not None else ()
        return {p: e.topic_ids.get(p.topic, "") for e in ends if e is not None for p in e.positions}


def _looks(where: Where, every_ms: int) -> Iterator[dict[str, Any]]:
    """A document an interval, without an end."""
    watcher = Watcher(where)
    while True:
        began = time.monotonic()
        yield watcher.look(min(_WAIT_S, every_ms / 1000))
        time.sleep(max(every_ms / 1000 - (time.monotonic() - began), 0))


def _once(document: Mapping[str, Any]) -> str:
    """The whole screen as text, as wide and as high as it needs to be in a pipe."""
    from io import StringIO

    from keyrange.cli.watch.view import screen

    here = make_console()
    is_terminal = sys.stdout.isatty()
    console = make_console(
        file=StringIO(),
        width=here.width if is_terminal else 10_000,
        height=10_000,
        force_terminal=is_terminal,
        no_color=here.no_color,
        highlight=False,
    )
    with console.capture() as captured:
        console.print(screen(console, document))
    return "\n".join(each.rstrip() for each in captured.get().rstrip().splitlines())


def _live(looks: Iterator[dict[str, Any]]) -> None:
    """Draw each document over the one before it; the last one stays when the view ends."""
    from rich.live import Live

    from keyrange.cli.watch.view import LIVE_HELP, screen

    console = make_console(highlight=False)
    last: dict[str, Any] | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for last in looks:
                live.update(screen(console, last, LIVE_HELP), refresh=True)
    finally:
        if last is not None:
            console.print(screen(console, last))
