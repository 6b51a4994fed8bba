"""`keyrange members rebalance` and `remove`: what people ask of a query's driver.

Rule of this file: nothing is written without --confirm, and what is written says who and why. The
driver takes it between two batches; nothing here changes an assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.cli.commits.reset import ConfirmOption, WhoOption, WhyOption
from keyrange.cli.members.document import describe
from keyrange.cli.members.opening import MembersTableArgument, open_table
from keyrange.cli.render import OutputFormat, OutputOption, note, print_document, print_text
from keyrange.cli.source import SourceOptionsOption, named_options
from keyrange.cli.times import now
from keyrange.text.formats import percent, span

if TYPE_CHECKING:
    from keyrange.members.table.assignment_admin import Members


def rebalance(
    table: MembersTableArgument,
    why: WhyOption,
    who: WhoOption = "",
    confirm: ConfirmOption = False,
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Let the driver assign the key ranges anew, to all who are there, without waiting for the
    timeouts.

    Members that are absent lose what they own. Key ranges move only as far as the balance needs.
    """
    members = open_table(table, named_options("", "", option))
    _ask(members, "rebalance", "", who, why, confirm, output)


def remove(
    table: MembersTableArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The member's name.")],
    why: WhyOption,
    who: WhoOption = "",
    confirm: ConfirmOption = False,
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Let the driver give a member's key ranges to the others, without waiting for it to return.

    For a member that is gone for good. One that still runs joins again, as a member of its own.
    """
    from keyrange.members.table.assignment_admin import check_known

    members = open_table(table, named_options("", "", option))
    check_known(members, name)
    _ask(members, "remove", name, who, why, confirm, output)


def _ask(
    members: Members,
    action: str,
    name: str,
    who: str,
    why: str,
    confirm: bool,
    output: OutputFormat,
) -> None:
    from keyrange.individual_commits.table.commit_admin import user_name
    from keyrange.members.table.assignment_admin import write_command

    number = None
    if confirm:
        asked = write_command(members, action, name, who or user_name(), why, now())
        number = asked.number
    document = describe(members.last, members.waiting, now(), None)
    rows = [each for each in document["members"] if name in ("", each["name"], each["slot"])]
    if output is OutputFormat.JSON:
        kept = {each: document[each] for each in ("group", "seq", "epoch", "waiting")}
        values = {"table": members.path, **kept, "written": number, "members": rows}
        print_document(f"members.{action}/1", values)
        return
    for each in rows:
        print_text(_owns(each))
    if number is not None:
        note(f"written as command {number}; the driver takes it before its next batch")
        return
    note(
        "nothing was written: --confirm does it. The driver wrote last "
        f"{span(document['age_ms'])} ago, and takes it before its next batch"
    )


def _owns(member: dict[str, Any]) -> str:
    owned = f"{percent(member['share'])} of the hash space in {member['ranges']:,} ranges"
    seen = member["last_seen_ms_ago"]
    when = "" if seen is None else f", last seen {span(seen)} ago"
    return f"{member['name']}, {member['state'].lower()}{when}: owns {owned}"
