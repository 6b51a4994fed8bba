"""The rows of the commit table: one for each piece of each partition that a commit touches.

A commit without partitions is one row whose topic is null. What SQL is to see stands in plain
columns; column `done` holds the same once more with all pending records (`blob`). The two have to
agree. Counts are of a whole partition and stand in the row of its lowest keys, so that they can be
summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from keyrange.errors import error
from keyrange.individual_commits.model.commit import (
    Commit,
    CommitCounts,
    CommitKind,
    CommitSettings,
)
from keyrange.individual_commits.model.driver_order import Fence
from keyrange.individual_commits.model.log_cut_text import read_cuts, write_cuts
from keyrange.individual_commits.model.partition_progress import KeyRangeState, PartitionState
from keyrange.individual_commits.table.damaged_rows import Faults
from keyrange.individual_commits.table.done_column import read_piece, write_piece
from keyrange.individual_commits.table.key_ranges_column import read_key_ranges, write_key_ranges
from keyrange.individual_commits.table.state_runs_column import RUN_TYPE, read_runs, write_runs
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.storage.table_store import Bounds

_TIME = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("source_id", pa.string()),
        ("query_id", pa.string()),
        ("run_id", pa.string()),
        ("commit_seq", pa.int64()),
        ("kind", pa.string()),
        ("whole", pa.bool_()),
        ("batch_id", pa.int64()),
        ("committed_at", _TIME),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("lo", pa.int64()),
        ("hi", pa.int64()),
        ("committed", pa.int64()),
        ("scanned", pa.int64()),
        ("n_holes", pa.int64()),
        ("n_ranges", pa.int64()),
        ("oldest_hole", pa.int64()),
        ("oldest_hole_at", _TIME),
        ("deliveries_max", pa.int32()),
        ("done", pa.binary()),
        ("hash", pa.string()),
        ("null_keys", pa.string()),
        ("isolation", pa.string()),
        ("done_records", pa.int64()),
        ("rejected", pa.int64()),
        ("held_back", pa.int64()),
        ("dead", pa.int64()),
        ("redelivered", pa.int64()),
        ("log_end", pa.int64()),
        ("who", pa.string()),
        ("why", pa.string()),
        ("group_seq", pa.int64()),
        ("driver", pa.string()),
        ("claim", pa.string()),
        ("state_runs", pa.list_(RUN_TYPE)),
        ("key_ranges", pa.string()),
    ]
)

# What all rows of one commit have in common.
_OF_COMMIT: Final = (
    *("group", "source_id", "query_id", "run_id", "commit_seq", "kind", "whole", "batch_id"),
    *("committed_at", "hash", "null_keys", "isolation", "who", "why"),
)
# What they have in common besides, in fences alone or in batches, and null where there is none.
_OF_FENCE: Final = ("group_seq", "driver", "claim")
_OF_KIND: Final = (*_OF_FENCE, "key_ranges")
_OF_PARTITION: Final = ("topic_id", "position", "leader_epoch")
_OF_PIECE: Final = (
    *("lo", "hi", "committed", "scanned", "n_holes", "n_ranges"),
    *("oldest_hole", "oldest_hole_at", "deliveries_max"),
)
# What is asked for of fences.
FENCE_COLUMNS: Final = (
    *("source_id", "query_id", "run_id", "commit_seq", "kind", "committed_at"),
    *("group_seq", "driver"),
)
# And of the claims in those of consumers.
CLAIM_COLUMNS: Final = ("source_id", "commit_seq", "claim")
_COUNTS: Final = ("done_records", "rejected", "held_back", "dead", "redelivered", "log_end")

# The last millisecond of the year 9999, and the first of the year 1: what SQL engines can show.
MS_MAX: Final = 253_402_300_799_999
MS_MIN: Final = -62_135_596_800_000

Row = Mapping[str, Any]


def rows_of(commit: Commit) -> pa.Table:
    """A commit as rows of `SCHEMA`."""
    common = _common(commit)
    rows: list[dict[str, Any]] = []
    for partition, state in sorted(commit.states.items()):
        counts, runs = commit.counts.get(partition), commit.runs.get(partition)
        for piece in state.pieces:
            row = common | {
                "topic": partition.topic,
                "topic_id": state.topic_id,
                "partition": partition.partition,
                "position": state.position,
                "leader_epoch": None if state.leader_epoch < 0 else state.leader_epoch,
                "done": write_piece(piece),
            }
            row |= plain_columns(piece) | _counts_row(counts)
            row["state_runs"] = write_runs(runs)
            counts = runs = None
            rows.append(row)
    return pa.Table.from_pylist(rows or [common], SCHEMA)


def plain_columns(piece: KeyRangeState) -> dict[str, Any]:
    """What the plain columns say of a piece."""
    # The offset behind the last one stands for none: what lies between two pending records is a
    # done range.
    offsets = [*(record.offset for record in piece.pending), piece.scanned]
    oldest = min(piece.pending, key=lambda record: (record.since_ms, record.offset), default=None)
    return {
        "lo": piece.span.from_hash,
        "hi": piece.span.until_hash - 1,
        "committed": piece.committed,
        "scanned": piece.scanned,
        "n_holes": len(piece.pending),
        "n_ranges": sum(after > before + 1 for before, after in pairwise(offsets)),
        "oldest_hole": oldest and oldest.offset,
        "oldest_hole_at": oldest and _micros(oldest.since_ms),
        "deliveries_max": max((record.deliveries for record in piece.pending), default=0),
    }


def _common(commit: Commit) -> dict[str, Any]:
    return {
        "group": commit.group,
        "source_id": commit.source_id,
        "query_id": commit.query_id,
        "run_id": commit.run_id,
        "commit_seq": commit.seq,
        "kind": commit.kind.value,
        "whole": commit.whole,
        "batch_id": commit.batch_id,
        "committed_at": _micros(commit.committed_at_ms),
        "hash": commit.terms.hash,
        "null_keys": commit.terms.null_keys,
        "isolation": commit.terms.isolation,
        "who": commit.who,
        # Nobody says why a batch is committed: its text says which logs were cut back.
        "why": commit.why or write_cuts(commit.cut_back),
        "group_seq": commit.group_seq or None,
        "driver": commit.driver or None,
        "claim": commit.claim or None,
        "key_ranges": write_key_ranges(commit.ownership),
    }


def _counts_row(counts: CommitCounts | None) -> dict[str, int]:
    if counts is None:
        return {}
    values = (counts.done, counts.rejected, counts.held_back, counts.dead, counts.redelivered)
    return dict(zip(_COUNTS, (*values, counts.log_end), strict=True))


def _micros(milliseconds: int) -> int:
    if not MS_MIN <= milliseconds <= MS_MAX:
        raise ValueError(f"{milliseconds} ms are no time")
    return milliseconds * 1000


def commits_of(table: pa.Table, source_id: str, newest_only: bool = False) -> list[Commit]:
    """The commits that some rows of one source hold, by number.

    With `newest_only` a partition's state is left out of all commits but the last one that has it.
    Raises COMMITS_DAMAGED where rows contradict themselves or one another, UNSUPPORTED_COMMITS for
    what only a newer version can have written.
    """
    faults = Faults(source_id)
    by_seq: dict[int, list[dict[str, Any]]] = {}
    for row in _plain_rows(table):
        if row["commit_seq"] is None:
            raise faults.damaged("a row without a commit_seq")
        by_seq.setdefault(row["commit_seq"], []).append(row)
    commits: list[Commit] = []
    seen: set[TopicPartition] = set()
    for seq in sorted(by_seq, reverse=True):
        commit = _commit(by_seq[seq], seen if newest_only else set(), faults)
        seen.update(commit.states)
        commits.append(commit)
    return commits[::-1]


def fence_bounds(group: str) -> Bounds:
    """What the fences of a group are found by."""
    return {"group": (group, group), "kind": (CommitKind.FENCE.value, CommitKind.FENCE.value)}


def fences_of(table: pa.Table) -> list[Fence]:
    """The fences that rows of `FENCE_COLUMNS` hold, each once. Raises COMMITS_DAMAGED."""
    found: dict[tuple[str, int], Fence] = {}
    for row in _plain_rows(table, FENCE_COLUMNS):
        faults = Faults(row["source_id"])
        if any(value is None for name, value in row.items() if name not in _OF_FENCE):
            raise faults.damaged("a column of a commit is null", commit_seq=row["commit_seq"])
        group_seq, driver = _driver(row, faults)
        found[row["source_id"], row["commit_seq"]] = Fence(
            source_id=row["source_id"],
            seq=row["commit_seq"],
            run_id=row["run_id"],
            query_id=row["query_id"],
            group_seq=group_seq,
            driver=driver,
            at_ms=row["committed_at"] // 1000,
        )
    return list(found.values())


def claims_of(table: pa.Table) -> dict[str, tuple[int, str]]:
    """The last claim of each source that rows of `CLAIM_COLUMNS` hold: its commit and its text."""
    found: dict[str, tuple[int, str]] = {}
    for row in _plain_rows(table, CLAIM_COLUMNS):
        source = row["source_id"]
        found[source] = max(found.get(source, (0, "")), (row["commit_seq"], row["claim"] or ""))
    return found


def _plain_rows(
    table: pa.Table, names: Sequence[str] = tuple(SCHEMA.names)
) -> Iterator[dict[str, Any]]:
    """Rows with times as microseconds since 1970."""
    columns: list[Sequence[Any]] = []
    for name in names:
        column = table.column(name)
        if column.type == _TIME:
            # `cast` would import Arrow's compute.
            chunks = (chunk.view(pa.int64()) for chunk in column.chunks)
            columns.append([value for chunk in chunks for value in chunk.to_pylist()])
        else:
            columns.append(column.to_pylist())
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _commit(rows: list[dict[str, Any]], skip: set[TopicPartition], faults: Faults) -> Commit:
    first = rows[0]
    seq = first["commit_seq"]
    common = {name: first[name] for name in _OF_COMMIT}
    if any(row[name] != first[name] for row in rows for name in (*_OF_COMMIT, *_OF_KIND)):
        raise faults.damaged("two commits have the same number", commit_seq=seq)
    if any(value is None for value in common.values()):
        raise faults.damaged("a column of a commit is null", commit_seq=seq)
    if first["kind"] not in {kind.value for kind in CommitKind}:
        raise error("UNSUPPORTED_COMMITS", f"commit {seq} is of kind {first['kind']!r}")
    if seq < 1 or first["batch_id"] < -1 or first["committed_at"] % 1000:
        raise faults.damaged("a number or time of a commit cannot be", commit_seq=seq)
    group_seq, driver = _driver(first, faults)
    cut_back = _cuts(first, faults)
    by_partition = _by_partition(rows, faults)
    wanted = {each: found for each, found in by_partition.items() if each not in skip}
    return Commit(
        seq=seq,
        kind=CommitKind(first["kind"]),
        group=first["group"],
        source_id=first["source_id"],
        query_id=first["query_id"],
        run_id=first["run_id"],
        batch_id=first["batch_id"],
        committed_at_ms=first["committed_at"] // 1000,
        terms=CommitSettings(first["hash"], first["null_keys"], first["isolation"]),
        states={each: _state(each, found, faults) for each, found in sorted(wanted.items())},
        counts={each: c for each, found in sorted(wanted.items()) if (c := _counts(found))},
        whole=first["whole"],
        who=first["who"],
        why="" if cut_back else first["why"],
        group_seq=group_seq,
        driver=driver,
        claim=first["claim"] or "",
        cut_back=cut_back,
        runs={p: r for p, each in wanted.items() if (r := _runs(p, each, faults)) is not None},
        ownership=faults.parsed(read_key_ranges, first["key_ranges"], commit_seq=seq),
    )


def _runs(
    partition: TopicPartition, rows: list[dict[str, Any]], faults: Faults
) -> tuple[StateRun, ...] | None:
    runs = min(rows, key=lambda row: row["lo"])["state_runs"]
    return faults.parsed(read_runs, runs, partition=partition)


def _driver(row: Row, faults: Faults) -> tuple[int, str]:
    """Which driver wrote a fence; 0 and "" where it is no driver's."""
    number, driver = row["group_seq"], row["driver"]
    if number is None and driver is None:
        return 0, ""
    if number is None or number < 1 or not driver or row["kind"] != CommitKind.FENCE.value:
        message = "a fence does not say which driver wrote it"
        raise faults.damaged(message, commit_seq=row["commit_seq"])
    return number, driver


def _cuts(row: Row, faults: Faults) -> dict[TopicPartition, int]:
    """Which logs were cut back before a batch."""
    if row["kind"] != CommitKind.BATCH.value:
        return {}
    return faults.parsed(read_cuts, row["why"], commit_seq=row["commit_seq"])


def _by_partition(
    rows: list[dict[str, Any]], faults: Faults
) -> dict[TopicPartition, list[dict[str, Any]]]:
    if rows[0]["topic"] is None:
        if len(rows) > 1 or any(rows[0][name] is not None for name in ("partition", "done")):
            raise faults.damaged("a commit without partitions has some", seq=rows[0]["commit_seq"])
        return {}
    found: dict[TopicPartition, list[dict[str, Any]]] = {}
    for row in rows:
        if row["topic"] is None or row["partition"] is None or row["done"] is None:
            raise faults.damaged("a row without a partition", commit_seq=row["commit_seq"])
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(row)
    return found


def _state(partition: TopicPartition, rows: list[dict[str, Any]], faults: Faults) -> PartitionState:
    where = {"commit_seq": rows[0]["commit_seq"], "partition": partition}
    topic_id, position, leader_epoch = (rows[0][name] for name in _OF_PARTITION)
    if topic_id is None or position is None or partition.partition < 0:
        raise faults.damaged("a partition without topic id or position", **where)
    if any(row[name] != rows[0][name] for row in rows for name in _OF_PARTITION):
        raise faults.damaged("key ranges of one partition do not have one position", **where)
    pieces: list[KeyRangeState] = []
    for row in sorted(rows, key=lambda row: row["lo"] if row["lo"] is not None else -1):
        piece = read_piece(row["done"])
        differs = _difference(piece, row)
        if differs:
            raise faults.damaged(f"columns {differs} and done do not agree", **where, lo=row["lo"])
        pieces.append(piece)
    try:
        epoch = -1 if leader_epoch is None else leader_epoch
        return PartitionState(topic_id, position, tuple(pieces), epoch)
    except ValueError as fault:
        raise faults.damaged(str(fault), **where) from None


def _difference(piece: KeyRangeState, row: Row) -> str:
    """The plain columns that say something else than the blob."""
    try:
        expected = plain_columns(piece)
    except ValueError:
        return "oldest_hole_at"
    return ", ".join(name for name in _OF_PIECE if row[name] != expected[name])


def _counts(rows: list[dict[str, Any]]) -> CommitCounts | None:
    first = min(rows, key=lambda row: row["lo"])
    values = [first[name] for name in _COUNTS]
    return None if any(value is None for value in values) else CommitCounts(*values)
