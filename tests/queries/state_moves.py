"""What state executors have read, and what the keys weigh that moved."""

from __future__ import annotations

import pyarrow.compute as pc
from deltalake import DeltaTable

from keyrange.individual_commits.model.commit import Snapshot
from keyrange.members.model.assignment import Assignment
from queries.pinned_checks import check_counts
from queries.pinned_cluster import PinnedRun, share_moved
from tables.delta_commits import table_at

PARTITIONS = 3


def folded(run: PinnedRun, sent: int) -> None:
    """Wait for all that was sent: each record once, each key counted from one on in its order."""
    path = run.home / "table"
    run.wait(lambda: DeltaTable(path).to_pyarrow_dataset().count_rows() >= sent)
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(rows) == sent
    check_counts(rows)


def commits_of(run: PinnedRun) -> Snapshot:
    path = run.home / "commits"
    [source] = set(DeltaTable(path).to_pyarrow_table(columns=["source_id"]).column(0).to_pylist())
    return table_at(path, source).known()


def restored_by(run: PinnedRun, records: int) -> int:
    """Bytes of state that hosts had read when so many records of its own were counted."""
    path = run.home / "table"

    def counted() -> int:
        keys = DeltaTable(path).to_pyarrow_table(columns=["key"]).column("key")
        found: int = pc.sum(pc.starts_with(keys, "own-")).as_py() or 0
        return found

    run.wait(lambda: counted() >= records)
    last = commits_of(run).batch_id
    run.wait(lambda: run.status()["batch"] >= last)
    found: int = run.status()["restored"]
    return found


def moved_bytes(run: PinnedRun, before: Assignment, after: Assignment) -> float:
    """What the state of the keys weighs that have another owner. A host reads whole row groups, of
    which two lie across the ends of a key range that it gets."""
    runs = [each for found in commits_of(run).runs.values() for each in found]
    size = sum(each.size_bytes for each in runs)
    group = max(each.size_bytes / (each.groups[1] - each.groups[0]) for each in runs)
    ends = sum(
        2
        for partition, owned in after.owners.items()
        for each in owned
        if before.owner_of(partition, each.span.from_hash) != each.slot
    )
    return 1.1 * share_moved(before, after) * size + ends * group
