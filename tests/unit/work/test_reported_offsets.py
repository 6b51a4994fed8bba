"""Blocks of offsets, beside plain sets."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from keyrange.model.offsets import TopicPartition
from keyrange.work.reported_offsets import (
    BLOCKS,
    Blocks,
    blocks_of,
    rows_at,
    subtract_blocks,
)


def batch(rows: list[tuple[str, int, int]]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(topics, pa.string()),
            pa.array(partitions, pa.int32()),
            pa.array(offsets, pa.int64()),
        ],
        names=["topic", "partition", "offset"],
    )


def by_block(batches: list[pa.RecordBatch]) -> dict[tuple[str, int, int], pa.Table]:
    """What Spark's groups hold."""
    found: dict[tuple[str, int, int], list[int]] = {}
    table = pa.Table.from_batches(batches, BLOCKS)
    for at, row in enumerate(table.to_pylist()):
        found.setdefault((row["topic"], row["partition"], row["block"]), []).append(at)
    return {key: table.take(rows) for key, rows in found.items()}


def test_what_was_delivered_and_not_mentioned_is_left() -> None:
    chance = random.Random(3)
    for _ in range(40):
        spread = chance.choice([50, 70_000, 2**40])
        rows = [
            (chance.choice("tu"), chance.randrange(3), chance.randrange(spread))
            for _ in range(chance.randrange(300))
        ]
        said = chance.sample(rows, chance.randrange(len(rows) + 1))
        said += [("t", 0, chance.randrange(spread))]
        # In any number of tasks, in any order.
        parts = [rows[0::3], rows[1::3] + rows[:2], sorted(rows[2::3])]
        delivered = [b for part in parts for b in blocks_of(True)([batch(part)])]
        mentioned = list(blocks_of(False)([batch(said)]))
        left = {
            tuple(row.values())
            for group in by_block(delivered + mentioned).values()
            for row in subtract_blocks(group).to_pylist()
        }
        assert left == set(rows) - set(said)


def test_a_million_offsets_are_few_blocks() -> None:
    blocks = Blocks()
    blocks.add(TopicPartition("t", 0), np.arange(10**12, 10**12 + 10**6))
    made = blocks.to_batch(True)
    assert made.num_rows == 16
    assert made.nbytes < 150_000


def test_rows_are_found_by_their_offsets() -> None:
    rows = [("t", 0, 1), ("t", 1, 1), ("u", 0, 1), ("t", 0, 2), ("t", 0, 3)]
    wanted = {TopicPartition("t", 0): [3, 1], TopicPartition("u", 0): [2]}
    found = [row for each in rows_at(wanted)([batch(rows)]) for row in each.to_pylist()]
    assert [tuple(row.values()) for row in found] == [("t", 0, 1), ("t", 0, 3)]
