"""What commands that look at a commit table share: which source of it, back through its commits.

Rule of this file: nothing of Spark and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.render import note

if TYPE_CHECKING:
    from keyrange.commits.model.log import Known
    from keyrange.commits.table.operating import Commits

TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The commit table: a directory or a URI such as s3://..."),
]
GroupOption = Annotated[
    str, typer.Option("--group", help="Whose commits, where the table holds several groups.")
]
SourceOption = Annotated[
    str,
    typer.Option(
        "--source", metavar="SOURCE_ID", help="Which source's commits; usually the last one's."
    ),
]
TopicOption = Annotated[str, typer.Option("--topic", help="Only this topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only this partition; needs --topic.")
]
LiveOption = Annotated[
    bool, typer.Option("--live", help="Ask the broker; needs --bootstrap-servers.")
]


def check_partition(topic: str, partition: int | None) -> None:
    if partition is not None and not topic:
        raise typer.BadParameter("--partition needs --topic")


def chosen(known: Known, topic: str, partition: int | None) -> Known:
    """What is known of some partitions. Raises INVALID_OPTIONS where there are none such."""
    from keyrange.errors import invalid_options

    check_partition(topic, partition)
    if not topic:
        return known
    states = {
        place: state
        for place, state in known.states.items()
        if place.topic == topic and partition in (None, place.partition)
    }
    if not states:
        named = topic if partition is None else f"{topic}-{partition}"
        others = ", ".join(map(str, sorted(known.states))) or "none"
        raise invalid_options([f"the commits know nothing of {named}; they know of: {others}"])
    return replace(known, states=states)


def known_at(commits: Commits, seq: int | None) -> Known:
    """The state at a commit, or at the last one. Raises INVALID_OPTIONS where there is no such."""
    from keyrange.errors import invalid_options

    last = commits.table.known()
    if seq is not None and seq > last.seq:
        raise invalid_options([f"--at {seq}: the commits are 1 to {last.seq}"])
    return last if seq is None else commits.table.known(seq)


def storage_of(named: Mapping[str, str]) -> dict[str, str]:
    """The settings of the object store among options of the source, references resolved.

    Raises SECRET_NOT_FOUND.
    """
    from keyrange.options.commits import STORAGE_PREFIX
    from keyrange.options.secrets import parse_secret

    return {
        name[len(STORAGE_PREFIX) :]: parse_secret(value).reveal()
        for name, value in named.items()
        if name.lower().startswith(STORAGE_PREFIX)
    }


def open_commits(path: str, group: str, source: str, named: Mapping[str, str]) -> Commits:
    """As `operating.open_commits`, with the settings of the object store among options."""
    from keyrange.commits.table import operating

    commits = operating.open_commits(path, group, source, storage_of(named))
    if commits.others and not source:
        note(f"{commits.others + 1} sources of the group wrote here; this is the last one")
    return commits
