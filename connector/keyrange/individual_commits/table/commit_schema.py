"""The rows of the commit table: one for each piece of each partition that a commit touches.

A commit without partitions is one row whose topic is null. The columns of states are those of
`state_rows.py`. Counts are of a whole partition and stand in the row of its lowest keys, so that
they can be summed. Column `checksum` is in all rows of a commit that of all that they hold
(`row_checksum.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import error
from keyrange.individual_commits.model.commit import (
    Commit,
    CommitCounts,
    CommitKind,
    read_offsets_of_batch,
    write_offsets_of_batch,
)
from keyrange.individual_commits.model.driver_order import Fence
from keyrange.individual_commits.model.state_columns import (
    NO_STATES,
    StateColumns,
    begins_of_runs,
    columns_of,
)
from keyrange.individual_commits.table.row_checksum import CHECKSUM, is_sealed, sealed
from keyrange.individual_commits.table.state_rows import (
    FIELDS,
    MS_MAX,
    MS_MIN,
    TIME,
    Faults,
    arrow,
    common_rows,
    in_order,
    numbers_of,
    plain,
    plain_rows,
    read_states,
    write_states,
)
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.model.query_ranges import Ownership, read_ownership, write_ownership
from keyrange.model.timers import NextTimer
from keyrange.model.watermarks import BEGIN, BatchStart, PartitionTime, Watermark
from keyrange.storage.table_store import Bounds

# Key ranges have both ends in them, as in all columns that people read.
_RUN: Final = pa.struct(
    [("file", pa.string()), ("first_group", pa.int32()), ("until_group", pa.int32())]
    + [(name, pa.int64()) for name in ("lo", "hi", "from_seq", "until_seq")]
    + [(name, pa.int64()) for name in ("rows", "size_bytes", "footer_crc")]
)
_TIMER: Final = pa.struct(
    [("lo", pa.int64()), ("hi", pa.int64()), ("timer_us", pa.int64()), ("retry_ms", pa.int64())]
)
_START: Final = pa.struct([("offset", pa.int64()), ("clock_us", pa.int64())])
# What the numbers of a commit rest on, and its counts, in columns of the same order.
_TERMS: Final = tuple(each.name for each in fields(CommitSettings))
_COUNTS: Final = ("done_records", "rejected", "held_back", "dead", "redelivered", "log_end")
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
        ("committed_at", TIME),
        *FIELDS,
        *((name, pa.string()) for name in _TERMS),
        *((name, pa.int64()) for name in _COUNTS),
        ("who", pa.string()),
        ("why", pa.string()),
        ("group_seq", pa.int64()),
        ("driver", pa.string()),
        ("claim", pa.string()),
        ("state_runs", pa.list_(_RUN)),
        ("watermark", TIME),
        ("watermark_since", TIME),
        ("next_timers", pa.list_(_TIMER)),
        ("batch_starts", pa.list_(_START)),
        ("late_records", pa.int64()),
        ("key_ranges", pa.string()),
        (CHECKSUM, pa.int64()),
    ]
)

# Fields of a commit that have a column of their name.
_AS_THEY_ARE: Final = ("group", "source_id", "query_id", "run_id", "whole", "batch_id", "who")
# What all rows of one commit have in common.
_OF_COMMIT: Final = (*_AS_THEY_ARE, *_TERMS, "commit_seq", "kind", "committed_at", "why")
# What they have in common besides, in fences alone or in batches, and null where there is none.
_OF_FENCE: Final = ("group_seq", "driver", "claim")
_OF_KIND: Final = (*_OF_FENCE, "key_ranges")
# All of that, which a checksum is made of once for all rows.
SAME: Final = (*_OF_COMMIT, *_OF_KIND)
_PARTITION: Final = ("topic", "partition")
# What is asked for of fences.
FENCE_COLUMNS: Final = (
    *("source_id", "query_id", "run_id", "commit_seq", "kind", "committed_at"),
    *("group_seq", "driver"),
)
# And of the claims in those of consumers.
CLAIM_COLUMNS: Final = ("source_id", "commit_seq", "claim")
_COUNTED: Final = attrgetter(*(each.name for each in fields(CommitCounts)))
_TIMES: Final = ("watermark", "watermark_since", "next_timers", "batch_starts", "late_records")

Row = Mapping[str, Any]
Counts = dict[TopicPartition, CommitCounts]
Runs = dict[TopicPartition, tuple[StateRun, ...]]
Times = dict[TopicPartition, PartitionTime]


def rows_of(commit: Commit) -> pa.Table:
    """A commit as rows of `SCHEMA`. Raises ValueError for a time that SQL cannot show."""
    states, common = columns_of(commit.states), _common(commit)
    if not states:
        return sealed(pa.Table.from_pylist([common], SCHEMA), SAME)
    count = states.of_pieces.shape[1]
    columns = {
        field.name: pa.repeat(pa.array([common.get(field.name)], field.type)[0], count)
        for field in SCHEMA
    }
    names = [name for name, _ in FIELDS]
    columns |= dict(zip(names, write_states(states), strict=True))
    firsts = dict(zip(states, states.first_piece.tolist(), strict=False))

    def put(names: Sequence[str], told: Mapping[TopicPartition, Any], row_of: Any) -> None:
        """What is of whole partitions, and so in one row of each."""
        rows: list[Any] = [(None,) * len(names)] * count
        for partition in told.keys() & firsts.keys():
            rows[firsts[partition]] = row_of(told[partition])
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            columns[name] = pa.array(column, SCHEMA.field(name).type)

    put(_COUNTS, commit.counts, _COUNTED)
    if commit.runs:
        put(("state_runs",), commit.runs, lambda runs: ([run.flat() for run in runs],))
    if commit.times:
        put(_TIMES, commit.times, _of_time)
    return sealed(pa.table(columns, SCHEMA), SAME)


def _of_time(time: PartitionTime) -> tuple[Any, ...]:
    """The columns of `_TIMES`."""
    # Without a watermark and timers too it is another time than before.
    timers = [each.flat() for each in time.timers]
    starts = [(each.offset, each.clock_us) for each in time.starts] or None
    told = (timers, starts, time.late or None)
    if time.watermark is None:
        return (None, None, *told)
    at_us, since_us = time.watermark.at_us, _micros(time.watermark.since_ms)
    return (None if at_us == BEGIN else at_us, since_us, *told)


def _common(commit: Commit) -> dict[str, Any]:
    return {
        **{name: getattr(commit, name) for name in _AS_THEY_ARE},
        **asdict(commit.terms),
        "commit_seq": commit.seq,
        "kind": commit.kind.value,
        "committed_at": _micros(commit.committed_at_ms),
        # Nobody says why a batch is committed: its text is of offsets.
        "why": commit.why or write_offsets_of_batch(commit),
        "group_seq": commit.group_seq or None,
        "driver": commit.driver or None,
        "claim": commit.claim or None,
        "key_ranges": json.dumps(write_ownership(commit.ownership)) if commit.ownership else None,
    }


def _micros(milliseconds: int) -> int:
    if not MS_MIN <= milliseconds <= MS_MAX:
        raise ValueError(f"{milliseconds} ms are no time")
    return milliseconds * 1000


def commits_of(
    table: pa.Table, source_id: str, newest_only: bool = False, uri: str = ""
) -> list[Commit]:
    """The commits that some rows of one source hold, by number.

    With `newest_only` a partition's state is left out of all commits but the last one that has it.
    `uri`: of the table that errors are to name. Raises COMMITS_DAMAGED where rows are not as they
    were written, UNSUPPORTED_COMMITS for what only a newer version can have written.
    """
    faults = Faults(source_id, uri)
    if table.column("commit_seq").null_count:
        raise faults.damaged("a row without a commit_seq")
    numbers = numbers_of(table.column("commit_seq"))
    order = np.argsort(numbers, kind="stable")
    # All at once: to take from many chunks costs as much for few rows as for all of them.
    ordered = table.take(arrow(order))
    begins = np.flatnonzero(begins_of_runs(numbers[order]))
    # What the rows of a commit have in common is read of all commits at once: one by one, as the
    # other columns are, it costs as much as those.
    firsts, others = common_rows(ordered, SAME, begins)
    mixed = set(numbers[order][others].tolist())
    bounds = list(pairwise([*begins.tolist(), len(order)]))
    commits: list[Commit] = []
    seen: set[TopicPartition] = set()
    for first, (begin, end) in zip(reversed(firsts), reversed(bounds), strict=True):
        if first["commit_seq"] in mixed:
            raise faults.damaged("two commits have the same number", commit_seq=first["commit_seq"])
        commit = _commit(first, ordered.slice(begin, end - begin), seen, faults)
        seen.update(commit.states if newest_only else ())
        commits.append(commit)
    return commits[::-1]


def fence_bounds(group: str) -> Bounds:
    """What the fences of a group are found by."""
    return {"group": (group, group), "kind": (CommitKind.FENCE.value, CommitKind.FENCE.value)}


def fences_of(table: pa.Table, uri: str) -> list[Fence]:
    """The fences that rows of `FENCE_COLUMNS` hold, each once. `uri`: of the table that errors are
    to name. Raises COMMITS_DAMAGED."""
    found: dict[tuple[str, int], Fence] = {}
    for row in plain_rows(table, FENCE_COLUMNS):
        faults = Faults(row["source_id"], uri)
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
    for row in plain_rows(table, CLAIM_COLUMNS):
        source = row["source_id"]
        found[source] = max(found.get(source, (0, "")), (row["commit_seq"], row["claim"] or ""))
    return found


def _commit(first: Row, rows: pa.Table, skip: set[TopicPartition], faults: Faults) -> Commit:
    """`first`: the columns of `SAME`."""
    seq = first["commit_seq"]
    if any(first[name] is None for name in _OF_COMMIT):
        raise faults.damaged("a column of a commit is null", commit_seq=seq)
    rows = _in_order(rows, faults, seq)
    if not is_sealed(rows, first):
        message = "the checksum is not that of what its rows hold"
        raise faults.damaged(message, commit_seq=seq)
    if first["kind"] not in {kind.value for kind in CommitKind}:
        raise error("UNSUPPORTED_COMMITS", f"commit {seq} is of kind {first['kind']!r}")
    if seq < 1 or first["batch_id"] < -1 or first["committed_at"] % 1000:
        raise faults.damaged("a number or time of a commit cannot be", commit_seq=seq)
    group_seq, driver = _driver(first, faults)
    offsets = _offsets_of_batch(first, faults)
    states = _states(rows, skip, faults, seq)
    counts, runs, times = _once(rows, states, faults)
    return Commit(
        **{name: first[name] for name in _AS_THEY_ARE},
        seq=seq,
        kind=CommitKind(first["kind"]),
        committed_at_ms=first["committed_at"] // 1000,
        terms=CommitSettings(*(first[name] for name in _TERMS)),
        states=states,
        counts=counts,
        why="" if offsets else first["why"],
        group_seq=group_seq,
        driver=driver,
        claim=first["claim"] or "",
        runs=runs,
        times=times,
        ownership=faults.parsed(_read_key_ranges, first["key_ranges"], commit_seq=seq),
        **offsets,
    )


def _in_order(rows: pa.Table, faults: Faults, seq: int) -> pa.Table:
    if not rows.column("topic").null_count:
        return in_order(rows, faults, commit_seq=seq)
    if len(rows) > 1 or any(rows.column(name).null_count == 0 for name, _ in FIELDS):
        raise faults.damaged("a commit without partitions has some", commit_seq=seq)
    return rows


def _states(rows: pa.Table, skip: set[TopicPartition], faults: Faults, seq: int) -> StateColumns:
    """The states of all partitions that are not skipped."""
    if rows.column("topic").null_count or (skip and skip.issuperset(_named(rows))):
        return NO_STATES
    states = read_states(rows, faults, commit_seq=seq)
    return states.only(each for each in states if each not in skip) if skip else states


def _named(rows: pa.Table) -> Iterator[TopicPartition]:
    """The partitions of some rows, which are in order."""
    topics = rows.column("topic").combine_chunks().dictionary_encode()
    names, codes = topics.dictionary.to_pylist(), numbers_of(topics.indices)
    numbers = numbers_of(rows.column("partition"))
    pairs = np.stack((codes, numbers))[:, begins_of_runs(codes, numbers)]
    return (TopicPartition(names[code], number) for code, number in pairs.T.tolist())


def _once(rows: pa.Table, states: StateColumns, faults: Faults) -> tuple[Counts, Runs, Times]:
    """What stands in one row of each partition."""
    counts: Counts = {}
    runs: Runs = {}
    times: Times = {}
    if not states:
        return counts, runs, times
    names = (*_PARTITION, "state_runs", *_TIMES, *_COUNTS)
    firsts = rows.select(names).take(arrow(np.flatnonzero(numbers_of(rows.column("lo")) == 0)))
    for topic, number, stored, *rest in zip(
        *(plain(firsts.column(name)) for name in names), strict=True
    ):
        partition = TopicPartition(topic, number)
        told, values = rest[: len(_TIMES)], rest[len(_TIMES) :]
        if partition in states and None not in values:
            counts[partition] = CommitCounts(*values)
        if partition in states and stored is not None:
            runs[partition] = faults.parsed(_read_runs, stored, partition=partition)
        if partition in states and any(each is not None for each in told):
            times[partition] = faults.parsed(_read_time, told, partition=partition)
    return counts, runs, times


def _read_runs(told: Sequence[Row]) -> tuple[StateRun, ...]:
    """Raises TypeError or ValueError for what cannot be a run."""
    return tuple(StateRun.of_flat(each[name] for name in _RUN.names) for each in told)


def _read_time(told: Sequence[Any]) -> PartitionTime:
    """Raises TypeError or ValueError for what cannot be a time of a partition."""
    at_us, since_us, timers, starts, late = told
    if at_us is not None and since_us is None:
        raise ValueError("a watermark does not say since when it is there")
    watermark = None
    if since_us is not None:
        watermark = Watermark(BEGIN if at_us is None else at_us, since_us // 1000)
    found = (NextTimer.of_flat(each[name] for name in _TIMER.names) for each in timers or ())
    passed = [BatchStart(each["offset"], each["clock_us"]) for each in starts or ()]
    if any(None in (each.offset, each.clock_us) for each in passed):
        raise ValueError("a batch that key ranges lag behind does not say where it began")
    return PartitionTime(watermark, tuple(found), tuple(passed), late or 0)


def _read_key_ranges(text: str | None) -> Ownership:
    """Of a query that reads whole partitions there is no text. Raises ValueError for what is no
    JSON of ranges."""
    try:
        return {} if text is None else read_ownership(json.loads(text))
    except RecursionError:
        raise ValueError("its key ranges are nested too deep") from None


def _driver(row: Row, faults: Faults) -> tuple[int, str]:
    """Which driver wrote a fence; 0 and "" where it is no driver's."""
    number, driver = row["group_seq"], row["driver"]
    if number is None and driver is None:
        return 0, ""
    if number is None or number < 1 or not driver or row["kind"] != CommitKind.FENCE.value:
        message = "a fence does not say which driver wrote it"
        raise faults.damaged(message, commit_seq=row["commit_seq"])
    return number, driver


def _offsets_of_batch(row: Row, faults: Faults) -> dict[str, Any]:
    if row["kind"] != CommitKind.BATCH.value:
        return {}
    return faults.parsed(read_offsets_of_batch, row["why"], commit_seq=row["commit_seq"])
