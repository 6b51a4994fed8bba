"""`keyrange commits`: what is done of each partition where that is not all up to an offset.

Rule of this file: it reads a commit table and prints, without Spark, and without a broker unless it
is told to ask one. `commits_verify` and `commits_reset` hold the rest of the noun.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits_opening import (
    Commits,
    GroupOption,
    LiveOption,
    PartitionOption,
    SourceOption,
    TableArgument,
    TopicOption,
    chosen,
    now,
    open_commits,
)
from keyrange.cli.commits_reset import reset
from keyrange.cli.commits_verify import verify
from keyrange.cli.render import Output, OutputFormat, OutputOption, make_output
from keyrange.cli.source import ServersOption, SourceOptionsOption, named_options
from keyrange.cli.times import brief, read_time, span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keyrange.cli.commits_document import LogEnd
    from keyrange.cli.commits_picture import Marks
    from keyrange.core.commits.log import Commit, Known
    from keyrange.core.offsets import TopicPartition

app = typer.Typer(
    no_args_is_help=True,
    help="Individual commits: what is done, what is not, and what each batch did.",
)
app.command()(verify)
app.command()(reset)

_SPACE: Final = 2.0**63


@app.command()
def show(
    table: TableArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    ranges: Annotated[
        int,
        typer.Option(min=0, help="How many key ranges of a partition to list, the lowest first."),
    ] = 8,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="As of this commit.")
    ] = None,
    live: LiveOption = False,
    bootstrap_servers: ServersOption = "",
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """What is committed of each partition, the holes in it, and how far it is behind.

    The lag is as of the last batch, unless --live asks the broker.
    """
    from keyrange.cli.commits_document import describe

    named = named_options(bootstrap_servers, "", option)
    commits = open_commits(table, group, source, named)
    known = chosen(commits.table.known(at), topic, partition)
    last = commits.last(known.seq)
    ends = _live_ends(known, named) if live else _ends(commits, known)
    document = describe(known, last, ends, now())
    if output is OutputFormat.JSON:
        print(json.dumps({"table": table, **document}))
    else:
        _show(table, document, known, ranges, make_output(output))


@app.command()
def gaps(
    table: TableArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    limit: Annotated[int, typer.Option(min=1, help="How many holes to print at most.")] = 50,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", min=1, help="As of this commit.")
    ] = None,
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """The holes one by one: records that were handed out and are not done."""
    from keyrange.cli import commits_document

    commits = open_commits(table, group, source, named_options("", "", option))
    known = chosen(commits.table.known(at), topic, partition)
    rows = list(islice(commits_document.gaps(known, now()), limit))
    out = make_output(output)
    if output is OutputFormat.JSON:
        print(json.dumps(rows))
    else:
        columns = ["partition", "offset", "keys", "place", "cause", "worked on", "since", "due"]
        out.table("Holes", columns, [_gap(row) for row in rows])
    holes = sum(len(state.holes) for state in known.states.values())
    if len(rows) < holes:
        out.note(f"the first {len(rows):,} of {holes:,} holes; --limit shows more")


@app.command()
def history(
    table: TableArgument,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="From this time on: ISO 8601, or how long ago (2h)."),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the last commits.")] = 20,
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """What each commit did, newest first."""
    commits = open_commits(table, group, source, named_options("", "", option))
    since_ms = read_time(since, "--since", now()) if since else 0
    rows = _events(commits, since_ms, limit)
    out = make_output(output)
    if output is OutputFormat.JSON:
        print(json.dumps(rows))
        return
    columns = ["seq", "kind", "batch", "time (UTC)", "done", "rejected", "held back", "dead"]
    columns += ["again", "holes", "committed"]
    out.table("Commits, newest first", columns, [_event(row) for row in rows])
    for row in rows:
        if row["who"] or row["why"]:
            print(f"commit {row['seq']}, {row['kind']} by {row['who']}: {row['why']}")


def _ends(commits: Commits, known: Known) -> dict[TopicPartition, LogEnd]:
    """Where the logs ended as of the last batch that said so of each partition."""
    from keyrange.cli.commits_document import LogEnd

    ends: dict[TopicPartition, LogEnd] = {}
    wanted = set(known.states)
    for commit in commits.backwards(known.seq):
        for place in wanted & commit.counts.keys():
            if commit.counts[place].log_end >= 0:
                ends[place] = LogEnd(commit.counts[place].log_end, "batch")
        if wanted <= ends.keys():
            break
    return ends


def _live_ends(known: Known, named: Mapping[str, str]) -> dict[TopicPartition, LogEnd]:
    from keyrange.cli.commits_document import LogEnd
    from keyrange.cli.commits_live import ask, check_live
    from keyrange.core.offsets import LATEST

    check_live(True, named)
    with ask(named, known.states) as asked:
        found = asked.offsets_at(LATEST)
    return {place: LogEnd(offset, "now") for place, offset in found.items()}


def _events(commits: Commits, since_ms: int, limit: int) -> list[dict[str, Any]]:
    from keyrange.cli.commits_document import event

    wanted: list[Commit] = []
    for commit in islice(commits.backwards(commits.table.known().seq), limit):
        if commit.committed_at_ms < since_ms:
            break
        wanted.append(commit)
    if not wanted:
        return []
    known = commits.table.known(wanted[-1].seq - 1)
    rows = []
    for commit in reversed(wanted):
        rows.append(event(commit, known))
        known = known.after(commit)
    return rows[::-1]


def _show(table: str, document: Mapping[str, Any], known: Known, ranges: int, out: Output) -> None:
    from keyrange.cli.commits_picture import marks_for

    if not document["seq"]:
        out.note("there is no commit yet")
    batch = "" if document["batch_id"] is None else f", batch {document['batch_id']}"
    terms = document["terms"] or {}
    out.record(
        f"Commits of {table}",
        {
            "group": document["group"],
            "source": document["source_id"],
            "query": document["query_id"],
            "last commit": f"{document['seq']}{batch}",
            "committed at": document["committed_at"],
            "terms": ", ".join(
                f"{name.replace('_', ' ')} {value}" for name, value in terms.items()
            ),
        },
    )
    marks = marks_for(sys.stdout.encoding)
    if known.states:
        print(marks.legend)
    for row, state in zip(document["partitions"], _states(known), strict=True):
        print()
        _show_partition(row, state, marks)
        _show_ranges(row, ranges, out)


def _states(known: Known) -> list[Any]:
    return [state for _, state in sorted(known.states.items())]


def _show_partition(row: Mapping[str, Any], state: Any, marks: Marks) -> None:
    from keyrange.cli.commits_picture import draw

    end = row["log_end"]
    lag = "lag not known" if row["lag"] is None else f"lag {row['lag']:,}"
    if row["log_end_known_by"] == "batch":
        lag += " as of its last batch"
    print(f"{row['topic']}-{row['partition']}: {_holes_text(row)}, {lag}")
    for line in draw(state, -1 if end is None else end, marks):
        print(f"  {line}")


def _holes_text(row: Mapping[str, Any]) -> str:
    if not row["holes"]:
        return "no holes"
    oldest = row["oldest_hole"]
    return (
        f"{row['holes']:,} {'hole' if row['holes'] == 1 else 'holes'}, the oldest at "
        f"{oldest['offset']:,} for {span(oldest['age_ms'])}"
    )


def _show_ranges(row: Mapping[str, Any], most: int, out: Output) -> None:
    """The key ranges of a partition that hold it back; nothing where they are all alike."""
    found = row["ranges"]
    if len(found) == 1 and not row["holes"]:
        return
    # Those that hold the partition back come first.
    worst = sorted(found, key=lambda each: (each["committed"], each["range"]))[:most]
    rows = [
        [
            keys_text(each["range"]),
            f"{each['committed']:,}",
            f"{each['scanned']:,}",
            len(each["done"]),
            each["holes"],
            span(each["oldest_hole"]["age_ms"]) if each["oldest_hole"] else "",
            each["deliveries_max"] or None,
            None if each["lag"] is None else f"{each['lag']:,}",
        ]
        for each in worst
    ]
    columns = ["keys", "committed", "scanned", "done", "holes", "oldest", "tries", "lag"]
    if rows:
        out.table("", columns, rows)
    if len(rows) < len(found):
        print(f"  {len(found) - len(rows)} more key ranges are farther; --ranges {len(found)}")


def keys_text(bounds: list[int]) -> str:
    """Where in the hash space a key range lies."""
    lo, hi = bounds
    return f"{lo / _SPACE:.2%} - {(hi + 1) / _SPACE:.2%}"


def _gap(row: Mapping[str, Any]) -> list[Any]:
    due = f"in {span(row['due_in_ms'])}" if row["due_in_ms"] else "now"
    return [
        f"{row['topic']}-{row['partition']}",
        row["offset"],
        keys_text(row["range"]),
        row["place"],
        row["cause"].replace("_", " "),
        row["deliveries"],
        span(row["age_ms"]),
        due,
    ]


def _event(row: Mapping[str, Any]) -> list[Any]:
    from datetime import datetime

    at = datetime.fromisoformat(row["committed_at"])
    return [
        row["seq"],
        row["kind"],
        row["batch_id"],
        brief(int(at.timestamp() * 1000)),
        *(f"{row[name]:,}" for name in ("done", "rejected", "held_back", "dead", "redelivered")),
        f"{row['holes']:,}",
        _moved_text(row["moved"]),
    ]


def _moved_text(moved: list[dict[str, Any]]) -> str:
    """How far the committed offsets came, in words that fit a column."""
    if not moved:
        return ""
    known = [each for each in moved if each["from_offset"] is not None]
    by = sum(each["until_offset"] - each["from_offset"] for each in known)
    if len(known) < len(moved):
        begun = len(moved) - len(known)
        return f"{by:+,}, {begun} begun" if known else f"{begun} begun"
    return f"{by:+,}"
