"""Group `sink`: what rows for a topic cost, without a broker: records per second that one core
makes into sealed record batches, and before that values that one core writes as JSON, Avro and
Protobuf, beside Python's libraries, in turns in one process.

The records have keys of 12 bytes and values of 200, go to eight partitions by their keys, in
batches of 16 KiB as Kafka's producer has them by default, not compressed. The values that are
written are of eight fields (`typed_rows`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from bench import typed_rows
from bench.figures import Figure, at_least, from_runs, ratio
from bench.registry import Bench, Group
from keyrange.wire.produced_batches import RecordWriter, seal
from keyrange.wire.topic_limits import BatchSettings

_PARTITIONS = 8
_KEY_BYTES, _VALUE_BYTES = 12, 200
# What Python has for each format.
LIBRARIES = {"json": "json_dumps", "avro": "fastavro", "protobuf": "upb"}
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
    column = typed_rows.rows(generator, bench.pick(full=_BATCH_ROWS, quick=_BATCH_ROWS, tiny=500))
    for form, library in LIBRARIES.items():
        yield from _written(bench, form, library, column)


def _written(bench: Bench, form: str, library: str, column: pa.StructArray) -> Iterator[Figure]:
    """keyrange's encoder and a library in turns. Each takes about as long as the other."""
    sides = {
        "keyrange": (typed_rows.by_keyrange(form, column), bench.pick(full=100, quick=20, tiny=1)),
        library: (typed_rows.by_library(form, column), bench.pick(full=10, quick=2, tiny=1)),
    }

    def rate(side: str) -> float:
        write, times = sides[side]
        return times * len(column) / _spent(write, times, len(column)) / 1e6

    rates = bench.by_turns(form, {side: partial(rate, side) for side in sides})
    yield ratio(f"sink.{form}.vs_{library}", rates["keyrange"], rates[library])
    for side, found in rates.items():
        yield from_runs(f"sink.{form}.{side}.mrec_per_core", found, "M/core-s")


def _spent(write: Callable[[], int], times: int, rows: int) -> float:
    """Processor time."""
    started = time.process_time()
    for _ in range(times):
        if write() != rows:
            raise RuntimeError("a row was not written")
    return time.process_time() - started


def _rows(generator: np.random.Generator) -> pa.RecordBatch:
    sizes = {"key": _KEY_BYTES, "value": _VALUE_BYTES}
    return pa.RecordBatch.from_pydict(
        {name: typed_rows.letters(generator, _BATCH_ROWS, size) for name, size in sizes.items()}
    )


def _seconds(rows: list[pa.RecordBatch], batches: int) -> float:
    """Processor time until all records are in batches that could be sent."""
    writer = RecordWriter("topic", _PARTITIONS, BatchSettings())
    sequences = [0] * _PARTITIONS
    started = time.process_time()
    for number in range(batches):
        for batch in writer.write(rows[number % len(rows)], 0):
            seal(batch.data, 1, 0, sequences[batch.partition])
            sequences[batch.partition] += len(batch.rows)
    spent = time.process_time() - started
    if sum(sequences) != batches * _BATCH_ROWS:
        raise RuntimeError(f"{sum(sequences)} records are in batches")
    return spent


GROUP = Group(
    order=3,
    run=run,
    targets={
        "sink.encode.mrec_per_core": at_least(4),
        **{f"sink.{form}.vs_{library}": at_least(3) for form, library in LIBRARIES.items()},
    },
    own_broker=True,
)
