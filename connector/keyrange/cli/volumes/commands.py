"""`keyrange volumes`: how full the volumes of a cluster are, and what the guard makes of it.

Rule of this file: it asks the cluster and prints, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from keyrange.cli.exit_codes import FINDING
from keyrange.cli.render import (
    OutputFormat,
    OutputOption,
    note,
    print_aligned,
    print_document,
    print_text,
    print_words,
)
from keyrange.cli.source_options import SourceOptionsOption
from keyrange.cli.times import read_pause
from keyrange.cli.volumes.guard import guard, reap, release
from keyrange.cli.volumes.observations import AdminServersOption, guard_options, looks
from keyrange.report.wording import factor_text, volume_state
from keyrange.text.escaping import one_line
from keyrange.text.formats import moment, percent, size_text, span

app = typer.Typer(
    no_args_is_help=True, help="Watch the disks of brokers; slow and release producers."
)

app.command()(guard)
app.command()(reap)
app.command()(release)


WIDTH: Final = 30
USED, FREE, LIMIT = "#", ".", "|"


@app.command()
def show(
    bootstrap_servers: AdminServersOption = "",
    option: SourceOptionsOption = None,
    checks: Annotated[
        int, typer.Option(min=1, help="How many checks; the prediction is by what grows meanwhile.")
    ] = 2,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="The pause between two checks, such as 2s.")
    ] = "2s",
    follow: Annotated[
        bool, typer.Option("--follow", help="Print every check, and go on until Ctrl-C.")
    ] = False,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the free space of each volume, and the throttle factor.

    The limit is --option min.available.ratio=0.1 or min.available.bytes=10g, as for a query. Where
    the last check did not observe every volume, the exit code is 1.
    """
    pause_ms = read_pause(every, "--every")
    options = guard_options(bootstrap_servers, option, needs_limit=False)
    for number, document in enumerate(looks(options, pause_ms), start=1):
        last = number >= checks and not follow
        if follow or last:
            _print(document, output)
        if last:
            if document["failure"]:
                raise typer.Exit(FINDING)
            return


def _print(document: Mapping[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_document("volumes.show/1", document)
        return
    factor = document["factor"]
    if factor is not None:
        print_words(f"throttle factor {factor_text(factor)}, since {moment(factor['since'])} UTC")
        print_words(f"because {factor['why']}")
    if document["volumes"]:
        print_aligned(*_table(document["volumes"]))
    else:
        print_text("no volume was observed")
    if document["failure"]:
        note(f"not observed: {one_line(document['failure'])}")


def _table(volumes: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    columns = ["broker", "log dir", "used", "available", "of", "free", "full in", ""]
    rows = [
        [
            str(each["broker"]),
            one_line(each["log_dir"]),
            f"[{bar(1 - each['available_ratio'], each['limit_ratio'])}]",
            size_text(each["available_bytes"]),
            size_text(each["total_bytes"]),
            percent(each["available_ratio"]),
            "" if each["time_to_full_ms"] is None else span(each["time_to_full_ms"]),
            volume_state(each),
        ]
        for each in volumes
    ]
    return columns, rows


def bar(used: float, kept: float | None, width: int = WIDTH) -> str:
    """How full a volume is, as a line of text: filled from the left by what is `used`. A line
    stands where what is to be `kept` free begins. Both are parts of the volume, 0 to 1."""
    filled = min(max(round(used * width), 0), width)
    # Nearly full is not full, and nearly empty not empty.
    if used < 1:
        filled = min(filled, width - 1)
    if used > 0:
        filled = max(filled, 1)
    cells = [USED] * filled + [FREE] * (width - filled)
    if kept is not None:
        cells.insert(min(max(round((1 - kept) * width), 0), width), LIMIT)
    return "".join(cells)
