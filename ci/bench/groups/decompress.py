"""Group `decompress`: megabytes per second that one core decompresses, for each codec.

The batches hold JSON like that of the other groups, and are framed as Kafka's Java producer frames
them: lz4 in independent blocks of 64 KB, zstd without its size, snappy in blocks of 32 KB. No batch
is decompressed twice in a row: a processor learns the branches of one that comes again at once.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from random import Random

import lz4.frame
import numpy as np
import snappy
import zstandard

from bench.figures import Figure, at_least, from_runs
from bench.registry import Bench, Group
from keyrange.wire.chunk_decoder import DecodeSettings
from keyrange.wire.compression import Bytes, Scratch

_BATCH_BYTES = 150_000
_XERIAL_BLOCK_BYTES = 32 * 1024
_CARRIERS = ("UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL")
_AIRPORTS = ("EWR", "JFK", "LGA", "IAH", "MIA", "BQN", "ATL", "ORD", "FLL", "IAD", "MCO", "PBI")


def run(bench: Bench) -> Iterator[Figure]:
    batches = bench.pick(full=400, quick=200, tiny=2)
    random = Random(1)
    plain = [_records(random) for _ in range(batches)]
    bench.progress(f"{batches} batches of {_BATCH_BYTES:,} bytes made")
    for name, (codec, compress) in _CODECS.items():
        packed = [np.frombuffer(compress(batch), np.uint8) for batch in plain]
        scratch = Scratch(DecodeSettings().record_batch_bytes_max)
        _seconds(scratch, codec, packed)  # the first time takes the region's memory
        megabytes = len(packed) * _BATCH_BYTES / 1e6
        rates = [megabytes / _seconds(scratch, codec, packed) for _ in range(bench.runs)]
        yield from_runs(f"decompress.{name}.mb_per_second", rates, "MB/core-s")


def _records(random: Random) -> bytes:
    """The records of one batch: JSON of about a kilobyte each."""
    out = bytearray()
    while len(out) < _BATCH_BYTES:
        events = ",".join(_event(random) for _ in range(5))
        out += b"\x00\x80\x10\x00\x02\x18key-%08d\x80\x10[" % random.randrange(10**6)
        out += events.encode() + b',"late aircraft, late aircraft"]\x00'
    return bytes(out[:_BATCH_BYTES])


def _event(random: Random) -> str:
    choice, below = random.choice, random.randrange
    return (
        f'{{"carrier":"{choice(_CARRIERS)}","flight":{below(9000)},"tailnum":"N{below(99999)}",'
        f'"origin":"{choice(_AIRPORTS)}","dest":"{choice(_AIRPORTS)}",'
        f'"time":"2013-07-{below(28) + 1:02}T{below(24):02}:00:00Z","delay":{below(180)},'
        f'"distance":{below(2700)},"trace":"{random.getrandbits(64):016X}"}}'
    )


def _seconds(scratch: Scratch, codec: int, packed: list[Bytes]) -> float:
    """Processor time for some batches, with the region filled as a task fills it."""
    region_bytes, came = DecodeSettings().batch_bytes, 0
    started = time.process_time()
    for batch in packed:
        if scratch.filled >= region_bytes:
            scratch.clear()
        came += scratch.append(codec, batch, {})
    spent = time.process_time() - started
    if came != len(packed) * _BATCH_BYTES:
        raise RuntimeError(f"{came} bytes came")
    return spent


def _xerial(data: bytes) -> bytes:
    """snappy-java's stream."""
    blocks = (
        snappy.compress(data[at : at + _XERIAL_BLOCK_BYTES])
        for at in range(0, len(data), _XERIAL_BLOCK_BYTES)
    )
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


_CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "snappy": (2, _xerial),
    "lz4": (3, lambda data: lz4.frame.compress(data, block_linked=False, store_size=False)),
    "zstd": (4, zstandard.ZstdCompressor(write_content_size=False).compress),
}

GROUP = Group(
    order=2,
    run=run,
    targets={"decompress.lz4.mb_per_second": at_least(3_200)},
    own_broker=True,
)
