"""What commands that look at a commit table share: which source of it, back through its commits.

Rule of this file: nothing of Spark and no broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from keyrange.cli.render import note

if TYPE_CHECKING:
    from keyrange.core.commits.log import Commit, Known
    from keyrange.core.commits.table import CommitTable

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

_WINDOW: Final = 64
_STORAGE: Final = "committable.storage."


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits of one source in a table."""

    path: str
    source_id: str
    table: CommitTable

    def backwards(self, seq: int) -> Iterator[Commit]:
        """The commits up to `seq`, newest first; no more is read than is taken, by and large."""
        window = _WINDOW
        while seq > 0:
            begin = max(seq - window + 1, 1)
            yield from reversed(list(self.table.history(begin, seq + 1)))
            seq = begin - 1
            window *= 4

    def last(self, seq: int) -> Commit | None:
        return next(self.backwards(seq), None)


def now() -> int:
    """ms since 1970."""
    return int(time.time() * 1000)


def chosen(known: Known, topic: str, partition: int | None) -> Known:
    """What is known of some partitions. Raises INVALID_OPTIONS where there are none such."""
    from keyrange.errors import invalid_options

    if partition is not None and not topic:
        raise typer.BadParameter("--partition needs --topic")
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


def storage_of(named: Mapping[str, str]) -> dict[str, str]:
    """The settings of the object store among options of the source, references resolved.

    Raises SECRET_NOT_FOUND.
    """
    from keyrange.secret import parse_secret

    return {
        name[len(_STORAGE) :]: parse_secret(value).reveal()
        for name, value in named.items()
        if name.lower().startswith(_STORAGE)
    }


def open_commits(path: str, group: str, source: str, named: Mapping[str, str]) -> Commits:
    """The commits of one source: the one that is named, by the beginning of its id, else the one
    that wrote last, of the group that is named, else of the only one.

    Raises INVALID_OPTIONS where there is no such source, or where it cannot be told which.
    """
    from keyrange.errors import invalid_options

    sources, open_one = _open(path, named)
    found = [
        (of_group, source_id)
        for of_group, source_id in sources
        if group in ("", of_group) and source_id.startswith(source)
    ]
    groups = sorted({of_group for of_group, _ in found})
    if not found:
        known = ", ".join(f"{source_id} of group {name}" for name, source_id in sources) or "none"
        raise invalid_options([f"{path} holds no such source; its sources are: {known}"])
    if len(groups) > 1:
        raise invalid_options([f"--group must be named; {path} holds {', '.join(groups)}"])
    if source and len(found) > 1:
        named_so = ", ".join(source_id for _, source_id in found)
        raise invalid_options([f"--source {source} is how several begin: {named_so}"])
    source_id = found[0][1]
    if len(found) > 1:
        source_id = open_one(source_id).last_source(groups[0]) or source_id
        note(f"the table holds {len(found)} sources of group {groups[0]}; this is the last one")
    return Commits(path, source_id, open_one(source_id))


def _open(
    path: str, named: Mapping[str, str]
) -> tuple[list[tuple[str, str]], Callable[[str], CommitTable]]:
    """The groups and sources of a table, and how to open the commits of one."""
    from keyrange.delta.commit_table import LAYOUT, DeltaCommitTable
    from keyrange.delta.delta_rs import DeltaRsStore
    from keyrange.errors import invalid_options

    store = DeltaRsStore(path, LAYOUT, storage_of(named))
    if not store.refresh():
        raise invalid_options([f"there is no commit table at {path}"])
    rows = store.read({}, ["group", "source_id"])
    groups = rows.group_by(["group", "source_id"]).aggregate([])
    sources = sorted(zip(*(groups.column(name).to_pylist() for name in groups.column_names)))
    return sources, lambda source_id: DeltaCommitTable(store, source_id)
