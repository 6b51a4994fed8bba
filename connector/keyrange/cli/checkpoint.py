"""`keyrange checkpoint`: look into a Spark checkpoint directory, local or remote. It only reads."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from keyrange.cli.render import OutputFormat, OutputOption, make_output
from keyrange.core.spark_log import PlannedBatch, Progress, ranges_of, read_planned_batch
from keyrange.core.spark_log import read_progress as read_spark_progress
from keyrange.errors import error

app = typer.Typer(no_args_is_help=True, help="Look into a Spark checkpoint directory.")


@app.callback()
def _noun() -> None:
    pass


@app.command()
def show(
    path: Annotated[
        str, typer.Argument(help="The checkpoint location: a directory or a URI such as s3://...")
    ],
    batches: Annotated[int, typer.Option(min=1, help="How many of the last batches to list.")] = 5,
    output: OutputOption = OutputFormat.TEXT,
) -> None:
    """Batches, offsets per partition, and what was planned but not committed."""
    progress = load_progress(path)
    if not progress.planned:
        raise error("INVALID_CHECKPOINT_PATH", "the checkpoint holds no batch", path=path)
    document = describe(progress, batches)
    if output is OutputFormat.JSON:
        print(json.dumps(document))
        return
    out = make_output(output)
    unfinished = document["planned_not_committed"]
    out.record(
        f"Checkpoint {path}",
        {
            "query id": document["query_id"],
            "last batch planned": document["last_planned"],
            "last batch committed": document["last_committed"],
            "planned, not committed": ", ".join(map(str, unfinished)) or "none",
        },
    )
    out.table(
        "Positions: the next offset to read",
        ["source", "topic", "partition", "committed", "planned", "last batch reads", "offsets"],
        [
            [
                row["source"],
                row["topic"],
                row["partition"],
                row["committed"],
                row["planned"],
                "start not on file"
                if row["from_offset"] is None
                else f"[{row['from_offset']}, {row['planned']})",
                None if row["from_offset"] is None else row["planned"] - row["from_offset"],
            ]
            for row in document["positions"]
        ],
    )
    out.table(
        "Last batches",
        ["batch", "planned at", "offsets", "state"],
        [
            [row["batch"], row["planned_at"], row["offsets"], row["state"]]
            for row in document["batches"]
        ],
    )


def load_progress(path: str) -> Progress:
    """Read a checkpoint directory through Arrow's filesystems."""

    try:
        filesystem, root = _filesystem(path)
        query_id = _query_id(filesystem, root)
        offsets = _numbered(filesystem, f"{root}/offsets")
        commits = _numbered(filesystem, f"{root}/commits")
        planned = [
            read_planned_batch(number, _read(filesystem, f"{root}/offsets/{number}"))
            for number in offsets
        ]
    except (OSError, ValueError) as failure:
        raise error(
            "INVALID_CHECKPOINT_PATH", f"the checkpoint cannot be read: {failure}", path=path
        ) from None
    return read_spark_progress(query_id, planned, commits)


def _filesystem(path: str) -> tuple[Any, str]:
    """Arrow's filesystem for a path or a URI as Spark writes them."""
    from pathlib import Path

    from pyarrow import fs

    # Hadoop's names for S3, and its short form of file URIs.
    uri = re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:/(?!/)", "file:///", path))
    if "://" in uri:
        filesystem, root = fs.FileSystem.from_uri(uri)
        return filesystem, str(root)
    return fs.LocalFileSystem(), str(Path(path).expanduser().resolve())


def _query_id(filesystem: Any, root: str) -> str:
    document = json.loads(_read(filesystem, f"{root}/metadata"))
    return str(document.get("id", "")) if isinstance(document, dict) else ""


def _numbered(filesystem: Any, directory: str) -> list[int]:
    from pyarrow import fs

    found = filesystem.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    return sorted(int(each.base_name) for each in found if each.base_name.isdigit())


def _read(filesystem: Any, path: str) -> str:
    with filesystem.open_input_stream(path) as stream:
        return bytes(stream.read()).decode("utf-8")


def describe(progress: Progress, batches: int) -> dict[str, Any]:
    """The document that `--output json` prints; the tables show the same."""
    last = progress.planned[-1]
    by_id = {batch.batch_id: batch for batch in progress.planned}
    committed = by_id.get(-1 if progress.committed is None else progress.committed)
    return {
        "query_id": progress.query_id,
        "last_planned": last.batch_id,
        "last_committed": progress.committed,
        "planned_not_committed": [batch.batch_id for batch in progress.unfinished],
        "positions": _positions(last, by_id.get(last.batch_id - 1), committed),
        "batches": [
            _batch(batch, by_id.get(batch.batch_id - 1), progress)
            for batch in progress.planned[-batches:]
        ],
    }


def _positions(
    last: PlannedBatch, before: PlannedBatch | None, committed: PlannedBatch | None
) -> list[dict[str, Any]]:
    rows = []
    for row in ranges_of(last, before):
        end = last.ends[row["source"]]
        done = committed.ends[row["source"]] if committed is not None else None
        span = row["range"]
        rows.append(
            {
                "source": row["source"],
                "topic": row["partition"].topic,
                "partition": row["partition"].partition,
                "committed": done.positions.get(row["partition"]) if done is not None else None,
                "planned": end.positions[row["partition"]] if end is not None else None,
                "from_offset": None if span is None else span.from_offset,
            }
        )
    return rows


def _batch(batch: PlannedBatch, before: PlannedBatch | None, progress: Progress) -> dict[str, Any]:
    spans = [row["range"] for row in ranges_of(batch, before)]
    known = all(span is not None for span in spans)
    return {
        "batch": batch.batch_id,
        "planned_at": datetime.fromtimestamp(batch.planned_at_ms / 1000, UTC).isoformat(
            timespec="milliseconds"
        ),
        "offsets": sum(span.size for span in spans) if known else None,
        "state": "planned" if batch in progress.unfinished else "committed",
    }
