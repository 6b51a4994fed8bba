"""`keyrange checkpoint`: look into a Spark checkpoint directory, local or remote, or export it.

Rule of this file: a checkpoint that is named is only read; what is written goes to a new place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from keyrange.cli.checkpoint.export import (
    TableOfCommits,
    choose_source,
    committed_below,
    copy_checkpoint,
    kafka_sources,
    starting_offsets,
)
from keyrange.cli.render import (
    Columns,
    OutputFormat,
    OutputOption,
    by_name,
    note,
    print_as,
    print_record,
    print_table,
    print_text,
    table_of,
)
from keyrange.cli.source_options import SourceOptionsOption, named_options, storage_of
from keyrange.cli.values import iso
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.offsets import Positions, TopicPartition
from keyrange.storage.checkpoint_files import load_progress, open_directory
from keyrange.storage.directory import Directory
from keyrange.storage.model.spark_log import CheckpointProgress, PlannedBatch, jvm_offset, ranges_of

app = typer.Typer(no_args_is_help=True, help="Show or export the checkpoint of a query.")

PathArgument = Annotated[
    str, typer.Argument(help="The checkpoint location: a directory or a URI such as s3://...")
]


class ExportFormat(StrEnum):
    KAFKA = "kafka"


# How people are told who wrote a source's last offset.
_WRITERS = {"keyrange": "keyrange", "kafka": "Spark's Kafka connector", None: "another source"}


@app.command()
def show(
    path: PathArgument,
    batches: Annotated[int, typer.Option(min=1, help="How many of the last batches to list.")] = 5,
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Show the batches and the offsets of each partition.

    The command marks a batch that was planned and is not committed.
    """
    storage = storage_of(named_options("", "", option))
    progress = load_progress(open_directory(path, storage))
    document = describe(progress, batches)
    print_as(output, "checkpoint.show/1", document, lambda it: _show(path, it, progress.initial))


def _show(path: str, document: Mapping[str, Any], initial: Mapping[int, Positions]) -> None:
    unfinished = document["planned_not_committed"]
    print_record(
        f"Checkpoint {path}",
        {
            "query id": document["query_id"],
            "last batch planned": document["last_planned"],
            "last batch committed": document["last_committed"],
            "planned, not committed": ", ".join(map(str, unfinished)) or "none",
        },
    )
    columns: Columns = {
        "source": "source",
        "offsets written by": lambda row: _WRITERS[row["written_by"]],
        "initial positions on file": lambda row: (
            None if row["initial"] is None else jvm_offset(initial[row["source"]])
        ),
    }
    print_table("Sources", *table_of(columns, document["sources"]))
    rows = document["positions"]
    print_table("Positions: the next offset to read", *table_of(_POSITIONS, rows))
    columns = by_name("batch", "planned_at", "offsets", "state")
    print_table("Last batches", *table_of(columns, document["batches"]))


_POSITIONS: Final[Columns] = {
    **by_name("source", "topic", "partition", "committed", "planned"),
    "last batch reads": lambda row: (
        "start not on file"
        if row["from_offset"] is None
        else f"[{row['from_offset']}, {row['planned']})"
    ),
    # Spark's Kafka source goes back where a topic was made anew.
    "offsets": lambda row: (
        None if row["from_offset"] is None else max(row["planned"] - row["from_offset"], 0)
    ),
}


@app.command()
def export(
    path: PathArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="NEW_CHECKPOINT",
            help="Copy the whole checkpoint to here, for a query that goes on where this one "
            "ended, with its id and batch numbers. Stop the query first.",
        ),
    ] = "",
    source: Annotated[
        int | None,
        typer.Option(min=0, help="Which source's positions, where the query reads several."),
    ] = None,
    connector: Annotated[
        ExportFormat, typer.Option("--format", help="The source that is to read on.")
    ] = ExportFormat.KAFKA,
    commit_table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="The commit table of a query that commits individually. Positions then begin "
            "below what is not done; --to refuses if something is not.",
        ),
    ] = "",
    option: SourceOptionsOption = None,
    output: OutputOption = OutputFormat.JSON,
) -> None:
    """Print the positions as startingOffsets, or copy the checkpoint.

    For the JVM connector: format("kafka") goes on from both.
    """
    del connector  # there is one
    if to and source is not None:
        raise typer.BadParameter("--source is for positions; --to takes all sources along")
    table = TableOfCommits(commit_table, storage_of(named_options("", "", option)))
    origin = open_directory(path, table.storage)
    progress = load_progress(origin)
    if to:
        _export_copy(origin, progress, to, table, output)
    else:
        _export_positions(progress, choose_source(progress, source), table, output)


def _export_positions(
    progress: CheckpointProgress, source: int, table: TableOfCommits, output: OutputFormat
) -> None:
    positions, end = starting_offsets(progress, source), kafka_sources(progress)[source]
    if end.commits is not None and table.path:
        below = committed_below(positions, progress, source, table)
        again = sum(at - below[partition] for partition, at in positions.items())
        positions = below
        if again:
            note(
                f"some of the last {again:,} offsets are not done: a query that starts here reads "
                "them all, and a sink may have seen some already"
            )
    elif end.commits is not None:
        note(
            "the query commits individually, and records below these positions may not be done: "
            "with --commit-table the positions begin below those"
        )
    for batch in progress.unfinished:
        note(
            f"batch {batch.batch_id} is planned and not committed: a query that starts here reads "
            "its records again, and a sink may have seen them already"
        )
    if output is OutputFormat.JSON:
        print_text(jvm_offset(positions))
    else:
        rows = [[*partition, at] for partition, at in sorted(positions.items())]
        print_table("The next offset to read", ["topic", "partition", "offset"], rows)


def _export_copy(
    origin: Directory,
    progress: CheckpointProgress,
    to: str,
    table: TableOfCommits,
    output: OutputFormat,
) -> None:
    sources = copy_checkpoint(origin, progress, open_directory(to, table.storage), table)
    values = {
        "checkpoint": to,
        "query_id": progress.query_id,
        "sources": sources,
        "last_committed": progress.committed,
    }
    print_as(output, "checkpoint.export/1", values, _show_copy)


def _show_copy(values: Mapping[str, Any]) -> None:
    shown = {name.replace("_", " "): value for name, value in values.items()}
    shown["sources"] = ", ".join(map(str, values["sources"]))
    print_record('Checkpoint for format("kafka")', shown)


def describe(progress: CheckpointProgress, batches: int) -> dict[str, Any]:
    """The document that `--output json` prints; the tables show the same."""
    last = progress.planned[-1]
    by_id = {batch.batch_id: batch for batch in progress.planned}
    committed = by_id.get(-1 if progress.committed is None else progress.committed)
    return {
        "query_id": progress.query_id,
        "last_planned": last.batch_id,
        "last_committed": progress.committed,
        "planned_not_committed": [batch.batch_id for batch in progress.unfinished],
        "sources": _sources(progress),
        "positions": _positions(last, by_id.get(last.batch_id - 1), committed),
        "batches": [
            {
                "batch": batch.batch_id,
                "planned_at": iso(batch.planned_at_ms),
                "offsets": offsets_of(batch, by_id.get(batch.batch_id - 1)),
                "state": "planned" if batch in progress.unfinished else "committed",
            }
            for batch in progress.planned[-batches:]
        ],
    }


def _sources(progress: CheckpointProgress) -> list[dict[str, Any]]:
    """Which connector wrote each source's last offset, what it commits by, and the JVM connector's
    own first ones."""
    return [
        {
            "source": number,
            "written_by": None if end is None else "kafka" if end.foreign else "keyrange",
            "commit_mode": None
            if end is None
            else "batch"
            if end.commits is None
            else "individual",
            "initial": json.loads(jvm_offset(progress.initial[number]))
            if number in progress.initial
            else None,
        }
        for number, end in enumerate(progress.planned[-1].ends)
    ]


def _positions(
    last: PlannedBatch, before: PlannedBatch | None, committed: PlannedBatch | None
) -> list[dict[str, Any]]:
    done = committed.ends if committed is not None else ()
    return [
        {
            "source": row["source"],
            **row["partition"]._asdict(),
            "committed": _at(done[row["source"]] if done else None, row["partition"]),
            "planned": _at(last.ends[row["source"]], row["partition"]),
            "from_offset": None if row["range"] is None else row["range"].from_offset,
        }
        for row in ranges_of(last, before)
    ]


def _at(end: Checkpoint | None, partition: TopicPartition) -> int | None:
    return end.positions.get(partition) if end is not None else None


def offsets_of(
    batch: PlannedBatch, before: PlannedBatch | None, source: int | None = None
) -> int | None:
    """How many offsets a batch reads, of all sources or of one; None where that is not on file."""
    rows = [row for row in ranges_of(batch, before) if source in (None, row["source"])]
    spans = [row["range"] for row in rows]
    return None if None in spans else sum(span.size for span in spans)
