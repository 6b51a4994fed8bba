"""In which state a query is, by the rule and in the words of `keyrange watch`, of what a report has
read; and what somebody does about it, in a sentence or two and a command with the query's places.

Rule of this file: no clock. What was read, and what time it is, comes in.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.source_options import SERVERS, folded
from keyrange.cli.times import ms_of
from keyrange.cli.watch.document import Seen, describe
from keyrange.cli.watch.observers import Answer, Answers
from keyrange.cli.watch.reasons import Cause, Reason, reasons
from keyrange.cli.watch.view import all_read_text, facts, failure_text, read_lag_text, state_text
from keyrange.report.page_parts import QueryState, Source
from keyrange.storage.model.spark_log import CheckpointProgress
from keyrange.text.formats import span

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Ends, ToldBatch, Where

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

    def answer(name: str, value: Callable[[Any], Any]) -> Answer[Any] | None:
        source = read[name]
        if source.missing:
            return None
        age_ms = max(now_ms - ms_of(source.since), 0) if source.since else 0
        known = None if source.document is None else value(source.document)
        return Answer(known, age_ms, source.failure)

    return Answers(
        Answer(progress),
        progress=answer("progress", lambda _: list(told)),
        broker=answer("ends", lambda _: ends),
        commits=answer("commits", lambda document: document["show"]),
        members=answer("members", lambda document: document["list"]),
        volumes=answer("volumes", lambda document: document),
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
    return folded(where.named).get(SERVERS, "") or _UNKNOWN_SERVERS


def _command(begin: str, *words: str) -> str:
    """A line for a shell; `begin` is taken as it is."""
    return " ".join([begin, *map(shlex.quote, words)])
