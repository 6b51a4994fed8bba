"""What `keyrange commits` prints, as plain documents: `--output json` has them as they are, and the
screens show the same.

Rule of this file: no clock and no table. What is known, and what time it is, comes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from keyrange.cli.values import iso
from keyrange.individual_commits.model.batch_results import (
    ErrorsByOffset,
    FailureKind,
    pending_kinds,
)
from keyrange.individual_commits.model.commit import Commit, Snapshot
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.observing.model.lag import offsets_behind
from keyrange.ranges.model.key_ranges import KeyRange
from keyrange.work.model.outcome import Cause

_COUNTS: Final = ("done", "rejected", "held_back", "dead", "redelivered")


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends, and how that is known: by a `batch`, or by asking the broker `now`."""

    offset: int
    known_by: str


def describe(
    known: Snapshot,
    last: Commit | None,
    ends: Mapping[TopicPartition, LogEnd],
    now_ms: int,
    errors: ErrorsByOffset | None = None,
    dead: int | None = None,
) -> dict[str, Any]:
    """The state of a source; `last` is its last commit. `errors` are the last ones of pending
    records, as far as they are known, and `dead` counts the dead letters of the group."""
    return {
        "group": last.group if last else None,
        "source_id": last.source_id if last else None,
        "query_id": last.query_id if last else None,
        "run_id": known.run_id or None,
        "seq": known.seq,
        "batch_id": known.batch_id if known.batch_id >= 0 else None,
        "committed_at": iso(last.committed_at_ms) if last else None,
        "terms": asdict(known.terms) if known.terms else None,
        "dead_letters": dead,
        "pending_by_error": [
            {
                "cause": each.cause.name.lower(),
                "error": each.error or None,
                "records": each.records,
                **each.partition._asdict(),
                "offset": each.offset,
                "place": each.place or None,
            }
            for each in pending_kinds(known.states, errors or {})
        ],
        "partitions": [
            _partition(partition, state, ends.get(partition), now_ms)
            for partition, state in sorted(known.states.items())
        ],
    }


def _partition(
    partition: TopicPartition, state: PartitionState, end: LogEnd | None, now_ms: int
) -> dict[str, Any]:
    log_end = end.offset if end else None
    return {
        **partition._asdict(),
        "topic_id": state.topic_id or None,
        "committed": state.committed,
        "scanned": state.scanned,
        "position": state.position,
        "log_end": log_end,
        "log_end_known_by": end.known_by if end else None,
        "read_lag": offsets_behind(state.position, log_end),
        "commit_lag": offsets_behind(state.committed, log_end),
        "done_ranges": sum(len(piece.done()) for piece in state.pieces),
        **_pending(state.pending, now_ms),
        "ranges": [_piece(piece, log_end, now_ms) for piece in state.pieces],
    }


def _piece(piece: KeyRangeState, log_end: int | None, now_ms: int) -> dict[str, Any]:
    return {
        "range": bounds_of(piece.span),
        "committed": piece.committed,
        "scanned": piece.scanned,
        "read_lag": offsets_behind(piece.scanned, log_end),
        "commit_lag": offsets_behind(piece.committed, log_end),
        "done_above": [[each.from_offset, each.until_offset] for each in piece.done()],
        **_pending(piece.pending, now_ms),
    }


def _pending(pending: Sequence[PendingRecord], now_ms: int) -> dict[str, Any]:
    oldest = min(pending, key=lambda record: (record.since_ms, record.offset), default=None)
    return {
        "pending": len(pending),
        "oldest_pending": {
            "offset": oldest.offset,
            "since": iso(oldest.since_ms),
            "age_ms": max(now_ms - oldest.since_ms, 0),
        }
        if oldest
        else None,
        "deliveries_max": max((record.deliveries for record in pending), default=0),
    }


def kinds_of(rows: Iterable[Mapping[str, Any]]) -> list[FailureKind]:
    """What `pending_by_error` says."""
    return [
        FailureKind(
            Cause[row["cause"].upper()],
            row["error"] or "",
            row["records"],
            TopicPartition(row["topic"], row["partition"]),
            row["offset"],
            row["place"] or "",
        )
        for row in rows
    ]


def bounds_of(span: KeyRange) -> list[int]:
    """A key range as documents have it: its first and its last hash."""
    return [span.from_hash, span.until_hash - 1]


def gaps(
    known: Snapshot, now_ms: int, errors: ErrorsByOffset | None = None
) -> Iterator[dict[str, Any]]:
    """The pending records one by one, in order of partition and offset. One that was held back is
    due with the first of its key. `errors` are the last ones, as far as they are known."""
    for partition, state in sorted(known.states.items()):
        first: dict[int, int] = {}
        for record in state.pending:
            first_due_ms = first.setdefault(record.key_hash, record.due_ms)
            error = (errors or {}).get((partition, record.offset))
            due_ms = first_due_ms if record.cause is Cause.HELD_BACK else record.due_ms
            yield {
                **partition._asdict(),
                "offset": record.offset,
                "key_hash": record.key_hash,
                "range": bounds_of(state.piece_of(record.key_hash).span),
                "deliveries": record.deliveries,
                "cause": record.cause.name.lower(),
                "error": (error.text or error.name or None) if error is not None else None,
                "since": iso(record.since_ms),
                "age_ms": max(now_ms - record.since_ms, 0),
                "due": iso(due_ms),
                "due_in_ms": max(due_ms - now_ms, 0),
            }


def event(commit: Commit, before: Snapshot) -> dict[str, Any]:
    """What a commit did; `before` is what was known at the one before it."""
    counts = commit.counts.values()
    cuts = [f"the log of {each} was cut back to {at}" for each, at in commit.cut_back.items()]
    return {
        "seq": commit.seq,
        "kind": commit.kind.value,
        "batch_id": commit.batch_id if commit.batch_id >= 0 else None,
        "committed_at": iso(commit.committed_at_ms),
        "run_id": commit.run_id,
        **{name: sum(getattr(each, name) for each in counts) for name in _COUNTS},
        "pending": sum(len(state.pending) for state in before.after(commit).states.values()),
        "moved": list(_moved(commit, before)),
        "who": commit.who or None,
        "why": commit.why or commit.claim or ", ".join(cuts) or None,
    }


def _moved(commit: Commit, before: Snapshot) -> Iterator[dict[str, Any]]:
    """The committed offsets that are others than before."""
    for partition, state in sorted(commit.states.items()):
        known = before.states.get(partition)
        # Of a topic that was made anew the offsets begin anew too.
        same = known is not None and known.topic_id == state.topic_id
        at = known.committed if known is not None and same else None
        if at != state.committed:
            yield {**partition._asdict(), "from_offset": at, "until_offset": state.committed}
