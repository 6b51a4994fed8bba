"""What `keyrange report` shows beside the documents of other commands: the offsets of each batch,
by the checkpoint and by the progress file; in which state the query is, by the rule and in the
words of `keyrange watch`; and what somebody does about it, with a command that has its places.

Rule of this file: no clock and no file. What is known, and what time it is, comes in.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.checkpoint.commands import offsets_of
from keyrange.cli.source_options import SERVERS, folded, value_of
from keyrange.cli.values import iso, ms_of
from keyrange.cli.watch.document import Seen, describe
from keyrange.cli.watch.observers import Answer, Answers
from keyrange.cli.watch.reasons import Cause, Reason, reasons
from keyrange.cli.watch.view import all_read_text, facts, failure_text, read_lag_text, state_text
from keyrange.errors import KeyrangeError
from keyrange.model.checkpoint import RESERVED, Checkpoint, read_positions
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.observing.model.query_progress import (
    is_figure,
    offset_document,
    parts_in,
    positions_in,
    work_done,
)
from keyrange.report.page_parts import QueryState, Source
from keyrange.storage.model.spark_log import CheckpointProgress, PlannedBatch, ranges_of
from keyrange.text.formats import span

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Ends, ToldBatch, Where

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
        end = batch.ends[source] if source < len(batch.ends) else None
        positions = _positions(end) if end is not None and room > 0 else []
        room -= len(positions)
        found.append(
            {
                "batch": batch.batch_id,
                "at": iso(batch.planned_at_ms),
                "at_ms": batch.planned_at_ms,
                "state": "planned" if batch in progress.unfinished else "committed",
                "offsets": offsets_of(batch, by_id.get(batch.batch_id - 1), source),
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
    if not isinstance(found, dict) or _whole(document.get("batchId")) is None:
        raise ValueError("it names no batch")
    names = ("startOffset", "endOffset", "latestOffset")
    start, end, latest = (offset_document(found.get(name)) for name in names)
    parts = parts_in(latest)
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
        **{name: _figures(parts.get(name, {})) for name in ("members", "plan", "volumes")},
        "state": "committed",
    }


def _read(
    start: Mapping[str, Any], end: Mapping[str, Any], latest: Mapping[str, Any]
) -> dict[str, Any]:
    """Where a batch ended in each partition, where the logs did, and how many offsets it was."""
    try:
        began, ended, ends = map(positions_in, (start, end, latest))
        began |= read_positions(_object(_object(end.get(RESERVED)).get("initial")), least=0)
    except KeyrangeError as failure:
        raise ValueError(failure.message) from None
    known = began.keys() >= ended.keys()
    return {
        "offsets": sum(at - began[each] for each, at in ended.items()) if known else None,
        "positions": [
            {**each._asdict(), "offset": at, "log_end": ends.get(each)}
            for each, at in sorted(ended.items())
        ],
    }


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _figures(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of the metrics, without numbers that nothing can be drawn of."""
    return {
        name: each
        for name, each in part.items()
        if is_figure(each) or not isinstance(each, int | float)
    }


def _whole(value: Any) -> int | None:
    return value if is_figure(value) and type(value) is int and value >= 0 else None


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


_LEVELS: Final = {"stuck": "bad", "unknown": "unknown", "idle": "unknown"}


def query_state(where: Where, answers: Answers, seen: Seen, now_ms: int) -> QueryState:
    """What `watch` says of these answers, and what to do about it. `seen` is what earlier reports
    saw of the lag."""
    document = describe(where.checkpoint, answers, seen, now_ms)
    found = reasons(document, answers)
    failures = [f"{each['source']}: {failure_text(each)}" for each in document["failures"]]
    level = _LEVELS.get(document["state"], "warning" if found or failures else "good")
    text, command = advice(document, found, where)
    return QueryState(
        text=state_text(document),
        level=level,
        causes=[*_causes(document, found), *failures],
        advice=text,
        command=command,
        facts=facts(document),
    )


def _causes(document: Mapping[str, Any], found: Sequence[Reason]) -> list[str]:
    """Why the query is in its state; where nothing holds it up, how far it is."""
    if found:
        return [each.text for each in found]
    lag = document["lag"]
    if lag["read"] == 0:
        left = f", and {lag['commit']:,} offsets are not committed" if lag["commit"] else ""
        return [f"nothing is left to read{left}"]
    if document["state"] == "idle":
        quiet = span(document["batch"]["for_ms"])
        return [f"no batch was planned for {quiet}, and the end of the log is not known"]
    if lag["read"] is None:
        return ["batches come as usual; how far it is behind is not known"]
    return [f"nothing holds it up; it is behind by {read_lag_text(lag)}, {all_read_text(lag)}"]


def answers_of(
    progress: CheckpointProgress,
    read: Mapping[str, Source],
    told: Sequence[ToldBatch],
    ends: Ends | None,
    now_ms: int,
) -> Answers:
    """What a report has read, by the names of its sources, as `watch` has it. `told` is of the
    progress file, `ends` is what Kafka said."""

    def answer(name: str, known: Any = None) -> Answer[Any]:
        source = read[name]
        age_ms = max(now_ms - ms_of(source.since), 0) if source.since else 0
        return Answer(None if source.document is None else known, age_ms, source.failure)

    return Answers(
        Answer(progress),
        progress=answer("progress", list(told)),
        broker=answer("ends", ends),
        commits=answer("commits", (read["commits"].document or {}).get("show")),
        members=answer("members", (read["members"].document or {}).get("list")),
        volumes=answer("volumes", read["volumes"].document),
    )


Document = Mapping[str, Any]
# What to do, and the command for it, "" for none.
Advice = tuple[str, str]

# Where the reader has to fill something in.
_UNKNOWN_SERVERS: Final = "HOST:PORT"
_ADMIN_SERVERS: Final = "kafka.admin.bootstrap.servers"
_LIMITS: Final = ("min.available.ratio", "min.available.bytes")


def advice(document: Document, reasons: Sequence[Reason], where: Where) -> Advice:
    """Of a look of `watch`, with its reasons: what to do about the weightiest one."""
    if reasons:
        causes = [each.cause for each in reasons]
        is_late = causes[0] in (Cause.LATE_BATCH, Cause.NO_BATCH)
        looked_at = Cause.PENDING if is_late and Cause.PENDING in causes else causes[0]
        return _TEXTS[causes[0]], _command_for(looked_at, document, where)
    if any(each["source"] == "broker" for each in document["failures"]):
        text = "The cluster did not answer. The command says which part of the way to it fails."
        return text, _command("keyrange doctor --bootstrap-servers", _servers(where))
    watch = _command("keyrange watch", where.checkpoint, "--bootstrap-servers", _servers(where))
    lag = document["lag"]
    if lag["read"] is None:
        text = "Whether anything is left to read is not known. The command asks Kafka; "
        return f"{text}--progress FILE gives the lag as of the last batch.", watch
    if lag["read"] == 0:
        return "Nothing needs to be done.", ""
    if lag["shrinks_per_s"] is None:
        text = "Nothing needs to be done as far as can be seen. The command shows over a minute "
        return f"{text}whether the lag shrinks.", watch
    if lag["shrinks_per_s"] > 0:
        return "Nothing needs to be done: the lag shrinks.", ""
    text = "The query reads no faster than records arrive. splitBy=keyRange with a larger "
    text += "parallelism gives it more tasks; the command shows the tasks of a batch."
    topics = ",".join(sorted({row["topic"] for row in document["partitions"]}))
    plan = _command("keyrange ranges plan --bootstrap-servers", _servers(where), "--topic", topics)
    return text, plan


_TEXTS: Final = {
    Cause.GUARD: "Free space on the volumes that are at the limit, for example by a shorter "
    "retention: the query reads on by itself as soon as they have it. The command shows them.",
    Cause.GONE: "Either the topic was deleted or made anew, or this is another cluster. The "
    "command shows which partitions the cluster has.",
    Cause.TRANSACTION: "Kafka ends the transaction after the producer's transaction.timeout.ms, "
    "and the query reads on by itself. If the transaction stays, the command ends it.",
    Cause.LATE_BATCH: "Read the end of the driver's log: a query that has ended wrote an error "
    "with a condition in brackets, which the command explains. If the query runs, Spark's web "
    "page shows which task is slow.",
    Cause.NO_BATCH: "Read the end of the driver's log: a query that has ended wrote an error with "
    "a condition in brackets, which the command explains; start it again. A query that runs says "
    "there what it waits for.",
    Cause.PENDING: "The command lists these records with their cause and next attempt. Mend the "
    "function, or the service that it calls: the query delivers them again.",
    Cause.DEAD: "The command lists these records with their errors. When the cause is mended, "
    "keyrange deadletters replay hands them out again; while they stay dead nobody reads them.",
    Cause.MEMBERS: "Other executors read the key ranges of absent members until these come back or "
    "registration.timeout.ms has passed. If a host will not come back, take its member out with "
    "keyrange members remove.",
    Cause.LOST: "Kafka no longer had these records when the query came to them, and "
    "failOnDataLoss=false lets it go on. Let the topic keep records for longer than the query may "
    "stand still.",
}


def _command_for(cause: Cause, document: Document, where: Where) -> str:
    """The command that shows more of a cause, or ends it."""
    servers = _servers(where)
    match cause:
        case Cause.GUARD:
            known = folded(where.named)
            limit = next((f"{name}={known[name]}" for name in _LIMITS if name in known), "")
            return _command(
                "keyrange volumes show --bootstrap-servers",
                known.get(_ADMIN_SERVERS) or servers,
                *("--option", limit or "min.available.ratio=0.1"),
            )
        case Cause.GONE:
            topic = next(row["topic"] for row in document["partitions"] if row["gone"])
            return _command("keyrange doctor --bootstrap-servers", servers, "--topic", topic)
        case Cause.TRANSACTION:
            row = next(row for row in document["partitions"] if row["held_back"])
            return _command(
                "kafka-transactions.sh --bootstrap-server",
                servers,
                *("abort", "--topic", row["topic"], "--partition", str(row["partition"])),
                *("--start-offset", str(row["held_back"]["from_offset"])),
            )
        case Cause.LATE_BATCH | Cause.NO_BATCH:
            return "keyrange errors CONDITION"
        case Cause.PENDING:
            return _command("keyrange commits gaps", where.commits, "--limit", "5")
        case Cause.DEAD:
            return _command("keyrange deadletters list", where.commits)
        case Cause.MEMBERS:
            return _command("keyrange members list", where.members)
        case Cause.LOST:
            return "keyrange errors KAFKA_DATA_LOSS"


def _servers(where: Where) -> str:
    return value_of(where.named, SERVERS) or _UNKNOWN_SERVERS


def _command(begin: str, *words: str) -> str:
    """A line for a shell; `begin` is taken as it is."""
    return " ".join([begin, *map(shlex.quote, words)])
