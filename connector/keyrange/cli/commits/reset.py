"""`keyrange commits reset`: set the committed offset of partitions by hand.

Rule of this file: nothing is written without --confirm, and what is written says who and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from keyrange.cli.commits.commit_source import (
    Chosen,
    OfSourceShown,
    TableArgument,
    ask,
    first_commits,
)
from keyrange.cli.render import Columns, OutputFormat, note, print_document, print_table, table_of
from keyrange.cli.source_options import SERVERS, ServersOption, is_number, names, storage_of
from keyrange.cli.values import now, read_time
from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.commit import CommitKind, Snapshot
from keyrange.individual_commits.model.offset_reset import Reset, rewind, skip
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.model.offsets import LATEST, TopicPartition
from keyrange.report.page_parts import partition_name
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import Directory
from keyrange.text.formats import number, span

if TYPE_CHECKING:
    from keyrange.individual_commits.table.commit_admin import Commits
    from keyrange.individual_commits.table.consumer_group import ConsumerGroup
    from keyrange.keyed_state.model.state_runs import StateRun

WhoOption = Annotated[str, typer.Option(help="The name for the history. Default: the user's.")]


def _check_why(why: str) -> str:
    if not why.strip():
        raise typer.BadParameter("--why is what the history says later: some words")
    return why


WhyOption = Annotated[str, typer.Option(help="Why, for the history.", callback=_check_why)]
ConfirmOption = Annotated[
    bool, typer.Option("--confirm", help="Do it. Without this it is only said what would be done.")
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        metavar="LOCATION",
        help="The query's checkpoint: refuse while a batch of it is planned and not committed.",
    ),
]
ToOption = Annotated[
    str,
    typer.Option(
        metavar="OFFSET|commit:SEQ|earliest-known|TIME",
        help="The new committed offset: a number; that of an earlier commit; that of the first "
        "commit on file; or, with --bootstrap-servers, that of the first "
        "record not before a time (ISO 8601, or how long ago).",
    ),
]
_EARLIEST = "earliest-known"


def reset(
    table: TableArgument,
    topic: Annotated[str, typer.Option(help="The topic.")],
    to: ToOption,
    why: WhyOption,
    partition: Annotated[
        int | None, typer.Option(min=0, help="The partition. Default: all.")
    ] = None,
    redo: Annotated[
        bool,
        typer.Option(
            "--redo",
            help="Deliver all records from there on again; pending records below stay pending.",
        ),
    ] = False,
    who: WhoOption = "",
    confirm: ConfirmOption = False,
    checkpoint: CheckpointOption = "",
    bootstrap_servers: ServersOption = "",
    *,
    of: OfSourceShown,
) -> None:
    """Set the committed offset of partitions.

    With an offset below the committed one the query delivers all records from there on again. With
    one above it the command gives up the pending records below it. Stop the query first: one that
    runs fails with COMMITS_FENCED at its next commit. Of consumers all those of the group are set.
    """
    from keyrange.individual_commits.table import keyed_state_rows
    from keyrange.individual_commits.table.commit_admin import check_current, user_name
    from keyrange.individual_commits.table.consumer_group import consumer_group

    commits, named = of.open(table, bootstrap_servers)
    group, known = consumer_group(commits), commits.table.known()
    if group is not None:
        _check_of_all(to)
        known = group.together(known)
    else:
        check_current(commits, known)
    states = Chosen(table, topic, partition).of(known).states
    wanted = _targets(commits, known, states, to, named)
    resets = plan(states, wanted, redo)
    changed = {p: each for p, each in resets.items() if each.state != states[p]}
    said = changed if changed or group or not _ends_in_batch(commits, known) else resets
    parts = _parts(group, states, wanted, redo) if group else [(commits, known, said)]
    _check_releases(known, changed)
    _check_shared(known, changed)
    # The state of keys whose records come again goes back to before these.
    directory = Directory(keyed_state_rows.state_directory(table, named), storage_of(named))
    runs = {
        p: keyed_state_rows.runs_to_return_to(commits, known, p, wanted[p], directory)
        for p, reset in changed.items()
        if reset.again and known.runs.get(p)
    }
    if checkpoint:
        check_no_batch_is_open(checkpoint, storage_of(named), commits.source_id)
    written = _write(parts, runs, who or user_name(), why) if confirm and said else None
    document: dict[str, Any] = {
        "table": table,
        "source_id": commits.source_id,
        "seq": known.seq,
        "written": written,
        "partitions": [_row(p, states[p], wanted[p], each) for p, each in resets.items()],
    }
    if of.output is OutputFormat.JSON:
        print_document("commits.reset/1", document)
        return
    print_table("Reset", *table_of(_COLUMNS, document["partitions"]))
    say_what_is_next(commits, known, bool(said), written)


def _ends_in_batch(commits: Commits, known: Snapshot) -> bool:
    """Whether nobody has said behind the last batch where to go on: that it is to be there is said
    too, since the output of a batch that was not committed counts then as removed."""
    kinds = (each.kind for each in commits.table.backwards(known.seq))
    return next((k for k in kinds if k is not CommitKind.FENCE), None) is CommitKind.BATCH


# The commits of a source, what is known of them, and what becomes of partitions.
_Part = tuple["Commits", Snapshot, dict[TopicPartition, Reset]]


def _parts(
    group: ConsumerGroup,
    whole: Mapping[TopicPartition, PartitionState],
    wanted: Mapping[TopicPartition, int],
    redo: bool,
) -> list[_Part]:
    """What changes of the consumers that are believed of some keys, `whole` as of `plan`. Raises as
    that."""
    parts = []
    for source, own in group.of_believed(wanted).items():
        resets = plan(own, {p: wanted[p] for p in own}, redo, whole)
        changed = {p: each for p, each in resets.items() if each.state != own[p]}
        if changed:
            parts.append((group.sources[source], group.known[source], changed))
    return parts


def _write(
    parts: Sequence[_Part],
    runs: Mapping[TopicPartition, tuple[StateRun, ...]],
    who: str,
    why: str,
) -> int | None:
    """A commit for each source; returns the number of the last one."""
    from keyrange.individual_commits.table.commit_admin import write_reset

    written = None
    for commits, known, changed in parts:
        new = {p: each.state for p, each in changed.items()}
        back = {p for p, each in changed.items() if each.again}
        written = write_reset(commits, known, new, who, why, now(), runs, back)
    return written


def plan(
    states: Mapping[TopicPartition, PartitionState],
    wanted: Mapping[TopicPartition, int],
    redo: bool,
    whole: Mapping[TopicPartition, PartitionState] | None = None,
) -> dict[TopicPartition, Reset]:
    """What becomes of each partition: back, or with what is not done given up, forward, whichever
    the `whole` states say, of which these may be a part.

    Raises INVALID_OPTIONS that names every partition whose position lies before its offset.
    """
    if violations := [
        f"--to {at} lies beyond the position of {partition}, {states[partition].position}: what "
        "was never handed out cannot be skipped here"
        for partition, at in sorted(wanted.items())
        if at > states[partition].position
    ]:
        raise invalid_options(violations)
    return {
        p: (rewind if redo or at <= (whole or states)[p].committed else skip)(states[p], at)
        for p, at in sorted(wanted.items())
    }


def _check_releases(known: Snapshot, changed: Mapping[TopicPartition, Reset]) -> None:
    """With transactional isolation what is staged above a record that is not done is released when
    that is; one that is given up by hand, or never delivered, would take it along.

    Raises INVALID_OPTIONS that names every partition with one.
    """
    transactional = known.terms is not None and known.terms.isolation == "transactional"
    lost = "and lose the finished output above it, which commit.isolation=transactional releases"
    violations = []
    for partition, each in sorted(changed.items()) if transactional else ():
        before = known.states[partition]
        if each.given_up:
            violations.append(
                f"--to would give up offset {each.given_up[0].offset} of {partition}, {lost} when "
                "that record is done or a dead letter: lower maxDeliveries to give it up"
            )
        elif each.passed_over and any(piece.scanned > before.committed for piece in before.pieces):
            violations.append(
                f"--to would pass over records of {partition} from offset "
                f"{each.passed_over[0].from_offset} on, {lost} when these are done: start the "
                "query, which delivers them first"
            )
    if violations:
        raise invalid_options(violations)


def _check_shared(known: Snapshot, changed: Mapping[TopicPartition, Reset]) -> None:
    """The state of keys goes back with all records that made it. Raises INVALID_OPTIONS where they
    are of several topics."""
    if known.scope.is_shared and any(each.again for each in changed.values()):
        raise invalid_options(
            "the query's topics share the state of their keys "
            f"(state.topic={known.scope.topic}), which cannot go back for the records of one of "
            "them: begin with a new checkpoint and commitGroup, or give an offset above the "
            "committed one"
        )


def check_no_batch_is_open(checkpoint: str, storage: Mapping[str, str], source_id: str) -> None:
    """A batch that is planned is read again as it was planned, whatever was reset meanwhile.

    Raises BATCH_NOT_COMMITTED, INVALID_OPTIONS where the checkpoint is of another query.
    """
    progress = load_progress(open_directory(checkpoint, storage))
    if source_id not in (sources := progress.commit_sources):
        known = f"those of source {', '.join(sorted(sources))}" if sources else "no commits"
        raise invalid_options(
            f"--checkpoint {checkpoint} is of another query: it names {known}, and {source_id} "
            "is the source that would be set"
        )
    if progress.unfinished:
        numbers = ", ".join(str(batch.batch_id) for batch in progress.unfinished)
        raise error("BATCH_NOT_COMMITTED", f"batch {numbers} of {checkpoint} is not committed")


def say_what_is_next(commits: Commits, known: Snapshot, changes: bool, written: int | None) -> None:
    if written is not None:
        note(f"written as commit {written}; the query goes on from it when it starts next")
    elif not changes:
        note("nothing would change, nothing was written")
    else:
        last = commits.last(known.seq)
        assert last is not None
        note(
            "nothing was written: --confirm does it. Stop the query first; the last commit was "
            f"{span(now() - last.committed_at_ms)} ago, and a query that is running stops with "
            "COMMITS_FENCED when it commits next"
        )


def _targets(
    commits: Commits,
    known: Snapshot,
    states: Mapping[TopicPartition, PartitionState],
    to: str,
    named: Mapping[str, str],
) -> dict[TopicPartition, int]:
    """The offset that each partition is to be set to."""
    if is_number(to):
        return dict.fromkeys(states, int(to))
    if to == _EARLIEST:
        first = first_commits(commits, known.seq, states)
        return {p: min(first[p].states[p].committed, states[p].committed) for p in first}
    if to.startswith("commit:"):
        number = to.removeprefix("commit:")
        if not (is_number(number) and 1 <= int(number) <= known.seq):
            raise invalid_options(f"--to {to}: the commits are 1 to {known.seq}")
        then = commits.table.known(int(number)).states
        if unknown := [
            str(partition)
            for partition, state in sorted(states.items())
            if partition not in then or then[partition].topic_id != state.topic_id
        ]:
            raise invalid_options(f"--to {to}: {', '.join(unknown)} had no state then")
        return {partition: then[partition].committed for partition in states}
    at_ms = read_time(to, "--to", now())
    if not names(named, SERVERS):
        raise typer.BadParameter("--to TIME asks the broker: it needs --bootstrap-servers")
    with ask(named, states) as asked:
        found, ends = asked.offsets_at(at_ms), asked.offsets_at(LATEST)
    if gone := sorted(states.keys() - found.keys()):
        raise invalid_options(f"--to: {', '.join(map(str, gone))} cannot be asked for")
    # A time behind the last record is its end; what was not handed out yet comes by itself.
    return {
        partition: min(at if at >= 0 else ends[partition], states[partition].position)
        for partition, at in found.items()
    }


def _check_of_all(to: str) -> None:
    if to == _EARLIEST or to.startswith("commit:"):
        text = "each consumer of the group has commits of its own; give an offset or a time"
        raise invalid_options(f"--to {to}: {text}")


def _row(
    partition: TopicPartition, before: PartitionState, to: int, reset: Reset
) -> dict[str, Any]:
    return {
        **partition._asdict(),
        "to": to,
        "committed_before": before.committed,
        "committed": reset.state.committed,
        "position": before.position,
        "again": [[each.from_offset, each.until_offset] for each in reset.again],
        "given_up": [record.offset for record in reset.given_up],
        "passed_over": [[each.from_offset, each.until_offset] for each in reset.passed_over],
    }


_COLUMNS: Final[Columns] = {
    "partition": partition_name,
    "committed": lambda row: number(row["committed_before"]),
    "becomes": lambda row: number(row["committed"]),
    "delivered again": lambda row: _offsets_text(row["again"]),
    "pending and given up": lambda row: number(len(row["given_up"])),
    "never delivered": lambda row: _offsets_text(row["passed_over"]),
}


def _offsets_text(ranges: Sequence[Sequence[int]]) -> str:
    total = sum(until_offset - from_offset for from_offset, until_offset in ranges)
    return f"{total:,} offsets" if total else "none"
