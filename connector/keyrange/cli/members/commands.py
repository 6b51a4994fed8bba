"""`keyrange members`: who owns which key ranges, who is there, and what became of it.

Rule of this file: it reads a table of members and prints, without Spark, and without a broker
unless it is told to ask one. What people ask of a query's driver is written with --confirm only,
and says who and why; the driver takes it between two batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from keyrange.cli.commits.reset import ConfirmOption, WhoOption, WhyOption
from keyrange.cli.members.document import MembersTableArgument, ask, describe, events, open_table
from keyrange.cli.render import (
    Columns,
    OutputFormat,
    OutputOption,
    note,
    print_aligned,
    print_as,
    print_by,
    print_document,
    print_record,
    print_text,
    print_words,
    table_of,
    terminal_width,
)
from keyrange.cli.source_options import (
    LiveOption,
    PartitionOption,
    ServersOption,
    SourceOptionsOption,
    TopicOption,
    check_live,
    check_partition,
    named_options,
)
from keyrange.cli.values import SinceOption, now, read_since
from keyrange.members.model.membership_states import PRESENT
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.report.page_parts import partition_name
from keyrange.report.wording import command_text, event_text, moved_text, slot_marks
from keyrange.text.escaping import one_line
from keyrange.text.formats import clock, day, moment, number, percent, span

WIDTH: Final = 60

app = typer.Typer(
    no_args_is_help=True,
    help="Show and change the owners of key ranges.",
)


@dataclass(frozen=True, slots=True)
class Request:
    """Why the driver is asked for something and by whom, and whether it is."""

    why: WhyOption
    who: WhoOption = ""
    confirm: ConfirmOption = False
    option: SourceOptionsOption = None
    output: OutputOption = OutputFormat.TEXT


@app.command()
def rebalance(table: MembersTableArgument, request: Request) -> None:
    """Have the driver assign the key ranges to all present members.

    The driver does not wait for the timeouts.

    Members that are absent lose what they own. Key ranges move only as far as the balance needs.
    """
    _ask(table, "rebalance", "", request)


@app.command()
def remove(
    table: MembersTableArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The member's name.")],
    request: Request,
) -> None:
    """Have the driver give a member's key ranges to the others.

    The driver does not wait for the member to return.

    Use it for a member that is gone for good. A member that still runs joins again, as a new
    member.
    """
    _ask(table, "remove", name, request)


@app.command()
def scale(
    table: MembersTableArgument,
    members: Annotated[
        int, typer.Argument(metavar="MEMBERS", min=1, help="How many there are to be.")
    ],
    request: Request,
) -> None:
    """Say how many members there are to be.

    As soon as so many are there, the driver assigns the key ranges to them, at once: it waits for
    no timeout, neither for those that join nor for those that are absent.

    Until then everything is as before: nobody who is there loses its key ranges by the number, and
    a member that never comes does not hold up the others.
    """
    _ask(table, "scale", "", request, members)


def _ask(table: str, action: str, name: str, request: Request, count: int = 0) -> None:
    from keyrange.individual_commits.table.commit_admin import user_name
    from keyrange.members.table.assignment_admin import check_known, write_command

    members = open_table(table, named_options("", "", request.option))
    if name:
        check_known(members, name)
    number, who = None, request.who or user_name()
    if request.confirm:
        number = write_command(members, action, name, who, request.why, now(), count).number
    document = describe(members.last, members.waiting, now(), None)
    rows = [each for each in document["members"] if name in ("", each["name"], each["slot"])]
    kept = {each: document[each] for each in ("group", "seq", "epoch", "waiting")}
    values = {"table": members.path, **kept, "written": number, "members": rows}
    if request.output is OutputFormat.JSON:
        print_document(f"members.{action}/1", values)
        return
    for each in rows:
        seen = each["last_seen_ms_ago"]
        when = "" if seen is None else f", last seen {span(seen)} ago"
        owned = f"{percent(each['share'])} of the hash space in {each['ranges']:,} ranges"
        print_text(f"{each['name']}, {each['state'].lower()}{when}: owns {owned}")
    if number is not None:
        note(f"written as command {number}; the driver takes it before its next batch")
    else:
        note(
            "nothing was written: --confirm does it. The driver wrote last "
            f"{span(document['age_ms'])} ago, and takes it before its next batch"
        )


@app.command(name="list")
def list_members(
    table: MembersTableArgument,
    topic: TopicOption = "",
    partition: PartitionOption = None,
    partitions: Annotated[
        int, typer.Option(min=0, help="Of how many partitions to draw the hash space.")
    ] = 16,
    live: LiveOption = False,
    bootstrap_servers: ServersOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List the members, their hosts and their share of the keys.

    The list is as the driver last wrote it, unless --live asks the broker for the present members.
    """
    check_partition(topic, partition)
    named = named_options(bootstrap_servers, "", option)
    check_live(live, named)
    members = open_table(table, named)
    asked = ask(named, members.last) if live else None
    document = {"table": table, **describe(members.last, members.waiting, now(), asked)}
    document["partitions"] = [
        each
        for each in document["partitions"]
        if topic in ("", each["topic"]) and partition in (None, each["partition"])
    ]
    print_as(output, "members.list/1", document, lambda it: _show(it, partitions))


@app.command()
def history(
    table: MembersTableArgument,
    since: SinceOption = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the last rows.")] = 20,
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """List assignments and requests, the newest first."""
    members = open_table(table, named_options("", "", option))
    found = events(members.recent(limit), members.table.commands(), read_since(since, now()))
    print_as(output, "members.history/1", {"table": table, "events": found}, _show_history)


def _show(document: Mapping[str, Any], most: int) -> None:
    live = document["live"]
    print_record(
        "Members",
        {
            "table": document["table"],
            "group": document["group"],
            "epoch": document["epoch"] or "none yet",
            "written": f"{moment(document['at'])} UTC, {span(document['age_ms'])} ago, "
            f"as row {document['seq']}",
            "because": one_line(document["reason"]),
            **({"expected": _expected_text(document)} if document["expected"] else {}),
            **({"next": _next_text(document["next"])} if document["next"] else {}),
            **({"broker": f"{live['state']}, {live['members']} members"} if live else {}),
        },
    )
    members = document["members"]
    marks = slot_marks(each["slot"] for each in members if each["ranges"])
    columns: Columns = {
        "name": lambda each: one_line(each["name"]),
        "mark": lambda each: marks.get(each["slot"]),
        "slot": lambda each: one_line(each["slot"]),
        "host": lambda each: one_line(each["host"] or ""),
        "executor": lambda each: one_line(each["executor"] or ""),
        "space": lambda each: percent(each["share"]),
        "ranges": lambda each: number(each["ranges"]),
        "epoch": lambda each: document["epoch"] if each["ranges"] else None,
        "seen": _seen_text,
        "state": _state_text,
    }
    print_aligned(*table_of(columns, members))
    for each in document["waiting"]:
        print_words(f"waiting: {command_text(each)}")
    _show_space(document["partitions"], marks, most)


def _expected_text(document: Mapping[str, Any]) -> str:
    there = sum(each["state"] in PRESENT for each in document["members"])
    return f"{document['expected']:,} members, {there:,} are there"


def _next_text(due: Mapping[str, Any]) -> str:
    because = ", ".join(f"{each['name']} {each['state'].lower()}" for each in due["because"])
    left = f"in {span(due['in_ms'])}, at {moment(due['at'])} UTC"
    # The table has nothing of who prepares for key ranges.
    now = f"since {span(-due['in_ms'])}, with the next batch, or when its heirs are ready"
    when = left if due["in_ms"] > 0 else now
    return one_line(": ".join(filter(None, (when, because))))


def _seen_text(member: Mapping[str, Any]) -> str:
    if member["live"]:
        return "now"
    ago = member["last_seen_ms_ago"]
    return "" if ago is None else f"{span(ago)} ago"


def _state_text(member: Mapping[str, Any]) -> str:
    words = [one_line(member["state"]).lower()]
    if member["static"] is False:
        words.append("dynamic")
    if member["live"] is False:
        words.append("not at the broker")
    return ", ".join(words)


def _show_space(
    partitions: Sequence[Mapping[str, Any]], marks: Mapping[str, str], most: int
) -> None:
    """A line for each partition: whose the hashes from 0 to 2^63 - 1 are."""
    if not partitions or not most:
        return
    names = [partition_name(each) for each in partitions]
    shown = partitions[:most]
    width = max(map(len, names[:most]))
    cells = max(min(WIDTH, (terminal_width() or 10_000) - width - 2), 1)
    print_text()
    print_words("whose the hashes of each partition are, from 0 to 2^63 - 1")
    for name, each in zip(names, shown, strict=False):
        owned = [
            (KeyRange(row["range"][0], row["range"][1] + 1), row["slot"]) for row in each["ranges"]
        ]
        print_text(f"{name.ljust(width)}  {draw(owned, marks, cells)}")
    if len(shown) < len(partitions):
        print_words(f"... and {len(partitions) - len(shown)} partitions: --partitions, --topic")


def draw(
    owned: Sequence[tuple[KeyRange, str]], marks: Mapping[str, str], width: int = WIDTH
) -> str:
    """The hash space of a partition whose ranges, in order, cover it, as a line of text: a
    character stands for the slot that owns the most of its part of the space."""
    line = []
    at = 0
    for cell in split_evenly(SPACE, width):
        while owned[at][0].until_hash <= cell.from_hash:
            at += 1
        shares: dict[str, int] = {}
        here = at
        while here < len(owned) and owned[here][0].from_hash < cell.until_hash:
            span, slot = owned[here]
            inside = min(span.until_hash, cell.until_hash) - max(span.from_hash, cell.from_hash)
            shares[slot] = shares.get(slot, 0) + inside
            here += 1
        # The first of two with equal parts.
        line.append(marks[max(shares, key=lambda slot: shares[slot])])
    return "".join(line)


_HISTORY: Final[Columns] = {
    "row": lambda row: f"command {row['number']}" if row["kind"] == "command" else row["seq"],
    "time": lambda row: clock(row["at"]),
    "epoch": lambda row: row.get("epoch"),
    "members": lambda row: row.get("members"),
    "moved": moved_text,
}


def _show_history(document: Mapping[str, Any]) -> None:
    rows = document["events"]
    days = [f"{day(row['at'])} (UTC)" for row in rows]
    print_by(days, *table_of(_HISTORY, rows), [[event_text(row)] for row in rows], "nothing")
