"""The stored form of a piece: round trip, golden bytes, and no damage that is read as something."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import strategies
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.partition_progress import KeyRangeState, PendingRecord
from keyrange.individual_commits.table.commit_schema import plain_columns
from keyrange.individual_commits.table.done_column import read_piece, write_piece
from keyrange.individual_commits.table.varints import read_varints, unzigzag, write_varints, zigzag
from keyrange.kafka.model.offsets import OFFSET_MAX
from keyrange.ranges.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.work.model.outcome import Cause

GOLDEN = Path(__file__).parents[3] / "golden" / "commit-pieces-v1.json"
EDGES = [0, 1, 127, 128, 2**31 - 1, 2**31, 2**31 + 1, 2**53 - 1, 2**53, 2**53 + 1, OFFSET_MAX - 1]
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 2**63 - 1, -(2**63)])


@st.composite
def pieces(draw: st.DrawFn) -> KeyRangeState:
    lo = draw(st.integers(0, HASH_MAX) | st.sampled_from([0, 2**62, HASH_MAX]))
    hi = draw(st.integers(lo, HASH_MAX) | st.just(HASH_MAX))
    base = draw(st.integers(0, OFFSET_MAX - 1) | st.sampled_from(EDGES))
    near = st.integers(base, min(base + 40, OFFSET_MAX - 1))
    offsets = draw(st.sets(near | st.sampled_from(EDGES), max_size=30))
    least = max(offsets, default=-1) + 1
    scanned = draw(st.just(least) | st.integers(least, OFFSET_MAX) | st.just(OFFSET_MAX))
    pending = [
        PendingRecord(
            offset,
            draw(st.integers(lo, hi)),
            draw(st.integers(0, 2**31 - 1)),
            draw(INT64),
            draw(INT64),
            draw(st.sampled_from(Cause)),
        )
        for offset in sorted(offsets)
    ]
    return KeyRangeState(KeyRange(lo, hi + 1), scanned, tuple(pending))


def refused(blob: bytes) -> str:
    with pytest.raises(KeyrangeError) as raised:
        read_piece(blob)
    return raised.value.condition.name


def sealed(data: bytes) -> bytes:
    """With a checksum that matches: what only its content can give away."""
    return data + strategies.crc32c(data).to_bytes(4, "little")


@given(piece=pieces())
def test_a_piece_comes_back(piece: KeyRangeState) -> None:
    assert read_piece(write_piece(piece)) == piece


@given(piece=pieces())
def test_done_ranges_are_counted_without_being_made(piece: KeyRangeState) -> None:
    pending = tuple(h.__class__(h.offset, h.key_hash) for h in piece.pending)
    plain = plain_columns(KeyRangeState(piece.span, piece.scanned, pending))
    assert plain["n_ranges"] == len(piece.done())


@given(values=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), max_size=50))
def test_varints_are_those_of_leb128(values: list[int]) -> None:
    expected = bytearray()
    for each in values:
        value = each
        while value >= 0x80:
            expected.append(value & 0x7F | 0x80)
            value >>= 7
        expected.append(value)
    assert write_varints(np.array(values, np.uint64)) == expected
    assert read_varints(bytes(expected)).tolist() == values


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\x80\x00", b"\xff" * 9 + b"\x02"])
def test_varints_that_nobody_wrote_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="number"):
        read_varints(data)


@given(values=st.lists(INT64))
def test_zigzag_goes_back(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert unzigzag(zigzag(column)).tolist() == values
    assert zigzag(np.array([0, -1, 1, -2], np.int64)).tolist() == [0, 1, 2, 3]


def test_a_wide_span_with_three_pending_records_is_small() -> None:
    pending = tuple(
        PendingRecord(offset, offset, 1, 5, 5) for offset in (7, 50_000_000, 99_999_999)
    )
    piece = KeyRangeState(SPACE, 100_000_005, pending)
    blob = write_piece(piece)
    assert len(blob) < 100
    assert read_piece(blob) == piece


def many_pending(count: int) -> KeyRangeState:
    chance = random.Random(count)
    offsets = sorted(chance.sample(range(10 * count), count))
    pending = tuple(PendingRecord(each, chance.randrange(1000), 1, 5 + each, 5) for each in offsets)
    return KeyRangeState(KeyRange(0, 1000), 10 * count, pending)


def test_what_compresses_is_compressed_and_what_does_not_is_not() -> None:
    assert write_piece(many_pending(3))[0] == 1
    large = write_piece(many_pending(10_000))
    assert large[0] == 2
    assert read_piece(large) == many_pending(10_000)
    # The form is zstd's own.
    size = int(read_varints(large[1:4])[0])
    body = zstandard.ZstdDecompressor().decompress(large[4:-4], max_output_size=size)
    assert read_piece(sealed(b"\x01" + body)) == many_pending(10_000)


def test_the_stored_bytes_are_those_of_the_golden_file() -> None:
    for entry in json.loads(GOLDEN.read_text()):
        piece = KeyRangeState(
            KeyRange(entry["lo"], entry["hi"] + 1),
            entry["scanned"],
            tuple(PendingRecord(*values[:5], Cause(values[5])) for values in entry["holes"]),
        )
        blob = bytes.fromhex(entry["blob"])
        assert read_piece(blob) == piece
        # zstd may come to other bytes in another version.
        assert blob[0] == 2 or write_piece(piece) == blob


@given(piece=pieces(), at=st.integers(0), bit=st.integers(0, 7))
def test_no_flipped_bit_is_read(piece: KeyRangeState, at: int, bit: int) -> None:
    blob = bytearray(write_piece(piece))
    blob[at % len(blob)] ^= 1 << bit
    assert refused(bytes(blob)) == "COMMITS_DAMAGED"


@given(piece=pieces(), cut=st.integers(1), more=st.binary(min_size=1, max_size=9))
def test_no_cut_and_no_longer_blob_is_read(piece: KeyRangeState, cut: int, more: bytes) -> None:
    blob = write_piece(piece)
    assert refused(blob[: -(cut % len(blob)) or -1]) == "COMMITS_DAMAGED"
    assert refused(blob + more) == "COMMITS_DAMAGED"
    assert refused(more + blob) == "COMMITS_DAMAGED"


@given(piece=pieces(), at=st.integers(0), value=st.integers(0, 255), data=st.binary(max_size=80))
def test_bytes_with_a_checksum_of_their_own_are_refused_or_mean_one_thing(
    piece: KeyRangeState, at: int, value: int, data: bytes
) -> None:
    changed = bytearray(write_piece(piece)[:-4])
    changed[at % len(changed)] = value
    for blob in (sealed(bytes(changed)), sealed(b"\x01" + data), sealed(b"\x02" + data)):
        try:
            found = read_piece(blob)
        except KeyrangeError:
            continue
        assert read_piece(write_piece(found)) == found
        if blob[0] == 1:
            assert sealed(b"\x01" + _body(found)) == blob


def _body(piece: KeyRangeState) -> bytes:
    """What codec 1 stores, whichever codec was chosen."""
    blob = write_piece(piece)
    if blob[0] == 1:
        return blob[1:-4]
    at = next(at for at in range(1, 12) if blob[at] < 0x80) + 1
    return zstandard.ZstdDecompressor().decompress(blob[at:-4], max_output_size=1 << 20)


HEAD = [5, 9, 0, 10, 1, 1]
HOLE = [3, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("numbers", "fault"),
    [
        ([], "head"),
        ([5, 9, 0, 10], "head"),
        ([*HEAD, 1, 3], "do not make"),
        ([*HEAD, 1, 3, *HOLE, 0], "do not make"),
        ([9, 5, 0, 10, 0, 0], "committed up to 9"),
        ([5, 2**63, 0, 10, 0, 0], "scanned up to"),
        ([5, 5, 10, 9, 0, 0], "no range of hashes"),
        ([5, 5, 0, 2**63, 0, 0], "no range of hashes"),
        # Everything would be done, if only the number of pending records were looked at.
        ([5, 9, 0, 10, 0, 0], "do not fill"),
        ([*HEAD, 1, 2, *HOLE], "do not fill"),
        ([*HEAD, 2, 2, *HOLE], "do not fill"),
        ([*HEAD, 0, 4, *HOLE], "without an offset"),
        ([5, 9, 0, 10, 2, 2, 1, 0, 1, 2, 3, 3, 1, 1, 0, 0, 0, 0, 1, 1], "without an offset"),
        ([*HEAD, 1, 3, 11, 1, 0, 0, 1], "outside its key range"),
        ([*HEAD, 1, 3, 3, 2**31, 0, 0, 1], "more often"),
        ([*HEAD, 1, 3, 3, 1, 0, 0, 0], "cause"),
        ([*HEAD, 1, 3, 3, 1, 0, 0, 7], "cause"),
        ([5, 9, 0, 10, 2**60, 2**60], "do not make"),
    ],
)
def test_numbers_that_cannot_be_are_damage(numbers: list[int], fault: str) -> None:
    blob = sealed(b"\x01" + write_varints(np.array(numbers, np.uint64)))
    with pytest.raises(KeyrangeError, match=fault) as raised:
        read_piece(blob)
    assert raised.value.condition.name == "COMMITS_DAMAGED"


def test_a_blob_that_says_it_is_huge_takes_no_memory() -> None:
    small = zstandard.compress(b"\x00" * 8)
    for size in (2**40, 2**63, 9, 7):
        data = b"\x02" + write_varints(np.array([size], np.uint64)) + small
        assert refused(sealed(data)) == "COMMITS_DAMAGED"


@pytest.mark.parametrize("codec", [0, 3, 255])
def test_a_codec_of_a_newer_version_is_said_to_be_one(codec: int) -> None:
    blob = bytes((codec,)) + write_piece(KeyRangeState(SPACE, 7))[1:-4]
    assert refused(sealed(blob)) == "UNSUPPORTED_COMMITS"


@pytest.mark.parametrize("blob", [b"", b"\x01", sealed(b""), sealed(b"\x01"), b"\x00" * 4])
def test_next_to_nothing_is_no_state(blob: bytes) -> None:
    assert refused(blob) == "COMMITS_DAMAGED"
