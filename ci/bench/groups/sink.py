"""Group `sink`: what rows for a topic cost, without a broker: records per second that one core
makes into sealed record batches.

The records have keys of 12 bytes and values of 200, go to eight partitions by their keys, in
batches of 16 KiB as Kafka's producer has them by default, not compressed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench.figures import Figure, at_least, from_runs
from bench.registry import Bench, Group
from keyrange.wire.produced_batches import BatchSettings, RecordWriter, seal

_PARTITIONS = 8
_KEY_BYTES, _VALUE_BYTES = 12, 200
# As a job hands over rows.
_BATCH_ROWS = 32_768


def run(bench: Bench) -> Iterator[Figure]:
    batches = bench.pick(full=200, quick=50, tiny=1)
    generator = np.random.default_rng(1)
    # More than a processor's caches hold, so that none of it is there by chance.
    rows = [_rows(generator) for _ in range(min(batches, 8))]
    bench.progress(f"{len(rows)} batches of {_BATCH_ROWS:,} rows made")
    _seconds(rows, 1)  # the first time compiles kernels, or loads them
    records = batches * _BATCH_ROWS / 1e6
    rates = [records / _seconds(rows, batches) for _ in range(bench.runs)]
    yield from_runs("sink.encode.mrec_per_core", rates, "M/core-s")


def _rows(generator: np.random.Generator) -> pa.RecordBatch:
    columns = [_texts(generator, size) for size in (_KEY_BYTES, _VALUE_BYTES)]
    return pa.RecordBatch.from_arrays(columns, ["key", "value"])


def _texts(generator: np.random.Generator, size: int) -> pa.Array:
    """A column of lower-case letters, `size` in each row."""
    letters = generator.integers(97, 123, _BATCH_ROWS * size, np.uint8)
    ends = np.arange(_BATCH_ROWS + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.binary(), _BATCH_ROWS, buffers)


def _seconds(rows: list[pa.RecordBatch], batches: int) -> float:
    """Processor time until all records are in batches that could be sent."""
    writer = RecordWriter("topic", _PARTITIONS, BatchSettings())
    sequences = [0] * _PARTITIONS
    started = time.process_time()
    for number in range(batches):
        for batch in writer.write(rows[number % len(rows)], 0).batches:
            seal(batch.data, 1, 0, sequences[batch.partition])
            sequences[batch.partition] += len(batch.rows)
    spent = time.process_time() - started
    if sum(sequences) != batches * _BATCH_ROWS:
        raise RuntimeError(f"{sum(sequences)} records are in batches")
    return spent


GROUP = Group(
    name="sink",
    order=3,
    run=run,
    targets={"sink.encode.mrec_per_core": at_least(4)},
    own_broker=True,
)
