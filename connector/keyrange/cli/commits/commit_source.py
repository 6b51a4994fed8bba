"""What commands that look at a commit table share: which source of it, back through its commits,
and what the broker says of the partitions that it knows.

Rule of this file: nothing of Spark, and only commands that are told to ask a broker do so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from keyrange.cli.render import OutputFormat, OutputOption, note
from keyrange.cli.source_options import (
    PartitionOption,
    SourceOptionsOption,
    TopicOption,
    check_partition,
    connected,
    named_options,
    of_kafka,
    storage_of,
    value_of,
)
from keyrange.errors import invalid_options
from keyrange.individual_commits.model.batch_results import ErrorsByOffset
from keyrange.individual_commits.model.commit import Commit, Snapshot
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from keyrange.options import SourceOptions
from keyrange.options.commits import beside

if TYPE_CHECKING:
    from keyrange.individual_commits.table.commit_admin import Commits
    from keyrange.kafka.cluster import Cluster
    from keyrange.kafka.cluster_view import ClusterView

TableArgument = Annotated[
    str,
    typer.Argument(metavar="TABLE", help="The commit table: a directory or a URI such as s3://..."),
]
LettersOption = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="The dead letter table; usually TABLE_dead_letters, or TABLE of whole batches.",
    ),
]
GroupOption = Annotated[str, typer.Option(help="The commit group, if the table has several.")]
SourceOption = Annotated[
    str, typer.Option(metavar="SOURCE_ID", help="Which source's commits; usually the last one's.")
]


AtOption = Annotated[int | None, typer.Option(metavar="SEQ", min=1, help="As of this commit.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A commit table, and those of its partitions that a command is about."""

    table: TableArgument
    topic: TopicOption = ""
    partition: PartitionOption = None

    def __post_init__(self) -> None:
        check_partition(self.topic, self.partition)

    def of(self, known: Snapshot) -> Snapshot:
        """What is known of them. Raises INVALID_OPTIONS where there are none such."""
        if not self.topic:
            return known
        states = known.states.only(
            each
            for each in known.states
            if each.topic == self.topic and self.partition in (None, each.partition)
        )
        if not states:
            named = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
            others = ", ".join(map(str, sorted(known.states))) or "none"
            raise invalid_options(f"the commits know nothing of {named}; they know of: {others}")
        return replace(known, states=states)


@dataclass(frozen=True, slots=True)
class OfSource:
    """Whose commits of a table a command looks at, by which options of the source."""

    group: GroupOption = ""
    source: SourceOption = ""
    option: SourceOptionsOption = None

    def open(self, table: str, bootstrap_servers: str = "") -> tuple[Commits, dict[str, str]]:
        """The commits in a table, as `open_commits`, and the options."""
        named = named_options(bootstrap_servers, "", self.option)
        return open_commits(table, named_group(named, self.group), self.source, named), named


@dataclass(frozen=True, slots=True)
class OfSourceShown(OfSource):
    """And how the command prints."""

    output: OutputOption = OutputFormat.TEXT


def known_at(commits: Commits, seq: int | None, named: str = "--at") -> Snapshot:
    """The state at a commit, or at the last one: of consumers that of their group. `named`: what
    said which. Raises INVALID_OPTIONS where there is no such."""
    from keyrange.individual_commits.table.consumer_group import consumer_group

    last = commits.table.known()
    if seq is not None and seq > last.seq:
        raise invalid_options(f"{named} {seq}: the commits are 1 to {last.seq}")
    if seq is not None:
        return commits.table.known(seq)
    group = consumer_group(commits)
    return last if group is None else group.together(last)


def open_commits(path: str, group: str, source: str, named: Mapping[str, str]) -> Commits:
    """As `commit_admin.open_commits`, with the settings of the object store among options."""
    from keyrange.individual_commits.table import commit_admin

    commits = commit_admin.open_commits(path, group, source, storage_of(named))
    if commits.others and not source:
        note(f"{commits.others + 1} sources of the group wrote here; {_shown_of(commits)}")
    return commits


def _shown_of(commits: Commits) -> str:
    from keyrange.individual_commits.model.range_claims import is_of_consumer

    if is_of_consumer(commits.source_id):
        return "what is done is that of all, and the last commit is this one's"
    return "this is the last one"


def first_commits(
    commits: Commits, seq: int, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, Commit]:
    """The first commit on file of each partition, up to `seq`, as long as its topic is the same."""
    found: dict[TopicPartition, Commit] = {}
    for commit in commits.table.history(1, seq + 1):
        for partition in (commit.states.keys() & states.keys()) - found.keys():
            if commit.states[partition].topic_id == states[partition].topic_id:
                found[partition] = commit
        if found.keys() == states.keys():
            break
    return found


def errors_of(commits: Commits, named: Mapping[str, str]) -> ErrorsByOffset:
    """The last errors of pending records, from beside the verdicts; nothing where there are none,
    or where options of the source do not say that the query keeps its verdicts elsewhere."""
    from keyrange.individual_commits.pending_errors import pending_errors

    location = value_of(named, "verdictdirectory") or beside(commits.path, "_verdicts")
    return pending_errors(location, commits.source_id, storage_of(named))


def dead_letters_of(
    commits: Commits, named: Mapping[str, str], group: str | None
) -> dict[str, int]:
    """How many records and timers of a group are dead letters, beside the commits or where an
    option says, as documents name them."""
    from keyrange.individual_commits.table.dead_letter_replay import chosen_letters, letters_at

    letters = letters_at(commits.path, letters_table(named), storage_of(named))
    records = letters.read(replayed=False, whole=False)
    return {
        "dead_letters": len(chosen_letters(records, group or "")),
        "dead_timers": len(chosen_letters(letters.timers(replayed=False), group or "")),
    }


def named_group(named: Mapping[str, str], given: str = "") -> str:
    """The commit group that is `given`, or that the query's own option names; else ""."""
    return value_of(named, "commitgroup", given)


def letters_table(named: Mapping[str, str], given: str = "") -> str:
    """The table of dead letters that is `given`, or that the query's own option names; else ""."""
    return value_of(named, "deadlettertable", given)


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster that answers, and those of the partitions that are still the same ones there."""

    options: SourceOptions
    cluster: Cluster
    view: ClusterView
    partitions: frozenset[TopicPartition]

    def with_added(self) -> Live:
        """With all partitions of the same topics."""
        topics = {each.topic for each in self.partitions}
        all_of = (each for each in self.view.partitions() if each.topic in topics)
        return replace(self, partitions=frozenset(all_of))

    def logs(self) -> dict[TopicPartition, OffsetRange]:
        """From where to where the logs of the partitions go."""
        first, last = self.offsets_at(EARLIEST), self.offsets_at(LATEST)
        return {each: OffsetRange(first[each], last[each]) for each in first}

    def offsets_at(self, which: int) -> dict[TopicPartition, int]:
        """EARLIEST, LATEST, or the first record not before a time in ms (-1: there is none)."""
        if not self.partitions:
            return {}
        wanted = dict.fromkeys(sorted(self.partitions), which)
        found = self.cluster.list_offsets(self.view, wanted)
        return {partition: at for partition, (at, _) in found.items()}


@contextmanager
def ask(
    named: Mapping[str, str],
    states: Mapping[TopicPartition, PartitionState],
    reading: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Live]:
    """Ask for partitions. What is deleted or was made anew is left out, with a note on stderr.

    `named` are the query's options, of which those count that say how its cluster is reached, and
    `reading` others of a batch read. Raises what the source raises for them.
    """
    topics = sorted({partition.topic for partition in states})
    subscribed = {"subscribe": ",".join(topics) or "none"}
    with connected({**of_kafka(named), **reading, **subscribed}) as (options, cluster):
        view = cluster.describe(topics, may_miss=topics)
        there = set(view.partitions())
        same = set()
        for partition, state in sorted(states.items()):
            topic_id = view.topic_id(partition.topic)
            if partition not in there:
                note(f"{partition} is not in the cluster any more")
            elif state.topic_id and topic_id and topic_id != state.topic_id:
                note(f"{partition} is another topic by now, the commits are of {state.topic_id}")
            else:
                same.add(partition)
        yield Live(options, cluster, view, frozenset(same))
