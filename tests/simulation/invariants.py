"""What holds at the end of every simulation, and along the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.core.checkpoint import read_checkpoint
from keyrange.core.commits.auditing import audit
from keyrange.core.offsets import TopicPartition
from keyrange.delta.assignment_rows import Stored, read_rows
from keyrange.delta.rows import commits_of

if TYPE_CHECKING:
    from simulation.query import Checkpoint
    from simulation.store import Table
    from simulation.world import World

Place = tuple[str, int, int]


def each_once(produced: Iterable[Place], sunk: Iterable[Place], dead: Iterable[Place]) -> None:
    """Each record is in the sink once or in the dead letters once."""
    wanted, found = Counter(produced), Counter([*sunk, *dead])
    assert not wanted - found, f"lost: {sorted((wanted - found).elements())[:10]}"
    assert not found - wanted, f"doubled or foreign: {sorted((found - wanted).elements())[:10]}"


def keys_in_order(rows: Sequence[tuple[str, int, int, str | None]]) -> None:
    """Each key's records came in the order of their offsets; those without a key have none."""
    last: dict[tuple[str, int, str], int] = {}
    for topic, partition, offset, key in rows:
        if key is not None:
            before = last.get((topic, partition, key), -1)
            assert offset > before, f"{key} of {topic}-{partition}: {offset} came after {before}"
            last[topic, partition, key] = offset


def never_back(positions: Iterable[Mapping[TopicPartition, int]]) -> None:
    """No partition's position falls, nor is one forgotten."""
    last: dict[TopicPartition, int] = {}
    for each in positions:
        for partition, before in last.items():
            after = each.get(partition, -1)
            assert after >= before, f"{partition} went from {before} back to {after}"
        last.update(each)


def agrees(table: Table) -> None:
    """The commits of each source contradict themselves in nothing."""
    if not table.versions:
        return
    rows = table.rows()
    for source in sorted(set(rows.column("source_id").to_pylist())):
        found = list(audit(commits_of(_of_source(rows, source), source)))
        assert not found, f"commits of {source}: {found[:5]}"


def all_have_ranges(table: Table, executors: Iterable[str]) -> None:
    """Everybody who is there has key ranges, and nobody else."""
    [last] = [each for each in read_rows(table.rows(), "") if isinstance(each, Stored)][-1:]
    slots = last.assignment.slots if last.assignment is not None else ()
    assert set(slots) == set(executors), f"{sorted(slots)} have ranges, there are {executors}"


def check(world: World, checkpoints: Sequence[Checkpoint], commit_table: str) -> None:
    """All of it."""
    produced = [
        (place.topic, place.partition, offset)
        for place, log in world.topics.logs.items()
        for offset in log.keys
    ]
    each_once(produced, [row[:3] for row in world.sink.rows], dead_letters(world, commit_table))
    keys_in_order(world.sink.rows)
    for checkpoint in checkpoints:
        never_back(read_checkpoint(each).known for each in checkpoint.ends)
    agrees(world.table(commit_table))


def dead_letters(world: World, commit_table: str) -> list[Place]:
    table = world.table(f"{commit_table}_dead_letters")
    if not table.versions:
        return []
    rows = table.rows().select(["kind", "topic", "partition", "offset"]).to_pylist()
    return [(each["topic"], each["partition"], each["offset"]) for each in rows]


def _of_source(rows: pa.Table, source: str) -> pa.Table:
    return rows.filter(pc.equal(rows.column("source_id"), source))
