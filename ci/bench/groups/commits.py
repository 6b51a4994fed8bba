"""Group `commits`: what it costs to keep individual commits in the table.

A commit is of one batch: 64 key ranges of 8 partitions with 1,000 pending records. A table of 50
commits and one of 50,000 take commits in turn. The history of the large one is made in bulk by the
table's own writer, in files as large as compaction makes them; 500 real commits follow, and a table
of 500 real ones is held against one of the same 500 made in bulk. What the log of 50,000 versions
would be is not in it: versions older than some minutes are cleaned away.

Each hundredth batch of a query has the table compacted beside the next ones. Commits that meet such
a compaction have a figure of their own.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bench.figures import Figure, at_most, from_runs, percentile, ratio
from bench.registry import Bench, Group
from keyrange.individual_commits.model.commit import BASE_EVERY, Commit, CommitCounts, CommitKind
from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.table.commit_schema import SAME, SCHEMA, rows_of
from keyrange.individual_commits.table.commit_table import (
    LAYOUT,
    DeltaCommitTable,
    open_commit_table,
)
from keyrange.individual_commits.table.row_checksum import sealed
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Transaction
from keyrange.storage.upkeep import UPKEEP

PARTITIONS = 8
RANGES = 8
HOLES = 1000
SOURCE = "bench"
_NOW_MS = 1_760_000_000_000
_APP = f"keyrange/{SOURCE}/commits"
_STARTUP = """
import sys, time
started = time.perf_counter()
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.options.commits import CommitOptions
table = open_commit_table(CommitOptions(table=sys.argv[1]), sys.argv[2])
imported = time.perf_counter()
known = table.known()
print(imported - started, time.perf_counter() - imported, known.seq)
"""


def run(bench: Bench) -> Iterator[Figure]:
    _prove_bulk(bench, bench.pick(full=500, quick=500, tiny=8))
    count, young_count = bench.pick(full=(50_000, 50), quick=(50_000, 50), tiny=(20, 5))
    old = _history(bench, bench.directory / "old", count)
    young_ms: list[list[float]] = []
    old_ms: list[list[float]] = []
    beside_ms: list[float] = []
    for number in range(bench.runs):
        path = bench.directory / f"young-{number}"
        young = _history(bench, path, young_count, real=young_count)
        pair: tuple[list[float], list[float]] = ([], [])
        for _ in range(bench.pick(full=200, quick=100, tiny=5)):
            for table, found in zip((young, old), pair, strict=True):
                is_beside = _compacts()
                took_ms = _append_next(table)
                if not is_beside and not _compacts():
                    found.append(took_ms)
        beside_ms += _beside_compaction(path, young)
        young_ms.append(pair[0])
        old_ms.append(pair[1])
        p50, p99 = (percentile(pair[0], share) for share in (0.5, 0.99))
        bench.progress(f"run {number}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    for name, share in {"p50": 0.50, "p99": 0.99}.items():
        yield from_runs(f"commits.{name}.ms", [percentile(run, share) for run in young_ms], "ms")
        old_runs = [percentile(run, share) for run in old_ms]
        yield from_runs(f"commits.after_50k.{name}.ms", old_runs, "ms")
    yield from_runs("commits.beside_compaction.p99.ms", [percentile(beside_ms, 0.99)], "ms")
    medians = [[percentile(run, 0.5) for run in side] for side in (old_ms, young_ms)]
    yield ratio("commits.after_50k.vs_50", *medians)
    starts = [_startup_s(bench.directory / "old", old) for _ in range(bench.runs)]
    yield from_runs("commits.startup_50k.seconds", [read for _, read in starts], "s")
    yield from_runs("commits.startup.imports.seconds", [imports for imports, _ in starts], "s")


def _commit(seq: int) -> Commit:
    """The commit of batch `seq`; a few hundred differ, and the rest are those again."""
    chance = random.Random(seq % 400)
    position = 10_000_000 + 10_000 * seq
    states: dict[TopicPartition, PartitionState] = {}
    spans = split_evenly(SPACE, RANGES)
    for partition in range(PARTITIONS):
        offsets = chance.sample(range(10_000_000), HOLES // PARTITIONS)
        pieces = []
        for at, span in enumerate(spans):
            pending = [
                PendingRecord(
                    offset,
                    chance.randrange(span.from_hash, span.until_hash),
                    1 + offset % 3,
                    _NOW_MS + chance.randrange(600_000),
                    _NOW_MS - chance.randrange(600_000),
                )
                for offset in sorted(offsets[at::RANGES])
            ]
            pieces.append(KeyRangeState(span, position, tuple(pending)))
        states[TopicPartition("orders", partition)] = PartitionState("id", position, tuple(pieces))
    return Commit(
        seq,
        CommitKind.BATCH,
        "bench",
        SOURCE,
        "query",
        "run",
        seq,
        _NOW_MS + 1000 * seq,
        # As a batch has them.
        states=columns_of(states),
        counts={each: CommitCounts(done=10_000) for each in states},
        whole=seq % BASE_EVERY == 0,
    )


def _open(path: Path) -> DeltaCommitTable:
    return open_commit_table(CommitOptions(table=str(path)), SOURCE)


def _append_next(table: DeltaCommitTable) -> float:
    """Milliseconds of a commit with what is done to the table after it."""
    commit = _commit(table.known().seq + 1)
    started = time.perf_counter()
    table.append(commit)
    table.maintain()
    return (time.perf_counter() - started) * 1e3


def _beside_compaction(path: Path, table: DeltaCommitTable) -> list[float]:
    """Milliseconds of commits while the table is compacted; of one at least."""
    store = DeltaStore(str(path), LAYOUT, {})
    store.refresh()
    compacting = threading.Thread(target=store.tidy_up)
    compacting.start()
    found = [_append_next(table)]
    while compacting.is_alive():
        found.append(_append_next(table))
    return found


def _compacts() -> bool:
    return any(each.name == UPKEEP for each in threading.enumerate())


def _history(bench: Bench, path: Path, count: int, real: int = 500) -> DeltaCommitTable:
    """A table of `count` commits, the last `real` of them made one by one."""
    real = min(real, count)
    started = time.monotonic()
    _make_in_bulk(path, count - real)
    table = _open(path)
    while table.known().seq < count:
        _append_next(table)
    if count > 50:
        seconds = time.monotonic() - started
        bench.progress(f"{count:,} commits, {real} of them one by one, in {seconds:.0f} s")
    return table


def _make_in_bulk(path: Path, count: int, at_a_time: int = 400) -> None:
    """Commits 1 to `count`, many in one transaction of the table's writer."""
    store = DeltaStore(str(path), LAYOUT, {})
    made: dict[int, pa.Table] = {}
    for begin in range(1, count + 1, at_a_time):
        end = min(begin + at_a_time, count + 1)
        tables = []
        for seq in range(begin, end):
            # What differs between a commit and the one that it repeats are some plain columns, but
            # the positions are in the blob too: one that was made is repeated as it is.
            again = made.get(seq % 400)
            if again is None:
                again = made[seq % 400] = rows_of(_commit(seq))
            tables.append(_numbered(again, seq))
        store.write(
            pa.concat_tables(tables),
            [Transaction(_APP, end - 1, begin - 1 or None)],
            {"bulk": "yes"},
        )


def _numbered(rows: pa.Table, seq: int) -> pa.Table:
    """The rows of a commit under another number, of another batch."""
    values = {
        "commit_seq": seq,
        "batch_id": seq,
        "whole": seq % BASE_EVERY == 0,
        "committed_at": (_NOW_MS + 1000 * seq) * 1000,
    }
    for name, value in values.items():
        at = SCHEMA.get_field_index(name)
        column = pa.array([value] * rows.num_rows).cast(SCHEMA.field(at).type)
        rows = rows.set_column(at, name, column)
    return sealed(rows, SAME)


def _prove_bulk(bench: Bench, count: int) -> None:
    """Raises RuntimeError where commits made in bulk are not those made one by one."""
    one_by_one = _history(bench, bench.directory / "single", count, real=count)
    _make_in_bulk(bench.directory / "bulk", count)
    bulk = _open(bench.directory / "bulk")
    for ours, theirs in zip(bulk.history(), one_by_one.history(), strict=True):
        # A repeated commit has the positions of the one that it repeats.
        if ours.seq < 400 and ours != theirs:
            raise RuntimeError(f"commit {ours.seq} made in bulk differs from one made alone")
    if bulk.known(min(count, 399)) != one_by_one.known(min(count, 399)):
        raise RuntimeError("the state after commits made in bulk differs")
    _append_next(bulk)


def _startup_s(path: Path, table: DeltaCommitTable) -> tuple[float, float]:
    """Seconds until a process that begins knows the state: for its imports, which other parts of
    the source need too, and for opening and reading the table."""
    command = [sys.executable, "-c", _STARTUP, str(path), SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imports_s, read_s, seq = done.stdout.split()
    if int(seq) != table.known().seq:
        raise RuntimeError(f"a process that begins finds commit {seq}")
    return float(imports_s), float(read_s)


GROUP = Group(
    order=7,
    run=run,
    targets={
        "commits.p50.ms": at_most(8),
        "commits.p99.ms": at_most(250),
        "commits.after_50k.vs_50": at_most(1.5),
        "commits.startup_50k.seconds": at_most(2.0),
    },
    own_broker=True,
)
