"""`keyrange report`: one page about a query, as a file or served on this machine.

Rule of this file: it reads, makes a page and writes it. What the documents say is said by the
commands that print them; `keyrange.report` makes figures of them.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from keyrange.cli.commits.commit_source import GroupOption, named_group
from keyrange.cli.exit_codes import ExitCode
from keyrange.cli.render import note
from keyrange.cli.source_options import (
    ServersOption,
    SourceOptionsOption,
    named_options,
    storage_of,
)
from keyrange.cli.values import read_pause
from keyrange.cli.watch.commands import CommitsOption, MembersOption, ProgressOption, QueryArgument
from keyrange.errors import error, invalid_options
from keyrange.storage.locations import as_object_store_names
from keyrange.text.packages import install_line

if TYPE_CHECKING:
    from keyrange.report.page_parts import Sources

_EVERY_MS_MIN: Final = 100


def report(
    query: QueryArgument,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="The page to write: a path or URI; - for stdout.")
    ] = "report.html",
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page on 127.0.0.1, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where to serve it; 0: any port that is free.")
    ] = 0,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often a served page is made anew, such as 5s.")
    ] = "5s",
    progress: ProgressOption = "",
    commits: CommitsOption = "",
    members: MembersOption = "",
    dead_letters: Annotated[
        str, typer.Option(metavar="TABLE", help="Its dead letters; usually beside the commits.")
    ] = "",
    bootstrap_servers: ServersOption = "",
    group: GroupOption = "",
    source: Annotated[
        int | None, typer.Option(min=0, help="Which source of the query, where it reads several.")
    ] = None,
    batches: Annotated[int, typer.Option(min=1, help="How many of the last batches.")] = 200,
    option: SourceOptionsOption = None,
) -> None:
    """Make an HTML page about a query.

    The page shows lag, offsets, key ranges and their owners, batches, dead letters and volumes.

    The command needs the checkpoint only. Options name the rest, and may be the query's own
    (--option commitTable=..., kafka.admin.bootstrap.servers=...). If something cannot be read, the
    page says so, and the command ends with exit code 1.
    """
    from keyrange.cli.report.report_inputs import Collector, ReportWhere
    from keyrange.cli.watch.observers import tables
    from keyrange.report.html import page
    from keyrange.report.html import report as make

    library = load_library()
    every_ms = read_pause(every, "--every", _EVERY_MS_MIN)
    named = named_options(bootstrap_servers, "", option)
    where = ReportWhere(
        checkpoint=query,
        source=source,
        batches=batches,
        progress=progress,
        group=named_group(named, group),
        named=named,
        **tables(named, commits=commits, members=members, letters=dead_letters),
    )
    collector = Collector(where)
    if serve:
        from keyrange.cli.report.server import serve_report

        serve_report(collector, library, port, every_ms)
        return
    sources = collector.collect()
    _write(out, page(make(sources), library), named)
    if failures := failures_of(sources):
        for text in failures:
            note(text)
        raise typer.Exit(ExitCode.FINDING)


def load_library() -> str:
    """plotly.js, as the plotly package brings it. Raises PACKAGE_NOT_FOUND."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        message = f"keyrange report needs plotly: {install_line('report')}"
        raise error("PACKAGE_NOT_FOUND", message) from None
    return str(get_plotlyjs())


_CALLED: Final = {"ends": "Kafka", "letters": "dead letters"}


def failures_of(sources: Sources) -> list[str]:
    """What was asked for and could not be read, with the name of what it is."""
    failures = []
    for name in ("progress", "ends", "commits", "members", "letters", "volumes"):
        if failure := " ".join(getattr(sources, name).failure.split()):
            failures.append(f"not read: {_CALLED.get(name, name)}: {failure}")
    looked = sources.volumes.document
    if looked is not None and looked["failure"] and not sources.volumes.failure:
        failures.append(f"not observed: volumes: {looked['failure']}")
    return failures


def _write(out: str, text: str, named: Mapping[str, str]) -> None:
    """Put a file in place whole: who looks at the page meanwhile sees the old one."""
    from keyrange.storage.directory import file_at
    from keyrange.storage.object_store import FAILURES

    data = text.encode()
    if out == "-":
        sys.stdout.buffer.write(data)
        return
    try:
        directory, name = file_at(out, storage_of(named))
        if directory.is_local:
            _put_in_place(Path(as_object_store_names(out)), data)
        else:
            directory.write(name, data)
    except FAILURES as failure:
        raise invalid_options(f"--out {out} cannot be written: {failure}") from None
    note(f"{out}: {len(data) / 1e6:.1f} MB")


def _put_in_place(path: Path, data: bytes) -> None:
    """A new file is as open as the umask says, and one that is there stays as it is."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    before = path.stat().st_mode & 0o777 if path.exists() else None
    mode = 0o666 if before is None else 0o600
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        if before is not None:
            os.chmod(draft, before)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
