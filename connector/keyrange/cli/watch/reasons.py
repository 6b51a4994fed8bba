"""In which state `keyrange watch` takes a query to be, and why, by what can be seen from outside.

Rule of this file: as in `document`, no clock and no source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from keyrange.cli.values import iso
from keyrange.observing.model.query_progress import lost_text
from keyrange.report.page_parts import partition_name
from keyrange.text.formats import are, span

if TYPE_CHECKING:
    from keyrange.cli.watch.observers import Answers, ToldBatch
    from keyrange.kafka.open_transactions import HeldBack

# Over how long a rate is told, at the least; a batch that takes longer is taken whole.
RATE_MS: Final = 60_000
# A batch is late when it takes this many times as long as usual, and longer than RATE_MS.
_LATE_TIMES: Final = 5
_HELD_SHOWN: Final = 3


class Cause(Enum):
    """What may hold a query up; by it a reader is told what to do."""

    GUARD = "guard"
    GONE = "gone"
    TRANSACTION = "transaction"
    LATE_BATCH = "late batch"
    NO_BATCH = "no batch"
    PENDING = "pending"
    DEAD = "dead letters"
    MEMBERS = "members"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause, with what is seen of it as a sentence without its full stop."""

    cause: Cause
    text: str


def late_after_ms(batch: Mapping[str, Any]) -> int:
    """After how long without a batch that is done a query is late."""
    usual_ms = batch["usual_ms" if batch["planned_not_committed"] else "every_ms"] or 0
    return int(max(usual_ms * _LATE_TIMES, RATE_MS))


def judged(document: Mapping[str, Any], answers: Answers, quiet_ms: int | None) -> dict[str, Any]:
    """In which state the query is, and the reasons that can be seen from outside."""
    batch, lag = document["batch"], document["lag"]
    running = bool(batch["planned_not_committed"])
    waits_ms = batch["for_ms"]
    if not running and quiet_ms is not None:
        # No batch is planned where there is nothing to read.
        waits_ms = min(waits_ms, quiet_ms)
    is_late = waits_ms > late_after_ms(batch)
    # The ends of a batch of long ago, or of a broker that does not answer any more, say nothing of
    # what there is to read by now.
    is_of_now = lag["age_ms"] <= RATE_MS if lag["known_by"] == "now" else not is_late
    if answers.checkpoint.failure:
        state = "unknown"
    elif lag["read"] == 0 and not running and is_of_now:
        pending = (document["commits"] or {}).get("pending")
        state = "caught up" if lag["commit"] == 0 and not pending else "all read"
    elif not is_late:
        state = "working"
    else:
        is_known = lag["read"] is not None and (lag["read"] > 0 or is_of_now)
        state = "stuck" if running or is_known else "idle"
    if state == "stuck" and lag["read"]:
        # How fast it was before says nothing of when it will be done.
        none = {"all_read_in_ms": None, "least_ms": None, "most_ms": None}
        lag.update(none | {"shrinks_per_s": min(lag["shrinks_per_s"] or 0.0, 0.0)})
    found = reasons({**document, "state": state}, answers)
    return {
        "state": state,
        "stuck_since": batch["planned_at"] if state == "stuck" else None,
        "why": [each.text for each in found],
    }


def describe_held(held: HeldBack, now_ms: int) -> dict[str, Any]:
    """None stands for what the broker does not tell; `silent_ms` is since the producer wrote."""
    is_told, has_written = held.producer_id >= 0, held.written_ms >= 0
    return {
        "from_offset": held.span.from_offset,
        "until_offset": held.span.until_offset,
        "producer_id": held.producer_id if is_told else None,
        "producer_epoch": held.producer_epoch if is_told else None,
        "written_at": iso(held.written_ms) if has_written else None,
        "silent_ms": max(now_ms - held.written_ms, 0) if has_written else None,
    }


def held_text(document: Mapping[str, Any]) -> str:
    """`300 offsets from 41207 on are held back ...`, without the partition."""
    begin = document["from_offset"]
    words = (
        f"{document['until_offset'] - begin:,} offsets from {begin} on are held back from "
        "read_committed by an open transaction"
    )
    if document["producer_id"] is not None:
        words += f" of producer {document['producer_id']} (epoch {document['producer_epoch']})"
    if document["silent_ms"] is not None:
        words += f", which wrote last {span(document['silent_ms'])} ago"
    return words


def _hangs(held: Mapping[str, Any] | None) -> bool:
    """Whether nobody has written in the open transaction for long, or it is not known who does."""
    return held is not None and (held["silent_ms"] is None or held["silent_ms"] > RATE_MS)


def reasons(document: Mapping[str, Any], answers: Answers) -> list[Reason]:
    """What may hold a query up, the weightiest first, by its state and what else is known of it."""
    return [Reason(*each) for each in _reasons(document, answers.progress.value or [])]


def _reasons(document: Mapping[str, Any], told: Sequence[ToldBatch]) -> Iterable[tuple[Cause, str]]:
    throttle, commits, members = document["throttle"], document["commits"], document["members"]
    if throttle is not None and throttle["factor"] < 1:
        yield Cause.GUARD, f"the volume guard lets in {throttle['factor']:.0%}: {throttle['why']}"
    elif throttle is not None and throttle["recovered"] is False and document["state"] == "stuck":
        # A guard that has seen the volume at the limit lets in nothing before it has recovered.
        yield Cause.GUARD, f"the volume guard may hold the query back still: {throttle['why']}"
    if gone := [row for row in document["partitions"] if row["gone"]]:
        names = ", ".join(map(partition_name, gone[:3]))
        yield Cause.GONE, f"{are(len(gone), 'partition')} not in the cluster any more: {names}"
    # A short transaction is nothing: what is held back by one that writes comes soon.
    for row in [row for row in document["partitions"] if _hangs(row["held_back"])][:_HELD_SHOWN]:
        yield Cause.TRANSACTION, f"{partition_name(row)}: {held_text(row['held_back'])}"
    batch, is_stuck = document["batch"], document["state"] == "stuck"
    if is_stuck and batch["planned_not_committed"]:
        usual = f", others took {span(batch['usual_ms'])}" if batch["usual_ms"] else ""
        yield (
            Cause.LATE_BATCH,
            f"batch {batch['last_planned']} was planned {span(batch['for_ms'])} ago and is not "
            f"done{usual}: a task that is slow, or a query that has ended",
        )
    elif is_stuck:
        yield (
            Cause.NO_BATCH,
            f"no batch was planned for {span(batch['for_ms'])}, and there is something to read: "
            "the query has ended, or is held back",
        )
    if commits is not None and commits["oldest_pending"]:
        oldest = commits["oldest_pending"]
        yield (
            Cause.PENDING,
            f"{are(commits['pending'], 'record')} not done, the oldest for "
            f"{span(oldest['age_ms'])}: offset {oldest['offset']} of {partition_name(oldest)}",
        )
    if commits is not None and commits["dead_letters"]:
        yield Cause.DEAD, f"{are(commits['dead_letters'], 'record')} given up, as dead letters"
    if commits is not None and commits["dead_timers"]:
        yield Cause.DEAD, f"{are(commits['dead_timers'], 'timer')} given up, as dead letters"
    if members is not None and members["away"]:
        names = ", ".join(row["name"] for row in members["away"][:3])
        share = f"{sum(row['share'] for row in members['away']):.0%} of the keys"
        yield Cause.MEMBERS, f"{are(len(members['away']), 'member')} away, with {share}: {names}"
    # What nobody will ever read, by the batches that the progress file knows of.
    if lost := [loss for each in told for loss in each.progress.lost]:
        yield Cause.LOST, f"lost since batch {told[0].progress.batch_id}: {lost_text(lost)}"
