"""`keyrange commits`: what is done of each partition where that is not all up to an offset.

Rule of this file: it reads a commit table and prints, without Spark, and without a broker unless it
is told to ask one. `commits_verify` and `commits_reset` hold the rest of the noun.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits import document as commits_document
from keyrange.cli.commits.commit_source import (
    AtOption,
    Chosen,
    OfSourceShown,
    TableArgument,
    ask,
    dead_letters_of,
    errors_of,
    known_at,
)
from keyrange.cli.commits.document import (
    WIDTH,
    LogEnd,
    describe,
    draw,
    event,
    kinds_of,
    legend,
    marks_for,
)
from keyrange.cli.commits.reset import reset
from keyrange.cli.commits.verify import verify
from keyrange.cli.render import (
    Columns,
    LimitOption,
    note,
    print_aligned,
    print_as,
    print_by,
    print_record,
    print_text,
    print_words,
    table_of,
    terminal_width,
)
from keyrange.cli.source_options import LiveOption, ServersOption, check_live
from keyrange.cli.values import SinceOption, ms_of, now, read_since
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.offsets import LATEST, TopicPartition
from keyrange.report.page_parts import partition_name
from keyrange.text.escaping import one_line
from keyrange.text.formats import clock, day, moment, number, percent_of_hashes, span

if TYPE_CHECKING:
    from keyrange.individual_commits.table.commit_admin import Commits

app = typer.Typer(
    no_args_is_help=True,
    help="Show, check and reset the individual commits of a query.",
)
app.command()(verify)
app.command()(reset)

_ENDS_WITHIN: Final = 1000
# Of an error, in a line; a document has what is kept of it.
_ERROR_SHOWN: Final = 76


@app.command()
def show(
    chosen: Chosen,
    ranges: Annotated[
        int,
        typer.Option(
            min=0, help="How many key ranges of each partition to list, the lowest offset first."
        ),
    ] = 8,
    at: AtOption = None,
    live: LiveOption = False,
    bootstrap_servers: ServersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """Show committed offset, pending records and lag of partitions.

    The read lag counts from the read position to the end of the log, the commit lag from the
    committed offset.

    Both are as of the last batch, unless --live asks the broker. The command counts pending records
    by their last errors, which it reads from the directory of the verdicts: option
    verdictDirectory, if it was set.
    """
    commits, named = of.open(chosen.table, bootstrap_servers)
    known = chosen.of(known_at(commits, at))
    last = commits.last(known.seq)
    ends = _live_ends(known, named) if live else known_ends(commits, known)
    # Errors of earlier commits are not kept.
    errors = errors_of(commits, named) if at is None else {}
    dead = dead_letters_of(commits, named, last.group if last else None) if at is None else None
    document = {"table": chosen.table, **describe(known, last, ends, now(), errors, dead)}
    print_as(of.output, "commits.show/1", document, lambda it: _show(it, known, ranges))


@app.command()
def gaps(
    chosen: Chosen, limit: LimitOption = 50, at: AtOption = None, *, of: OfSourceShown
) -> None:
    """List the pending records: delivered, and not done.

    The command reads their last errors from the directory of the verdicts: option verdictDirectory,
    if it was set.
    """
    commits, named = of.open(chosen.table)
    known = chosen.of(known_at(commits, at))
    errors = errors_of(commits, named) if at is None else {}
    rows = list(islice(commits_document.gaps(known, now(), errors), limit))
    print_as(of.output, "commits.gaps/1", {"table": chosen.table, "gaps": rows}, _show_gaps)
    pending = sum(len(state.pending) for state in known.states.values())
    if len(rows) < pending:
        note(f"the first {len(rows):,} of {pending:,} pending records; --limit shows more")


@app.command()
def history(
    table: TableArgument,
    since: SinceOption = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the last commits.")] = 20,
    *,
    of: OfSourceShown,
) -> None:
    """List the commits, the newest first."""
    commits, _ = of.open(table)
    rows = recent_events(commits, read_since(since, now()), limit)
    print_as(of.output, "commits.history/1", {"table": table, "commits": rows}, _show_history)


def known_ends(commits: Commits, known: Snapshot) -> dict[TopicPartition, LogEnd]:
    """Where the logs ended as of the last batch that said so of each partition: a batch says it of
    those alone of which it read something."""
    ends: dict[TopicPartition, LogEnd] = {}
    wanted = set(known.states)
    # A partition of which no batch said it is not looked for through years of commits.
    for commit in islice(commits.table.backwards(known.seq), _ENDS_WITHIN):
        for partition in wanted & commit.counts.keys():
            log_end, state = commit.counts[partition].log_end, commit.states.get(partition)
            # The log of a topic that was made anew has another end.
            if state is not None and state.topic_id != known.states[partition].topic_id:
                wanted.discard(partition)
            elif log_end >= 0:
                ends[partition] = LogEnd(log_end, "batch")
        wanted -= ends.keys()
        if not wanted:
            break
    return ends


def _live_ends(known: Snapshot, named: Mapping[str, str]) -> dict[TopicPartition, LogEnd]:
    check_live(True, named)
    with ask(named, known.states) as asked:
        found = asked.offsets_at(LATEST)
    return {partition: LogEnd(offset, "now") for partition, offset in found.items()}


def recent_events(commits: Commits, since_ms: int, limit: int) -> list[dict[str, Any]]:
    """What the last commits did, newest first."""
    last = islice(commits.table.backwards(commits.table.known().seq), limit)
    wanted = [*takewhile(lambda commit: commit.committed_at_ms >= since_ms, last)]
    if not wanted:
        return []
    known = commits.table.known(wanted[-1].seq - 1)
    rows = []
    for commit in reversed(wanted):
        rows.append(event(commit, known))
        known = known.after(commit)
    return rows[::-1]


def _show(document: Mapping[str, Any], known: Snapshot, ranges: int) -> None:
    if not document["seq"]:
        note("there is no commit yet")
    batch = "" if document["batch_id"] is None else f", batch {document['batch_id']}"
    terms, at = document["terms"] or {}, document["committed_at"]
    print_record(
        f"Commits of {document['table']}",
        {
            "group": document["group"],
            "source": document["source_id"],
            "query": document["query_id"],
            "last commit": f"{document['seq']}{batch}",
            "committed": at and f"{moment(at)} UTC, {span(now() - ms_of(at))} ago",
            "dead letters": number(document["dead_letters"]) or None,
            "dead timers": document["dead_timers"] or None,
            "terms": ", ".join(
                f"{name.replace('_', ' ')} {value}"
                for name, value in terms.items()
                if name not in ("state_topic", "keys")
            ),
            "state topic": terms.get("state_topic") or None,
            "keys": terms.get("keys") or None,
        },
    )
    if kinds := kinds_of(document["pending_by_error"]):
        cells = [[each.name, number(each.records), each.example] for each in kinds]
        print_aligned(["error", "records", "such as"], cells, "  ")
        print_text()
    marks = marks_for(sys.stdout.encoding)
    if known.states:
        print_words(legend(marks))
    for row, (_, state) in zip(document["partitions"], sorted(known.states.items()), strict=True):
        print_text()
        _show_partition(row, state, marks)
        _show_ranges(row, ranges)


def _show_partition(row: Mapping[str, Any], state: PartitionState, marks: str) -> None:
    end = row["log_end"]
    as_of = " (last batch)" if row["log_end_known_by"] == "batch" else ""
    read, commit = (number(row[name]) or "not known" for name in ("read_lag", "commit_lag"))
    lags = f"read lag {read}, commit lag {commit}{as_of}"
    print_words(f"{partition_name(row)}   {lags}")
    oldest = row["oldest_pending"]
    since = (
        f"{number(row['pending'])} pending, the oldest for {span(oldest['age_ms'])}"
        if oldest
        else ""
    )
    print_words(f"  {since or 'none pending'}")
    width = min(WIDTH, (terminal_width() or WIDTH) - 2)
    for line in draw(state, -1 if end is None else end, marks, width):
        print_text(f"  {line}")


def _show_ranges(row: Mapping[str, Any], most: int) -> None:
    """The key ranges of a partition that hold it back; nothing where they are all alike."""
    found = row["ranges"]
    if not most or (len(found) == 1 and not row["pending"]):
        return
    worst = sorted(found, key=lambda each: (each["committed"], each["range"]))[:most]
    columns: Columns = {
        "keys": lambda each: keys_text(each["range"]),
        "committed": lambda each: number(each["committed"]),
        "range lag": lambda each: number(row["position"] - each["scanned"]),
        "pending": lambda each: number(each["pending"]),
        "oldest": lambda each: each["oldest_pending"] and span(each["oldest_pending"]["age_ms"]),
        "tries": lambda each: each["deliveries_max"] or None,
        "commit lag": lambda each: number(each["commit_lag"]),
    }
    print_aligned(*table_of(columns, worst), "  ")
    if len(worst) < len(found):
        print_words(f"  ... and {len(found) - len(worst)} key ranges that are farther: --ranges")


def keys_text(bounds: list[int], digits: int = 2) -> str:
    """Where in the hash space a key range lies."""
    begin, end = percent_of_hashes(bounds)
    return f"{begin:.{digits}f}-{end:.{digits}f}%"


_GAPS: Final[Columns] = {
    "offset": "offset",
    "key hash": "key_hash",
    "keys": lambda row: keys_text(row["range"], 1),
    "cause": lambda row: row["cause"].replace("_", " "),
    "tries": "deliveries",
    "since": lambda row: span(row["age_ms"]),
    "due": lambda row: f"in {span(row['due_in_ms'])}" if row["due_in_ms"] else "now",
}


def _show_gaps(document: Mapping[str, Any]) -> None:
    rows = document["gaps"]
    errors = [[one_line(row["error"] or "")[:_ERROR_SHOWN]] for row in rows]
    names = list(map(partition_name, rows))
    print_by(names, *table_of(_GAPS, rows), errors, "no pending records")


_HISTORY: Final[Columns] = {
    "seq": "seq",
    "what": lambda row: f"batch {row['batch_id']}" if row["kind"] == "batch" else row["kind"],
    "time": lambda row: clock(row["committed_at"]),
    "done": lambda row: number(row["done"]),
    "failed": lambda row: number(row["rejected"]),
    "held": lambda row: number(row["held_back"]),
    "dead": lambda row: number(row["dead"]),
    "again": lambda row: number(row["redelivered"]),
    "pending": lambda row: number(row["pending"]),
    "committed": lambda row: _moved_text(row["moved"]),
}


def _show_history(document: Mapping[str, Any]) -> None:
    rows = document["commits"]
    days = [f"{day(row['committed_at'])} (UTC)" for row in rows]
    print_by(days, *table_of(_HISTORY, rows), nothing="no commits")
    for row in rows:
        if row["who"] or row["why"]:
            by = f", by {row['who']}" if row["who"] else ""
            print_words(f"{row['kind']} {row['seq']}{by}: {row['why']}")


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
