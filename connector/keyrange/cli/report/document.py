"""What `keyrange report` shows beside the documents of other commands: the offsets of each batch,
by the checkpoint and by the progress file.

Rule of this file: no clock and no file. What is known comes in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from keyrange.cli.times import iso, ms_of
from keyrange.errors import KeyrangeError
from keyrange.kafka.model.offsets import OffsetRange, TopicPartition
from keyrange.observing.model.query_progress import is_figure, work_done
from keyrange.source.model.checkpoint import RESERVED, Checkpoint, read_positions
from keyrange.storage.model.spark_log import CheckpointProgress, PlannedBatch, ranges_of

# Of all batches together: more would take memory, and show no more in a picture.
POSITIONS_MAX: Final = 300_000


def history(progress: CheckpointProgress, source: int, batches: int) -> list[dict[str, Any]]:
    """The last batches of a source, oldest first. Of queries that commit individually each has its
    position in every partition, and where the log ended: of partitions that a batch read to the end
    that is the batch's own end. Where there are very many partitions older batches have none.
    """
    by_id = {batch.batch_id: batch for batch in progress.planned}
    found = []
    room = POSITIONS_MAX
    for batch in reversed(progress.planned[-batches:]):
        spans = [
            row["range"]
            for row in ranges_of(batch, by_id.get(batch.batch_id - 1))
            if row["source"] == source
        ]
        end = batch.ends[source] if source < len(batch.ends) else None
        positions = _positions(end) if end is not None and room > 0 else []
        room -= len(positions)
        found.append(
            {
                "batch": batch.batch_id,
                "at": iso(batch.planned_at_ms),
                "at_ms": batch.planned_at_ms,
                "state": "planned" if batch in progress.unfinished else "committed",
                "offsets": None if None in spans else sum(span.size for span in spans),
                "positions": positions,
            }
        )
    return found[::-1]


def _positions(end: Checkpoint) -> list[dict[str, Any]]:
    """Nothing where it is not known how far the logs went."""
    return [
        {**partition._asdict(), "offset": end.positions[partition], "log_end": log_end}
        for partition, log_end in sorted(end.log_ends.items())
    ]


def ranges_of_batch(
    progress: CheckpointProgress, source: int, batch: PlannedBatch
) -> dict[TopicPartition, OffsetRange]:
    """What a batch read of a source, as far as its start is on file."""
    before = next((b for b in progress.planned if b.batch_id == batch.batch_id - 1), None)
    return {
        row["partition"]: row["range"]
        for row in ranges_of(batch, before)
        if row["source"] == source and row["range"] is not None and row["range"].size
    }


def event(line: bytes, source: int) -> dict[str, Any]:
    """A line of a progress file, a StreamingQueryProgress of Spark as JSON, as far as a source of
    the query is concerned. Raises ValueError for what is none."""
    try:
        document = json.loads(line)
    except (RecursionError, ValueError):
        raise ValueError("it is no JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("sources"), list):
        raise ValueError("it is no progress of a query")
    sources = document["sources"]
    found = sources[source] if source < len(sources) else {}
    triggered = _object(document.get("durationMs")).get("triggerExecution")
    # Spark leaves the duration of a batch out of some of its forms.
    duration_ms = document.get("batchDuration", triggered)
    if not isinstance(found, dict) or not _is_whole(document.get("batchId")):
        raise ValueError("it names no batch")
    start, end, latest = (
        _offset(found.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
    )
    metrics = _object(_object(latest.get(RESERVED)).get("metrics"))
    work = work_done(document)
    at_ms = ms_of(str(document.get("timestamp")))
    rows = _whole(found.get("numInputRows", document.get("numInputRows")))
    return {
        "query_id": str(document.get("id", "")),
        "run_id": str(document.get("runId", "")),
        "batch": document["batchId"],
        "at": iso(at_ms),
        "at_ms": at_ms,
        "records": rows if work is None else work.records,
        "duration_ms": _whole(duration_ms),
        **_read(start, end, latest),
        **{name: _figures(metrics.get(name)) for name in ("members", "plan", "volumes")},
        "state": "committed",
    }


def _read(start: Any, end: Any, latest: Any) -> dict[str, Any]:
    """Where a batch ended in each partition, where the logs did, and how many offsets it was."""
    try:
        began, ended, ends = (
            read_positions({k: v for k, v in each.items() if k != RESERVED}, least=0)
            for each in (start, end, latest)
        )
    except KeyrangeError as failure:
        raise ValueError(failure.message) from None
    began |= read_positions(_object(_object(end.get(RESERVED)).get("initial")), least=0)
    known = began.keys() >= ended.keys()
    return {
        "offsets": sum(at - began[each] for each, at in ended.items()) if known else None,
        "positions": [
            {**each._asdict(), "offset": at, "log_end": ends.get(each)}
            for each, at in sorted(ended.items())
        ],
    }


def _offset(value: Any) -> dict[str, Any]:
    """An offset, which is JSON or the text of it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (RecursionError, ValueError):
            return {}
    return _object(value)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _figures(value: Any) -> dict[str, Any]:
    """A part of the metrics, without numbers that nothing can be drawn of."""
    return {
        name: each
        for name, each in _object(value).items()
        if is_figure(each) or not isinstance(each, int | float)
    }


def _is_whole(value: Any) -> bool:
    return type(value) is int and is_figure(value) and value >= 0


def _whole(value: Any) -> int | None:
    return value if _is_whole(value) else None


def last_events(lines: Sequence[bytes], source: int, query_id: str, batches: int) -> dict[str, Any]:
    """The events of a query's last batches by the lines of its progress file, oldest first, and how
    many lines were not taken: those of other queries, and those that are none.

    Of a batch that ran several times the last one counts. The last line may be half written.
    """
    found: dict[int, dict[str, Any]] = {}
    others = unreadable = 0
    room = POSITIONS_MAX
    for at, line in enumerate(reversed(lines)):
        if not line.strip():
            continue
        try:
            read = event(line, source)
        except (ValueError, OverflowError):
            unreadable += at > 0
            continue
        if query_id and read["query_id"] != query_id:
            others += 1
        elif read["batch"] not in found:
            if room <= 0:
                read["positions"] = []
            room -= len(read["positions"])
            found[read["batch"]] = read
            if len(found) == batches:
                break
    events = [found[batch] for batch in sorted(found)]
    return {"events": events, "others": others, "unreadable": unreadable}
