"""Decompression of one batch: which way it takes, the room that it is offered, what is refused."""

from __future__ import annotations

import struct
from random import Random

import cramjam
import lz4.block
import lz4.frame
import numpy as np
import pytest
import snappy
import zstandard

from keyrange.errors import KeyrangeError
from keyrange.wire import compression
from keyrange.wire.compression import Scratch
from samples.strategies import array, xerial
from unit.wire.lz4_frames import (
    BLOCK_CHECKSUMS,
    CONTENT_CHECKSUM,
    INDEPENDENT,
    Block,
    frame,
    header,
    xxh32,
)

KIB = 1 << 10
LZ4, ZSTD = 3, 4
CAP = 1 << 20
TEXT = b"".join(b"line %d of a text that repeats; " % number for number in range(6_000))


def decompressed(codec: int, payload: bytes, cap: int = CAP) -> bytes:
    scratch = Scratch(cap)
    count = scratch.append(codec, array(payload), {})
    assert count == scratch.filled
    return scratch.region[:count].tobytes()


def decompressed_warm(payload: bytes) -> bytes:
    """An LZ4 frame behind others: the region has room."""
    scratch = Scratch(CAP)
    scratch.region = np.empty(CAP // 2, np.uint8)
    count = scratch.append(LZ4, array(payload), {})
    return scratch.region[:count].tobytes()


def refusal(codec: int, payload: bytes, cap: int = CAP) -> str:
    with pytest.raises(KeyrangeError) as refused:
        decompressed(codec, payload, cap)
    return refused.value.condition.name


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of every source that the library's LZ4 frame decoder has decoded."""
    decoded: list[int] = []
    decode = compression._lz4_frames

    def noted(source: memoryview, room: memoryview) -> int:
        decoded.append(len(source))
        return decode(source, room)

    monkeypatch.setattr(compression, "_lz4_frames", noted)
    return decoded


def test_the_hash_of_the_tests_is_xxh32() -> None:
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


@pytest.mark.parametrize("size_code", [4, 5, 6, 7])
@pytest.mark.parametrize("size", [1, 9, 1_000, 300_000])
def test_a_header_is_read_with_and_without_the_content_size(
    size: int, size_code: int, library: list[int]
) -> None:
    step = 1 << (8 + 2 * size_code)
    blocks = [Block.packed(TEXT[at : min(at + step, size)]) for at in range(0, size, step)]
    blocks[:0] = [Block(b"abc", stored=True)]
    for content_bytes in (None, min(size, len(TEXT)) + 3):
        data = frame(blocks, INDEPENDENT, size_code, content_bytes)
        assert decompressed_warm(data) == b"abc" + TEXT[:size]
    assert library == []


def kafkas(data: bytes, content_size: bool = False) -> bytes:
    """As Kafka's Java producer and librdkafka write: independent blocks, no checksums of them."""
    return lz4.frame.compress(data, block_linked=False, store_size=content_size)


@pytest.mark.parametrize("content_size", [False, True])
@pytest.mark.parametrize("size", [0, 1, 100, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 160_000])
def test_frames_of_kafkas_producers_are_decoded_block_by_block(
    size: int, content_size: bool, library: list[int]
) -> None:
    for data in (TEXT[:size], bytes(size), Random(size).randbytes(size)):
        assert decompressed_warm(kafkas(data, content_size)) == data
    assert library == []


def test_blocks_that_are_stored_short_or_flushed_early_are_decoded(library: list[int]) -> None:
    parts = [TEXT[:9], TEXT[9:70_000], Random(1).randbytes(1_000), b"x"]
    blocks = [Block(part, stored=True) for part in parts if len(part) < 64 * KIB]
    blocks += [Block.packed(part[: 64 * KIB]) for part in parts]
    expected = b"".join(part for part in parts if len(part) < 64 * KIB)
    expected += b"".join(part[: 64 * KIB] for part in parts)
    assert decompressed_warm(frame(blocks, content_bytes=len(expected))) == expected
    assert library == []


def test_the_rest_of_the_format_is_left_to_the_library(library: list[int]) -> None:
    data = TEXT[:150_000]
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"any"
    whole = kafkas(data)
    numbers = [b"%03d" % number for number in range(4096)]
    for payload, expected in (
        (lz4.frame.compress(data, block_linked=True), data),
        (lz4.frame.compress(data, block_linked=False, content_checksum=True), data),
        (lz4.frame.compress(data, block_linked=False, block_checksum=True), data),
        (skippable + whole, data),
        (whole + skippable, data),
        (whole + whole, data + data),
        (frame([Block(number, stored=True) for number in numbers]), b"".join(numbers)),
    ):
        library.clear()
        assert decompressed_warm(payload) == expected
        assert library == [len(payload)]


@pytest.mark.parametrize(
    ("flags", "at"),
    [
        (INDEPENDENT, 6),
        (INDEPENDENT | BLOCK_CHECKSUMS, 6),
        (INDEPENDENT | BLOCK_CHECKSUMS, -5),
        (INDEPENDENT | CONTENT_CHECKSUM, -1),
        (INDEPENDENT | CONTENT_CHECKSUM | BLOCK_CHECKSUMS, -4),
        (0, 6),
        (BLOCK_CHECKSUMS, -5),
        (CONTENT_CHECKSUM, -2),
    ],
)
def test_a_wrong_checksum_of_header_block_or_content_is_refused(flags: int, at: int) -> None:
    data = TEXT[:1_000]
    good = frame([Block.packed(data)], flags, content=data)
    assert decompressed(LZ4, good) == data
    for bit in range(8):
        bad = bytearray(good)
        bad[at] ^= 1 << bit
        assert refusal(LZ4, bytes(bad)) == "CORRUPT_BATCH"


def test_the_header_checksum_of_old_kafka_producers_is_refused() -> None:
    """They hashed the magic with it; batches of message format v2 never have it."""
    good = kafkas(TEXT)
    old = bytearray(good)
    old[6] = xxh32(good[:6]) >> 8 & 0xFF
    assert old[6] != good[6]
    assert refusal(LZ4, bytes(old)) == "CORRUPT_BATCH"


def test_a_content_size_that_is_not_true_is_refused() -> None:
    blocks = [Block.packed(TEXT[:1_000])]
    assert decompressed(LZ4, frame(blocks, content_bytes=1_000)) == TEXT[:1_000]
    for claimed in (1, 999, 1_001, 2**63, 2**64 - 1):
        assert refusal(LZ4, frame(blocks, content_bytes=claimed)) == "CORRUPT_BATCH"


def test_a_block_that_becomes_more_than_the_frame_allows_is_refused() -> None:
    for size, good in ((64 * KIB, True), (64 * KIB + 1, False), (CAP // 2, False)):
        data = frame([Block.packed(bytes(size)), Block.packed(b"behind")])
        if good:
            assert decompressed(LZ4, data) == bytes(size) + b"behind"
        else:
            assert refusal(LZ4, data) == "CORRUPT_BATCH"
    stored = frame([Block(bytes(64 * KIB + 1), stored=True)])
    assert refusal(LZ4, stored) == "CORRUPT_BATCH"
    grown = Block.packed(Random(1).randbytes(64 * KIB))
    assert len(grown.data) > 64 * KIB
    assert refusal(LZ4, frame([grown])) == "CORRUPT_BATCH"


def test_a_block_with_its_size_in_front_is_refused() -> None:
    """cramjam's block decoder takes the size for what it is; the frame format has none there."""
    prefixed = lz4.block.compress(TEXT[:1_000], store_size=True)
    assert cramjam.lz4.decompress_block_into(prefixed, bytearray(64 * KIB), 64 * KIB) == 1_000
    assert refusal(LZ4, frame([Block(prefixed)])) == "CORRUPT_BATCH"


def test_a_frame_that_does_not_fit_is_decoded_again_with_more_room() -> None:
    """The region of the first batch is a guess: blocks may end it anywhere."""
    for size in (4_095, 4_096, 4_097, 90_000):
        assert decompressed(LZ4, kafkas(bytes(size))) == bytes(size)
        noise = Random(size).randbytes(size)
        assert decompressed(LZ4, kafkas(noise)) == noise


def test_a_frame_whose_size_needs_more_than_the_cap_is_measured_by_what_it_becomes() -> None:
    data = kafkas(TEXT[:100_000])
    assert decompressed(LZ4, data, 100_000) == TEXT[:100_000]
    assert refusal(LZ4, data, 99_999) == "BATCH_TOO_LARGE"


@pytest.mark.parametrize("cut", [*range(12), -5, -4, -1])
def test_a_frame_that_is_cut_off_is_refused(cut: int) -> None:
    for content_bytes in (None, 1_000):
        good = frame([Block.packed(TEXT[:1_000])], content_bytes=content_bytes)
        assert refusal(LZ4, good[:cut]) == "CORRUPT_BATCH"
    assert refusal(LZ4, header() + b"\0\0\0\0more") == "CORRUPT_BATCH"


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 300_000])
def test_the_content_size_of_a_zstd_frame_is_read_where_it_is_there(size: int) -> None:
    data = (TEXT * 2)[:size]
    for checksum in (False, True):
        pack = zstandard.ZstdCompressor(write_checksum=checksum).compress
        assert compression._zstd_content_bytes(array(pack(data)).data) == size
        assert decompressed(ZSTD, pack(data)) == data
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert compression._zstd_content_bytes(array(unsaid).data) is None
    assert decompressed(ZSTD, unsaid) == data
    for cut in range(12):
        assert compression._zstd_content_bytes(array(pack(data)[:cut]).data) in (None, size)


@pytest.mark.parametrize("identifier", [1, 300, 70_000])
def test_a_zstd_dictionary_is_stepped_over_and_refused(identifier: int) -> None:
    samples = [b"key-%d value %d" % (number, number * number) for number in range(2_000)]
    words = zstandard.train_dictionary(2_000, samples, dict_id=identifier)
    packed = zstandard.ZstdCompressor(dict_data=words).compress(samples[7] * 40)
    parameters = zstandard.get_frame_parameters(packed)
    assert parameters.dict_id == identifier
    assert compression._zstd_content_bytes(array(packed).data) == parameters.content_size
    assert refusal(ZSTD, packed) == "CORRUPT_BATCH"


def offers(monkeypatch: pytest.MonkeyPatch, codec: int) -> list[int]:
    """The sizes of all rooms that decompression is offered."""
    rooms: list[int] = []
    decode = compression._DECOMPRESS[codec]

    def noted(source: memoryview, room: memoryview) -> int:
        rooms.append(len(room))
        return decode(source, room)

    monkeypatch.setitem(compression._DECOMPRESS, codec, noted)
    return rooms


def test_a_zstd_frame_that_says_its_size_is_offered_that_room_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = offers(monkeypatch, ZSTD)
    assert decompressed(ZSTD, zstandard.compress(TEXT)) == TEXT
    assert rooms == [len(TEXT)]


def test_all_of_the_region_is_offered_so_that_a_better_ratio_takes_no_second_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = Scratch(CAP)
    scratch.append(ZSTD, array(zstandard.compress(Random(1).randbytes(len(TEXT)))), {})
    scratch.clear()
    rooms = offers(monkeypatch, ZSTD)
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert scratch.append(ZSTD, array(unsaid), {}) == len(TEXT) > 20 * len(unsaid)
    assert rooms == [len(scratch.region)]


def test_each_try_is_offered_more_than_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch(CAP)
    scratch.region = np.empty(CAP // 4, np.uint8)
    rooms = offers(monkeypatch, ZSTD)
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(CAP))
    assert scratch.append(ZSTD, array(unsaid), {}) == CAP
    assert rooms == [CAP // 4, CAP]


def test_a_zstd_size_is_believed_up_to_a_multiple_of_what_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rooms = offers(monkeypatch, ZSTD)
    # A single segment of 64 MiB by its header, and one raw block of a byte.
    liar = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 64 * CAP) + b"\x09\0\0x"
    assert refusal(ZSTD, liar, 128 * CAP) == "CORRUPT_BATCH"
    assert rooms == [4096]


def test_zstd_frames_behind_an_empty_one_get_room() -> None:
    pack = zstandard.ZstdCompressor().compress
    assert decompressed(ZSTD, pack(b"") + pack(TEXT)) == TEXT
    assert refusal(ZSTD, pack(b"") + pack(TEXT), len(TEXT) - 1) == "BATCH_TOO_LARGE"


def test_snappy_is_read_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the source nor a block of it is copied."""
    lent: list[tuple[int, int]] = []
    decode = cramjam.snappy.decompress_raw_into

    def noted(block: memoryview, room: memoryview) -> int:
        lent.append((np.frombuffer(block, np.uint8).ctypes.data, len(block)))
        return decode(block, room)

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_into", noted)
    data = Random(1).randbytes(50_000).hex().encode()
    for payload in (snappy.compress(data), xerial(data, 32 * KIB)):
        lent.clear()
        source = array(payload)
        scratch = Scratch(CAP)
        assert scratch.append(2, source, {}) == len(data)
        assert scratch.region[: len(data)].tobytes() == data
        assert sum(size for _, size in lent) <= len(payload)
        first = source.ctypes.data
        assert all(first <= at and at + size <= first + len(payload) for at, size in lent)
