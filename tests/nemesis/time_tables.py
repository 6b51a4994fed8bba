"""What a run's tables say of windows, and of what was read before a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow.parquet as pq

from keyrange.individual_commits.model.commit import CommitKind
from keyrange.keyed_state.state_handles import microseconds
from nemesis.facts import Batch, Place, Read, Timed, Window
from nemesis.tables import actions_of, commit_tables, files_of
from nemesis.world import World

_NEW: Final = Read(0, 0, "")


def timed(world: World, with_history: bool = False) -> Timed | None:
    """None of a mode without event time. `with_history`: with batches, and what was read before
    them."""
    mode = world.mode
    if mode.time == "none":
        return None
    found = Timed(mode.time, list(windows(world)), dict(world.feeder.times_ms))
    if not with_history:
        return found
    return replace(found, batches=dict(batches(world)), reads=reads(world))


def windows(world: World) -> Iterator[Window]:
    path = world.store.seen("table")
    for version, file in files_of(path):
        for row in pq.read_table(path / file, partitioning=None).to_pylist():
            if row["window_start"] is not None:
                yield window_of(row, version)


def window_of(row: Mapping[str, Any], version: int) -> Window:
    key = row["key"] if isinstance(row["key"], str) else row["key"].decode()
    start_us, end_us = (microseconds(row[name]) for name in ("window_start", "window_end"))
    places = row["partitions"], row["offsets"], row["numbers"]
    found = tuple(Place(*each) for each in zip(*places, strict=True))
    # One of which two columns say two things says nothing.
    total = row["total"] if row.get("checked") in (None, row["total"]) else -1
    return Window(key, start_us, end_us, row["count"], total, found, version)


def batches(world: World) -> Iterator[tuple[int, Batch]]:
    """Which batch has brought a version of a table."""
    for version, actions in actions_of(world.store.seen("table")):
        for action in actions:
            _, *named = action.get("txn", {}).get("appId", "").split(":")
            if len(named) == 2 and named[1] != "driver":
                yield version, Batch(named[1], action["txn"]["version"])


def reads(world: World) -> dict[Batch, dict[int, Read]]:
    """What was read of each partition before each batch."""
    found: dict[Batch, dict[int, Read]] = {}
    known: dict[int, Read] = {}
    for table in commit_tables(world):
        for commit in table.history():
            for at, state in commit.states.items():
                before = known.get(at.partition, _NEW)
                if before.topic_id != state.topic_id:
                    known[at.partition] = Read(0, 0, state.topic_id)
            if commit.kind is CommitKind.BATCH:
                found[Batch(commit.source_id, commit.batch_id)] = dict(known)
            for at, state in commit.states.items():
                known[at.partition] = _behind(known[at.partition], commit.kind, state)
    return found


def _behind(before: Read, kind: CommitKind, state: Any) -> Read:
    """What was read of a partition behind a commit."""
    if kind is CommitKind.RESET:
        # What comes again goes by the time of the batches that had it first.
        return replace(before, all_until_offset=min(before.all_until_offset, state.scanned))
    is_whole = state.scanned >= state.position
    return replace(
        before,
        all_until_offset=state.scanned if is_whole else before.all_until_offset,
        until_offset=max(before.until_offset, state.position),
    )
