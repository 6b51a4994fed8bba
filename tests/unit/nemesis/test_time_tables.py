"""What the nemesis reads of windows and of what a batch was judged by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.individual_commits.model.partition_progress import PartitionState, fresh
from keyrange.individual_commits.table.commit_table import open_commit_table
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from nemesis.facts import Batch, Place, Read, Window
from nemesis.modes import MODES
from nemesis.store import Files
from nemesis.tables import SinkRows
from nemesis.time_tables import batches, reads, windows

AT = TopicPartition("orders", 0)
BATCH, RESET = CommitKind.BATCH, CommitKind.RESET


def test_what_was_read_before_a_batch(tmp_path: Path) -> None:
    """Behind a reset key ranges lag, and go by earlier watermarks until they have caught up. A
    topic that was made anew begins anew."""
    table = open_commit_table(CommitOptions(table=str(tmp_path / "commits")), "s")
    table.append(Commit(1, CommitKind.FENCE, "g", "s", "q", "r", -1, 0))
    steps = [
        (BATCH, fresh("old", 70)),
        (BATCH, fresh("old", 90)),
        (RESET, rewind(fresh("old", 90), 40).state),
        (BATCH, rewind(fresh("old", 90), 60).state),
        (BATCH, fresh("old", 95)),
        (BATCH, fresh("new", 5)),
        (BATCH, fresh("new", 9)),
    ]
    for seq, (kind, state) in enumerate(steps, 2):
        states: dict[TopicPartition, PartitionState] = {AT: state}
        batch_id = seq if kind is BATCH else -1
        table.append(Commit(seq, kind, "g", "s", "q", "r", batch_id, 1000, states=states))
    world: Any = SimpleNamespace(store=Files(tmp_path))
    found = {batch.batch_id: read[0] for batch, read in reads(world).items()}
    assert found == {
        2: Read(0, 0, "old"),
        3: Read(70, 70, "old"),
        5: Read(40, 90, "old"),
        6: Read(40, 90, "old"),
        7: Read(0, 0, "new"),
        8: Read(5, 5, "new"),
    }


def test_rows_of_windows_and_the_batches_that_brought_them(tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    row = {
        "key": b"key-1",
        "window_start": start,
        "window_end": start + timedelta(milliseconds=2),
        "count": 2,
        "total": 11,
        "numbers": [4, 7],
        "partitions": [1, 1],
        "offsets": [20, 22],
        "checked": 11,
    }
    for batch_id, change in enumerate(({}, {"checked": 12})):
        made = [Transaction("keyrange:s:driver", 1), Transaction("keyrange:q:s", batch_id)]
        write_deltalake(
            str(tmp_path / "table"),
            pa.Table.from_pylist([row | change]),
            mode="append",
            commit_properties=CommitProperties(app_transactions=made),
        )
    world: Any = SimpleNamespace(store=Files(tmp_path), mode=MODES["windows-job"], run="this")
    start_us = int(start.timestamp()) * 1_000_000
    places = Place(1, 20, 4), Place(1, 22, 7)
    good = Window("key-1", start_us, start_us + 2_000, 2, 11, places, 0)
    first, second = windows(world)
    # Two columns are to say the same.
    assert (first, second.total) == (good, -1)
    assert dict(batches(world)) == {0: Batch("s", 0), 1: Batch("s", 1)}
    assert [each.place for each in SinkRows(world).rows()] == [*places, *places]
