"""`keyrange commits reset`: set the committed offset of partitions by hand.

Rule of this file: nothing is written without --confirm, and what is written says who and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyrange.cli.commits.commit_source import (
    GroupOption,
    SourceOption,
    TableArgument,
    ask,
    chosen,
    open_commits,
)
from keyrange.cli.render import OutputFormat, OutputOption, note, print_document, print_table
from keyrange.cli.source_options import (
    SERVERS,
    ServersOption,
    SourceOptionsOption,
    named_options,
    names,
    storage_of,
)
from keyrange.cli.times import now, read_time
from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.offset_reset import Reset, rewind, skip
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.kafka.model.offsets import LATEST, TopicPartition
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import Directory
from keyrange.text.formats import number, span

if TYPE_CHECKING:
    from keyrange.individual_commits.table.commit_admin import Commits

WhoOption = Annotated[
    str, typer.Option("--who", help="The name for the history. Default: the user's.")
]


def _check_why(why: str) -> str:
    if not why.strip():
        raise typer.BadParameter("--why is what the history says later: some words")
    return why


WhyOption = Annotated[str, typer.Option("--why", help="Why, for the history.", callback=_check_why)]
ConfirmOption = Annotated[
    bool, typer.Option("--confirm", help="Do it. Without this it is only said what would be done.")
]
CheckpointOption = Annotated[
    str,
    typer.Option(
        "--checkpoint",
        metavar="LOCATION",
        help="The query's checkpoint: refuse while a batch of it is planned and not committed.",
    ),
]
_EARLIEST = "earliest-known"


def reset(
    table: TableArgument,
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="OFFSET|commit:SEQ|earliest-known|TIME",
            help="The new committed offset: a number; that of an earlier commit; that of the first "
            "commit on file; or, with --bootstrap-servers, that of the first "
            "record not before a time (ISO 8601, or how long ago).",
        ),
    ],
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
    group: GroupOption = "",
    source: SourceOption = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Set the committed offset of partitions.

    With an offset below the committed one the query delivers all records from there on again. With
    one above it the command gives up the pending records below it. Stop the query first: one that
    runs fails with COMMITS_FENCED at its next commit.
    """
    from keyrange.individual_commits.table.commit_admin import check_current, user_name, write_reset

    named = named_options(bootstrap_servers, "", option)
    commits = open_commits(table, group, source, named)
    known = commits.table.known()
    check_current(commits, known)
    states = chosen(known, topic, partition).states
    wanted = _targets(commits, known, states, to, named)
    resets = plan(states, wanted, redo)
    changed = {
        partition: each for partition, each in resets.items() if each.state != states[partition]
    }
    if known.terms is not None and known.terms.isolation == "transactional":
        _check_releases(changed)
    runs = _states_before(commits, known, wanted, changed, table, named)
    if checkpoint:
        check_no_batch_is_open(checkpoint, storage_of(named))
    written = None
    if confirm and changed:
        new = {partition: each.state for partition, each in changed.items()}
        written = write_reset(commits, known, new, who or user_name(), why, now(), runs)
    rows = [
        _row(partition, states[partition], wanted[partition], each)
        for partition, each in resets.items()
    ]
    if output is OutputFormat.JSON:
        document = {"table": table, "source_id": commits.source_id, "seq": known.seq}
        values = {**document, "written": written, "partitions": rows}
        print_document("commits.reset/1", values)
        return
    _print(rows)
    say_what_is_next(commits, known, bool(changed), written)


def plan(
    states: Mapping[TopicPartition, PartitionState],
    wanted: Mapping[TopicPartition, int],
    redo: bool,
) -> dict[TopicPartition, Reset]:
    """What becomes of each partition: back, or with what is not done given up, forward.

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
        partition: (rewind if redo or at <= states[partition].committed else skip)(
            states[partition], at
        )
        for partition, at in sorted(wanted.items())
    }


def _states_before(
    commits: Commits,
    known: Snapshot,
    wanted: Mapping[TopicPartition, int],
    changed: Mapping[TopicPartition, Reset],
    table: str,
    named: Mapping[str, str],
) -> dict[TopicPartition, tuple[StateRun, ...]]:
    """The state of keys whose records come again goes back to before these. Raises
    INVALID_OPTIONS."""
    from keyrange.individual_commits.table.keyed_state_rows import (
        runs_to_return_to,
        state_directory,
    )

    directory = Directory(state_directory(table, named), storage_of(named))
    return {
        partition: runs_to_return_to(commits, known, partition, wanted[partition], directory)
        for partition, reset in changed.items()
        if reset.again and known.runs.get(partition)
    }


def _check_releases(changed: Mapping[TopicPartition, Reset]) -> None:
    """What is staged above a pending record is released when that is done; one that is given up by
    hand would take it along.

    Raises INVALID_OPTIONS that names every partition with one.
    """
    if violations := [
        f"--to would give up offset {each.given_up[0].offset} of {partition}, and lose the "
        "finished output above it, which commit.isolation=transactional releases when that "
        "record is done or a dead letter: lower maxDeliveries to give it up"
        for partition, each in sorted(changed.items())
        if each.given_up
    ]:
        raise invalid_options(violations)


def check_no_batch_is_open(checkpoint: str, storage: Mapping[str, str]) -> None:
    """A batch that is planned is read again as it was planned, whatever was reset meanwhile.

    Raises BATCH_NOT_COMMITTED.
    """
    progress = load_progress(open_directory(checkpoint, storage))
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
    if to.isascii() and to.isdigit():
        return dict.fromkeys(states, int(to))
    if to == _EARLIEST:
        return _first_known(commits, known.seq, states)
    if to.startswith("commit:"):
        return _at_commit(commits, known, states, to)
    return _at_time(states, read_time(to, "--to", now()), named)


def _first_known(
    commits: Commits, seq: int, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for commit in commits.forwards(seq + 1):
        for partition in (commit.states.keys() & states.keys()) - found.keys():
            if commit.states[partition].topic_id == states[partition].topic_id:
                found[partition] = min(
                    commit.states[partition].committed, states[partition].committed
                )
        if found.keys() == states.keys():
            break
    return found


def _at_commit(
    commits: Commits, known: Snapshot, states: Mapping[TopicPartition, PartitionState], to: str
) -> dict[TopicPartition, int]:

    number = to.removeprefix("commit:")
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= known.seq):
        raise invalid_options([f"--to {to}: the commits are 1 to {known.seq}"])
    then = commits.table.known(int(number)).states
    unknown = [
        partition
        for partition in sorted(states)
        if partition not in then or then[partition].topic_id != states[partition].topic_id
    ]
    if unknown:
        named = ", ".join(map(str, unknown))
        raise invalid_options([f"--to {to}: {named} had no state then"])
    return {partition: then[partition].committed for partition in states}


def _at_time(
    states: Mapping[TopicPartition, PartitionState], at_ms: int, named: Mapping[str, str]
) -> dict[TopicPartition, int]:

    if not names(named, SERVERS):
        raise typer.BadParameter("--to TIME asks the broker: it needs --bootstrap-servers")
    with ask(named, states) as asked:
        found, ends = asked.offsets_at(at_ms), asked.offsets_at(LATEST)
    if gone := sorted(states.keys() - found.keys()):
        raise invalid_options([f"--to: {', '.join(map(str, gone))} cannot be asked for"])
    # A time behind the last record is its end; what was not handed out yet comes by itself.
    return {
        partition: min(at if at >= 0 else ends[partition], states[partition].position)
        for partition, at in found.items()
    }


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


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ["partition", "committed", "becomes", "delivered again", "pending and given up"]
    columns += ["never delivered"]
    print_table(
        "Reset",
        columns,
        [
            [
                f"{row['topic']}-{row['partition']}",
                number(row["committed_before"]),
                number(row["committed"]),
                _offsets_text(row["again"]),
                number(len(row["given_up"])),
                _offsets_text(row["passed_over"]),
            ]
            for row in rows
        ],
    )


def _offsets_text(ranges: Sequence[Sequence[int]]) -> str:
    total = sum(until_offset - from_offset for from_offset, until_offset in ranges)
    return f"{total:,} offsets" if total else "none"
