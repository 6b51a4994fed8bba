"""Every codec, as any encoder may write it: the same bytes come back, or a typed error, never more.

Frames gone wrong are also read by the library that wrote them: what keyrange takes, it takes too,
and gets the same bytes of it.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from random import Random

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.wire.compression import Scratch
from samples.strategies import array, xerial
from unit.wire import reference
from unit.wire.lz4_frames import BLOCK_CHECKSUMS, CONTENT_CHECKSUM, INDEPENDENT, Block, frame

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
BLOCK_SIZES = (
    lz4.frame.BLOCKSIZE_MAX64KB,
    lz4.frame.BLOCKSIZE_MAX256KB,
    lz4.frame.BLOCKSIZE_MAX1MB,
    lz4.frame.BLOCKSIZE_MAX4MB,
)


def text(random: Random) -> bytes:
    """Data of any size up to a few blocks: words that repeat, zeros, and noise that does not."""
    words = [random.randbytes(random.randint(1, 30)) for _ in range(20)]
    out = bytearray()
    size = random.choice((0, 1, 13, 300, 65_536, 70_000, 200_000))
    while len(out) < size:
        kind = random.random()
        if kind < 0.02:
            out += random.randbytes(random.choice((10, 80_000)))
        elif kind < 0.04:
            out += bytes(random.choice((10, 80_000)))
        else:
            out += random.choice(words)
    return bytes(out[:size])


def lz4_of_library(random: Random, data: bytes) -> bytes:
    return lz4.frame.compress(
        data,
        compression_level=random.choice((-9, 0, 3, 12)),
        block_size=random.choice(BLOCK_SIZES),
        block_linked=random.random() < 0.4,
        content_checksum=random.random() < 0.4,
        block_checksum=random.random() < 0.4,
        store_size=random.random() < 0.5,
    )


def lz4_by_hand(random: Random, data: bytes) -> bytes:
    """Independent blocks that end anywhere, of which some are stored."""
    blocks, at = [], 0
    while at < len(data):
        end = at + random.choice((1, 700, 65_535, 65_536))
        part = data[at:end]
        blocks.append(Block(part, True) if random.random() < 0.3 else Block.packed(part))
        if len(blocks[-1].data) > 65_536:
            blocks[-1] = Block(part, True)
        at = end
    flags = INDEPENDENT | random.choice((0, 0, CONTENT_CHECKSUM, BLOCK_CHECKSUMS))
    content_bytes = random.choice((None, len(data)))
    return frame(blocks, flags, random.choice((4, 5, 7)), content_bytes, data)


def zstd(random: Random, data: bytes) -> bytes:
    return zstandard.ZstdCompressor(
        level=random.choice((-5, 1, 3, 19)),
        write_checksum=random.random() < 0.5,
        write_content_size=random.random() < 0.5,
    ).compress(data)


def gzipped(random: Random, data: bytes) -> bytes:
    return gzip.compress(data, random.choice((0, 1, 6, 9)))


def xerial_stream(random: Random, data: bytes) -> bytes:
    return xerial(data, random.choice((100, 32_768, 1 << 20)))


Encoder = Callable[[Random, bytes], bytes]
ENCODERS: dict[str, tuple[int, Encoder]] = {
    "gzip": (GZIP, gzipped),
    "snappy": (SNAPPY, lambda _, data: snappy.compress(data)),
    "xerial": (SNAPPY, xerial_stream),
    "lz4": (LZ4, lz4_of_library),
    "lz4 by hand": (LZ4, lz4_by_hand),
    "zstd": (ZSTD, zstd),
}


def appended(codec: int, payload: bytes, cap: int, before: int) -> bytes:
    """What is decompressed behind bytes that are there, which have to stay as they are."""
    scratch = Scratch(cap)
    if before:
        scratch.append(ZSTD, array(zstandard.compress(b"b" * before)), {})
    count = scratch.append(codec, array(payload), {})
    assert count <= cap
    assert scratch.region[:before].tobytes() == b"b" * before
    return scratch.region[before : before + count].tobytes()


@pytest.mark.parametrize("name", ENCODERS)
@given(seed=st.integers(0, 2**32))
def test_what_an_encoder_wrote_comes_back(name: str, seed: int) -> None:
    codec, encode = ENCODERS[name]
    random = Random(seed)
    data = text(random)
    payload = encode(random, data)
    before = random.choice((0, 5))
    assert appended(codec, payload, 1 << 20, before) == data
    assert appended(codec, payload, max(len(data), 5), before) == data
    if len(data) > 5:
        with pytest.raises(KeyrangeError, match="BATCH_TOO_LARGE"):
            appended(codec, payload, len(data) - 1, before)


REFUSALS = ("CORRUPT_BATCH", "BATCH_TOO_LARGE")


def outcome(codec: int, payload: bytes, cap: int) -> tuple[str, bytes]:
    """The condition that it is refused with, and what came of it otherwise."""
    try:
        return "", appended(codec, payload, cap, 0)
    except KeyrangeError as refused:
        return refused.condition.name, b""


def damaged(random: Random, payload: bytes) -> bytes:
    """Cut off, a bit flipped near an end or anywhere, bytes written over, or bytes behind it."""
    at = random.randrange(random.choice((12, len(payload))) % len(payload) + 1)
    at = random.choice((at, len(payload) - 1 - at))
    kind = random.random()
    if kind < 0.25:
        return payload[:at]
    if kind < 0.35:
        return payload + random.randbytes(random.randint(1, 9))
    bad = bytearray(payload)
    if kind < 0.75:
        bad[at] ^= 1 << random.randrange(8)
    else:
        bad[at : at + 4] = random.choice((b"\0" * 4, b"\xff" * 4, random.randbytes(4)))[
            : len(bad) - at
        ]
    return bytes(bad)


def by_another(codec: int, payload: bytes) -> bytes | None:
    """What the library that the encoder is from makes of it; None where it refuses it."""
    try:
        return reference._decompress(codec, payload)
    except (reference.Malformed, zlib.error):
        return None


@settings(max_examples=settings().max_examples * 5)
@pytest.mark.parametrize("name", ENCODERS)
@given(seed=st.integers(0, 2**32))
def test_a_frame_gone_wrong_is_read_as_another_library_reads_it_or_refused(
    name: str, seed: int
) -> None:
    codec, encode = ENCODERS[name]
    random = Random(seed)
    data = text(random)[: random.choice((50, 5_000, 200_000))]
    payload = damaged(random, encode(random, data))
    cap = random.choice((max(len(data) // 2, 1), 1 << 18, 1 << 20))
    condition, seen = outcome(codec, payload, cap)
    if condition:
        assert condition in REFUSALS
        return
    expected = by_another(codec, payload)
    # The other library may stop where a first frame ends.
    assert expected is None or seen[: len(expected)] == expected
    if codec == LZ4:
        assert expected is not None


@settings(max_examples=settings().max_examples * 5)
@given(data=st.binary(max_size=100), name=st.sampled_from(sorted(ENCODERS)), keep=st.booleans())
def test_bytes_of_any_kind_give_an_error_or_a_bounded_batch(
    data: bytes, name: str, keep: bool
) -> None:
    codec, encode = ENCODERS[name]
    payload = encode(Random(1), b"start")[:8] + data if keep else data
    condition, seen = outcome(codec, payload, 1_000)
    assert not condition or condition in REFUSALS
    assert len(seen) <= 1_000
