"""What somebody does about a query, by what `keyrange watch` says of it.

Rule of this file: no clock and no source. The documents come in; a sentence or two and a command
with the places of this query go out.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.source_options import SERVERS, folded
from keyrange.cli.watch.reasons import Cause, Reason

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Where

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
        if causes[0] in (Cause.LATE_BATCH, Cause.NO_BATCH) and Cause.PENDING in causes:
            return _BY_CAUSE[causes[0]](document, where)[0], _pending(document, where)[1]
        return _BY_CAUSE[reasons[0].cause](document, where)
    if any(each["source"] == "broker" for each in document["failures"]):
        text = "The cluster did not answer. The command says which part of the way to it fails."
        return text, _command("keyrange doctor --bootstrap-servers", _servers(where))
    lag = document["lag"]
    if lag["read"] is None:
        text = "Whether anything is left to read is not known. The command asks Kafka; "
        text += "--progress FILE gives the lag as of the last batch."
        return text, _watch(where)
    if lag["read"] == 0:
        return "Nothing needs to be done.", ""
    if lag["shrinks_per_s"] is None:
        text = "Nothing needs to be done as far as can be seen. The command shows over a minute "
        return text + "whether the lag shrinks.", _watch(where)
    if lag["shrinks_per_s"] > 0:
        return "Nothing needs to be done: the lag shrinks.", ""
    text = "The query reads no faster than records arrive. splitBy=keyRange with a larger "
    text += "parallelism gives it more tasks; the command shows the tasks of a batch."
    topics = ",".join(sorted({row["topic"] for row in document["partitions"]}))
    plan = _command("keyrange ranges plan --bootstrap-servers", _servers(where), "--topic", topics)
    return text, plan


def _guard(_: Document, where: Where) -> Advice:
    known = folded(where.named)
    limit = next((f"{name}={known[name]}" for name in _LIMITS if name in known), "")
    servers = known.get(_ADMIN_SERVERS) or _servers(where)
    text = "Free space on the volumes that are at the limit, for example by a shorter retention: "
    text += "the query reads on by itself as soon as they have it. The command shows them."
    return text, _command(
        "keyrange volumes show --bootstrap-servers",
        servers,
        *("--option", limit or "min.available.ratio=0.1"),
    )


def _gone(document: Document, where: Where) -> Advice:
    topic = next(row["topic"] for row in document["partitions"] if row["gone"])
    text = "Either the topic was deleted or made anew, or this is another cluster. The command "
    text += "shows which partitions the cluster has."
    servers = _servers(where)
    return text, _command("keyrange doctor --bootstrap-servers", servers, "--topic", topic)


def _transaction(document: Document, where: Where) -> Advice:
    row = next(row for row in document["partitions"] if row["held_back"])
    text = "Kafka ends the transaction after the producer's transaction.timeout.ms, and the query "
    text += "reads on by itself. If the transaction stays, the command ends it."
    return text, _command(
        "kafka-transactions.sh --bootstrap-server",
        _servers(where),
        *("abort", "--topic", row["topic"], "--partition", str(row["partition"])),
        *("--start-offset", str(row["held_back"]["from_offset"])),
    )


def _late_batch(_: Document, __: Where) -> Advice:
    text = "Read the end of the driver's log: a query that has ended wrote an error with a "
    text += "condition in brackets, which the command explains. If the query runs, Spark's web "
    return text + "page shows which task is slow.", _errors()


def _no_batch(_: Document, __: Where) -> Advice:
    text = "Read the end of the driver's log: a query that has ended wrote an error with a "
    text += "condition in brackets, which the command explains; start it again. A query that runs "
    return text + "says there what it waits for.", _errors()


def _pending(_: Document, where: Where) -> Advice:
    text = "The command lists these records with their cause and next attempt. Mend the function, "
    text += "or the service that it calls: the query delivers them again."
    return text, _command("keyrange commits gaps", where.commits, "--limit", "5")


def _dead(_: Document, where: Where) -> Advice:
    text = "The command lists these records with their errors. When the cause is mended, keyrange "
    text += "deadletters replay hands them out again; while they stay dead nobody reads them."
    return text, _command("keyrange deadletters list", where.commits)


def _members(_: Document, where: Where) -> Advice:
    text = "Other executors read the key ranges of absent members until these come back or "
    text += "registration.timeout.ms has passed. If a host will not come back, take its member out "
    return f"{text}with keyrange members remove.", _command("keyrange members list", where.members)


def _lost(_: Document, __: Where) -> Advice:
    text = "Kafka no longer had these records when the query came to them, and "
    text += "failOnDataLoss=false lets it go on. Let the topic keep records for longer than the "
    return f"{text}query may stand still.", _command("keyrange errors KAFKA_DATA_LOSS")


_BY_CAUSE: Final[Mapping[Cause, Callable[[Document, Where], Advice]]] = {
    Cause.GUARD: _guard,
    Cause.GONE: _gone,
    Cause.TRANSACTION: _transaction,
    Cause.LATE_BATCH: _late_batch,
    Cause.NO_BATCH: _no_batch,
    Cause.PENDING: _pending,
    Cause.DEAD: _dead,
    Cause.MEMBERS: _members,
    Cause.LOST: _lost,
}


def _servers(where: Where) -> str:
    return folded(where.named).get(SERVERS, "") or _UNKNOWN_SERVERS


def _watch(where: Where) -> str:
    return _command("keyrange watch", where.checkpoint, "--bootstrap-servers", _servers(where))


def _errors() -> str:
    return "keyrange errors CONDITION"


def _command(begin: str, *words: str) -> str:
    """A line for a shell; `begin` is taken as it is."""
    return " ".join([begin, *map(shlex.quote, words)])
