"""Group `commits_work`: what it costs to say of records that they are done.

All of it without Spark, on one core, per second of this process's CPU time: the aggregation of
acknowledged offsets to blocks, and what a task spends around a user's function that does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.figures import Figure, at_least, from_runs
from bench.registry import Bench, Group
from keyrange.model.key_ranges import HASH_MAX, SPACE, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.reported_offsets import BLOCKS, blocks_of, subtract_blocks
from keyrange.work.task_context import Job
from keyrange.work.task_run import work_of

_ROWS = 10_000  # in a batch, as Spark hands them over by default
_PARTITION = TopicPartition("bench", 0)
_OUTPUT = pa.schema([pa.field("offset", pa.int64()), pa.field("value", pa.binary())])


def run(bench: Bench) -> Iterator[Figure]:
    records = bench.pick(full=10_000_000, quick=2_000_000, tiny=50_000)
    batches = list(_batches(records))
    bench.progress(f"{records:,} offsets made")
    yield from _acknowledge(bench, batches, records)
    few = batches[: max(len(batches) // 5, 1)]
    for mode, function in (("arrow", _same_batch), ("record", _same_record)):
        job = Job({_PARTITION: _work()}, WorkSettings(), mode, _OUTPUT, function)
        rates = list(_rates(bench, work_of(job), few))
        yield from_runs(f"commits.process.{mode}.mrec_per_core", rates, "M/core-s")


def _acknowledge(bench: Bench, batches: list[pa.RecordBatch], records: int) -> Iterator[Figure]:
    """Offsets to blocks in the executors, on either side, and one side from the other."""
    rates = []
    for number in range(-1, bench.runs):
        started = time.process_time()
        delivered = list(blocks_of(True)(batches))
        mentioned = list(blocks_of(False)(batches))
        left = 0
        table = pa.Table.from_batches([*delivered, *mentioned], BLOCKS).sort_by("block")
        for at in range(0, table.num_rows, 2):
            left += subtract_blocks(table.slice(at, 2)).num_rows
        assert left == 0
        if number >= 0:
            # Each record is delivered and acknowledged: its cost is that of both.
            rates.append(records / (time.process_time() - started) / 1e6)
    yield from_runs("commits.acknowledge.mrec_per_core", rates, "M/core-s")


def _rates(
    bench: Bench,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    batches: list[pa.RecordBatch],
) -> Iterator[float]:
    records = sum(batch.num_rows for batch in batches)
    for number in range(-1, bench.runs):
        started = time.process_time()
        for _ in work(batches):
            pass
        if number >= 0:
            yield records / (time.process_time() - started) / 1e6


def _batches(records: int) -> Iterator[pa.RecordBatch]:
    chance = np.random.default_rng(1)
    value = pa.array([b"x" * 100] * _ROWS, pa.binary())
    key = pa.array([str(at).encode() for at in range(_ROWS)], pa.binary())
    topic = pa.array([_PARTITION.topic] * _ROWS, pa.string())
    partition = pa.array(np.zeros(_ROWS, np.int32))
    for first in range(0, records, _ROWS):
        offsets = pa.array(np.arange(first, first + _ROWS, dtype=np.int64))
        places = pa.array(chance.integers(0, HASH_MAX, _ROWS, dtype=np.int64))
        yield pa.RecordBatch.from_arrays(
            [key, value, topic, partition, offsets, places],
            names=["key", "value", "topic", "partition", "offset", "keyHash"],
        )


def _work() -> TaskPartition:
    return TaskPartition(tuple(split_evenly(SPACE, 16)))


def _same_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(_OUTPUT.names)


def _same_record(record: Any) -> Any:
    return (record.offset, record.value)


GROUP = Group(
    order=8,
    run=run,
    targets={"commits.acknowledge.mrec_per_core": at_least(5.0)},
    own_broker=True,
)
