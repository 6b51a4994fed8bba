"""Batches that decompress to far more than they are: stopped at the cap, in bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4.frame
import pytest
import snappy
import zstandard

from keyrange.errors import KeyrangeError
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import Batch, Record, array, encode_record, raw_batch, varint, xerial
from unit.wire.test_guarded import TESTS

MIB = 1 << 20
BOMB_BYTES = 64 * MIB
CAP_BYTES = 4 * MIB


def zeros() -> Iterator[bytes]:
    for _ in range(BOMB_BYTES // MIB):
        yield bytes(MIB)


def streamed(compressor: object, flush: str) -> bytes:
    parts = [compressor.compress(piece) for piece in zeros()]
    return b"".join(parts) + getattr(compressor, flush)()


def lz4_bomb() -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    return compressor.begin() + streamed(compressor, "flush")


def xerial_bomb() -> bytes:
    block = snappy.compress(bytes(MIB))
    return xerial(b"") + (struct.pack(">i", len(block)) + block) * (BOMB_BYTES // MIB)


def gzip_bomb() -> bytes:
    # Members follow one another, as gzip allows: one is compressed, and repeated.
    return gzip.compress(bytes(16 * MIB)) * (BOMB_BYTES // (16 * MIB))


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "gzip": (1, gzip_bomb),
    "snappy": (2, lambda: snappy.compress(bytes(BOMB_BYTES))),
    "xerial": (2, xerial_bomb),
    "lz4": (3, lz4_bomb),
    "zstd": (4, lambda: streamed(zstandard.ZstdCompressor().compressobj(), "flush")),
}

PROGRAM = f"""
import json, resource, sys
import numpy as np
from keyrange.errors import KeyrangeError
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

data = np.fromfile(sys.argv[1], np.uint8)
chunk = scan_chunk(data, "t", 0, 0)
decoder = Decoder("t", 0, DecodeSettings(record_batch_bytes_max={CAP_BYTES}))
before = peak()
try:
    list(decoder.decode(chunk, 0, 9))
    condition = ""
except KeyrangeError as failure:
    condition = failure.condition.name
print(json.dumps([condition, peak() - before]))
"""


@pytest.mark.ordinary
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_stops_at_the_cap_in_bounded_memory(name: str, tmp_path: Path) -> None:
    codec, build = BOMBS[name]
    path = tmp_path / "bomb"
    path.write_bytes(raw_batch(Batch(last_delta=0), codec, build(), 1))
    path_list = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path)],
        env=os.environ | {"PYTHONPATH": path_list},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    condition, grown = json.loads(result.stdout)
    assert condition == "BATCH_TOO_LARGE"
    # The region grows by copying, and codecs have windows of their own.
    assert grown < 6 * CAP_BYTES, f"{grown / MIB:.0f} MiB"


def decode(codec: int, payload: bytes, count: int = 1, cap: int = CAP_BYTES) -> int:
    batch = raw_batch(Batch(last_delta=count - 1), codec, payload, count)
    chunk = scan_chunk(array(batch), "t", 0, 0)
    settings = DecodeSettings(record_batch_bytes_max=cap)
    return sum(batch.num_rows for batch in Decoder("t", 0, settings).decode(chunk, 0, count))


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize(
    ("declared", "condition"),
    [
        (2**32 - 1, "BATCH_TOO_LARGE"),
        (CAP_BYTES + 1, "BATCH_TOO_LARGE"),
        (CAP_BYTES, "CORRUPT_BATCH"),
        (2**32, "CORRUPT_BATCH"),
    ],
)
def test_snappy_that_declares_more_than_it_holds(
    declared: int, condition: str, framed: bool
) -> None:
    out, left = bytearray(), declared
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    block = bytes(out) + bytes([left, 0, 65])
    payload = xerial(b"") + struct.pack(">i", len(block)) + block if framed else block
    with pytest.raises(KeyrangeError, match=condition):
        decode(2, payload)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_of_exactly_the_cap_is_read_and_one_byte_more_is_not(codec: int) -> None:
    record = b"\0\0\0" + varint(-1)
    size = 100_000
    value = size - len(record) - len(varint(size)) - len(varint(size)) - 1
    body = record + varint(value) + bytes(value) + varint(0)
    payload = varint(len(body)) + body
    packed = {
        1: gzip.compress,
        2: snappy.compress,
        3: lz4.frame.compress,
        4: zstandard.ZstdCompressor().compress,
    }[codec](payload)
    assert len(payload) == size
    assert decode(codec, packed, cap=size) == 1
    with pytest.raises(KeyrangeError, match="BATCH_TOO_LARGE"):
        decode(codec, packed, cap=size - 1)


def test_a_zstd_window_of_two_gigabytes_is_refused() -> None:
    """A frame header alone makes a decoder allocate its window."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([0x00, (31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(KeyrangeError, match="CORRUPT_BATCH"):
        decode(4, frame)


def test_many_large_batches_are_decompressed_a_few_at_a_time() -> None:
    """The scratch region holds about one Arrow batch, not the whole chunk decompressed."""
    record = encode_record(Record(value=bytes(MIB)))
    parts = [
        raw_batch(Batch(at), 4, zstandard.ZstdCompressor().compress(record), 1) for at in range(64)
    ]
    decoder = Decoder("t", 0, DecodeSettings(batch_bytes=2 * MIB))
    chunk = scan_chunk(array(b"".join(parts)), "t", 0, 0)
    assert sum(batch.num_rows for batch in decoder.decode(chunk, 0, 64)) == 64
    assert len(decoder._scratch.region) < 16 * MIB
