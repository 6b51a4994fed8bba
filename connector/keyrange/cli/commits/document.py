"""What `keyrange commits` prints, as plain documents: `--output json` has them as they are, and the
screens show the same. And a partition's offsets as one line of text: what is committed, done above
it, a pending record, to come.

    ████████▒▒▒○▒▒▒▒▒▒○○▒▒▒▒▒▒▒▒░░░░····
    41,200                      50,000  61,000

The part between the committed offset and the position is drawn to scale; what lies before and
behind it only stands for more of the same.

Rule of this file: no clock and no table. What is known, and what time it is, comes in.
"""

from __future__ import annotations

from bisect import bisect_left
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
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.lag import offsets_behind
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
    dead: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The state of a source; `last` is its last commit. `errors` are the last ones of pending
    records, as far as they are known, and `dead` is what `dead_letters_of` counts."""
    return {
        "group": last.group if last else None,
        "source_id": last.source_id if last else None,
        "query_id": last.query_id if last else None,
        "run_id": known.run_id or None,
        "seq": known.seq,
        "batch_id": known.batch_id if known.batch_id >= 0 else None,
        "committed_at": iso(last.committed_at_ms) if last else None,
        "terms": asdict(known.terms) if known.terms else None,
        **(dead or {"dead_letters": None, "dead_timers": None}),
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


WIDTH: Final = 76
_HEAD: Final = 6
_TAIL_MAX: Final = 12


# One character for each kind of offsets, in the order in which the legend explains them.
BLOCKS: Final = "█▒○●░·"
ASCII: Final = "#=oO-."
_LEGEND: Final = (
    "{} committed  {} done above  {} pending  {} 10%+  {} done by some keys  {} to come"
)


def legend(marks: str) -> str:
    return _LEGEND.format(*marks)


def marks_for(encoding: str | None) -> str:
    """What an output can show."""
    return BLOCKS if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def draw(state: PartitionState, log_end: int, marks: str, width: int = WIDTH) -> list[str]:
    """The line, and the offsets below it. `log_end` -1 stands for one that is not known."""
    begin, position = state.committed, state.position
    head = _HEAD if begin else 0
    scaled = position - begin
    tail = 0
    if log_end > position:
        # To scale where there is room for it, and otherwise as long as there is.
        share = (log_end - position) * (width - head) // (log_end - begin)
        tail = min(max(share, 1), _TAIL_MAX)
    cells = min(width - head - tail, scaled)
    if not scaled:
        head = width - tail if begin else 0
    line = marks[0] * head + _scaled(state, cells, marks) + marks[-1] * tail
    labels = [(head - 1 if head and not scaled else head, f"{begin:,}")]
    if scaled:
        labels.append((head + cells, f"{position:,}"))
    if tail:
        labels.append((head + cells + tail, f"{log_end:,}"))
    return [line, _below(labels, width)]


def _scaled(state: PartitionState, cells: int, marks: str) -> str:
    """The offsets between committed and position."""
    if not cells:
        return ""
    _, done, few, dense, some, waiting = [*marks]
    begin, span = state.committed, state.position - state.committed
    pending = [record.offset for record in state.pending]
    scanned = [piece.scanned for piece in state.pieces]
    least, most = min(scanned), max(scanned)
    line = []
    for cell in range(cells):
        from_offset = begin + span * cell // cells
        until_offset = begin + span * (cell + 1) // cells
        found = bisect_left(pending, until_offset) - bisect_left(pending, from_offset)
        if found:
            line.append(dense if found * 10 >= until_offset - from_offset else few)
        elif from_offset >= most:
            line.append(waiting)
        elif until_offset > least:
            line.append(some)
        else:
            line.append(done)
    return "".join(line)


def _below(labels: Sequence[tuple[int, str]], width: int) -> str:
    """Texts at their columns: the first begins there, the others end there, or farther left where
    the next one needs the room; never over one another."""
    (column, first), *others = labels
    ends: list[int] = []
    room = width
    for end, label in reversed(others):
        ends.insert(0, min(end, room))
        room = ends[0] - len(label) - 2
    text = " " * max(min(column, room - len(first)), 0) + first
    for end, (_, label) in zip(ends, others, strict=True):
        text = text.ljust(max(end - len(label), len(text) + 2)) + label
    return text
