"""The compiled passes over keys against the mmh3 package and plain Python, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.key_ranges import HASH_MAX, hash_of, hash_of_record
from keyrange.wire import record_batches, record_kernels
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.key_range_selection import Selection
from samples import strategies  # noqa: F401  registers the hypothesis profiles
from samples.strategies import Batch, Record, array, encode_batch

OFFSETS = [0, 1, 255, 256, 2**31, 2**32 + 7, 2**53, 2**63 - 2]
LENGTHS = [*range(70), 127, 128, 255, 4095, 4096, 65_537, 1 << 20, (1 << 20) - 1, (1 << 20) - 9]


def key_hash(region: np.ndarray, at: int, size: int) -> int:
    """What the compiled pass makes of a key that lies somewhere."""
    records, hashes = np.zeros(1, record_kernels.RECORD), np.empty(1, np.int64)
    records["key_at"], records["key_bytes"] = at, size
    record_kernels.hash_keys(region, records, 1, False, hashes)
    return int(hashes[0])


@given(key=st.binary(max_size=100), before=st.binary(max_size=17), behind=st.binary(max_size=17))
def test_a_hash_is_mmh3s_wherever_the_key_lies(key: bytes, before: bytes, behind: bytes) -> None:
    region = array(before + key + behind + b"end")
    assert key_hash(region, len(before), len(key)) == hash_of(key)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_hash_is_mmh3s_up_to_a_mebibyte(length: int) -> None:
    for seed in range(3):
        random = Random(seed)
        key, start = random.randbytes(length), random.randint(0, 9)
        region = array(random.randbytes(start) + key + b"\xff" * 20)
        assert key_hash(region, start, length) == hash_of(key)
        assert 0 <= hash_of(key) <= HASH_MAX
    for byte in (b"\x00", b"\xff"):
        key = byte * length
        assert key_hash(array(key + b"end"), 0, length) == hash_of(key)


def test_places_by_offset_are_those_of_null_keys() -> None:
    records, hashes = (
        np.zeros(len(OFFSETS), record_kernels.RECORD),
        np.empty(len(OFFSETS), np.int64),
    )
    records["offset"], records["key_bytes"] = OFFSETS, 3
    record_kernels.hash_offsets(records, len(OFFSETS), hashes)
    assert hashes.tolist() == [
        hash_of_record(None, offset, nulls_first=False) for offset in OFFSETS
    ]


def test_known_places() -> None:
    """Written down: what a key hashes to is what two clients, and two releases, must agree on."""
    assert hash_of(b"") == 0
    assert hash_of(b"hello") == 0xCBD8A7B341BD9B02 >> 1
    assert hash_of(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C >> 1
    assert hash_of_record(None, 258, nulls_first=False) == hash_of(bytes([0, 0, 0, 0, 0, 0, 1, 2]))
    assert hash_of_record(None, 258, nulls_first=True) == 0


def decoded(keys: Sequence[bytes | None], offsets: Sequence[int], nulls_first: bool) -> list[int]:
    """The places that decoding gives records with these keys at these offsets."""
    log = b"".join(
        encode_batch(Batch(offset, (Record(key=key),)))
        for key, offset in zip(keys, offsets, strict=True)
    )
    settings = DecodeSettings(columns=("keyHash",), selection=Selection(nulls_first=nulls_first))
    first, until = offsets[0] if offsets else 0, offsets[-1] + 1 if offsets else 0
    chunk = scan_chunk(array(log), "t", 0, first)
    batches = Decoder("t", 0, settings).decode(chunk, first, until)
    return [key_hash for batch in batches for key_hash in batch.column(0).to_pylist()]


class Pass:
    """Records as an index pass leaves them, of keys in a region of their own; some room is left."""

    def __init__(
        self, keys: Sequence[bytes | None], offsets: Sequence[int], spare: int = 2
    ) -> None:
        rows = len(keys)
        self.records = np.zeros(rows + spare, record_kernels.RECORD)
        self.hashes = np.full(rows + spare, -7, np.int64)
        self.cursor = record_batches.new_cursor()
        region = bytearray(b"??")
        for row, (key, offset) in enumerate(zip(keys, offsets, strict=True)):
            record = self.records[row]
            record["offset"], record["key_at"] = offset, len(region)
            record["key_bytes"] = -1 if key is None else len(key)
            region += (key or b"") + b"?" * (row % 3)
            record["value_bytes"] = row % 4 - 1
            record["header_count"] = row % 2
            record["headers_at"], record["headers_end"] = 5, 5 + 3 * (row % 2)
        self.cursor[0]["rows"] = rows
        self.region = array(bytes(region))
        self._places = [
            hash_of_record(key, offset, nulls_first=False)
            for key, offset in zip(keys, offsets, strict=True)
        ]

    def hash(self) -> list[int]:
        """The places, as the index pass would have left them."""
        self.hashes[: len(self._places)] = self._places
        return self._places

    def offsets(self) -> list[int]:
        return [int(each) for each in self.records["offset"][: int(self.cursor[0]["rows"])]]


def counted(cursor: Any) -> dict[str, int]:
    names = ("rows", "key_bytes", "value_bytes", "header_count", "header_bytes")
    return {name: int(cursor[0][name]) for name in names}


def count(records: Any) -> dict[str, int]:
    """What the cursor has to say of records: what the gather passes allocate by."""
    headers = sum(int(record["header_count"]) for record in records)
    spans = sum(int(record["headers_end"]) - int(record["headers_at"]) for record in records)
    return {
        "rows": len(records),
        "key_bytes": sum(max(int(record["key_bytes"]), 0) for record in records),
        "value_bytes": sum(max(int(record["value_bytes"]), 0) for record in records),
        "header_count": headers,
        "header_bytes": spans + 32 * headers,
    }


# Few, so that keys come again; some are the beginning of others.
KEYS = [None, b"", b"a", b"ab", b"b", b"aa", b"x" * 40, b"x" * 39 + b"y", b"\0", b"\0\0"]
key_lists = st.lists(st.sampled_from(KEYS), max_size=20)


@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=20),
    start=st.sampled_from(OFFSETS[:-1]),
    nulls_first=st.booleans(),
)
def test_a_null_keys_place_is_that_of_its_offset_or_the_first(
    keys: list[bytes | None], start: int, nulls_first: bool
) -> None:
    offsets = [start + 3 * row for row in range(len(keys))]
    assert decoded(keys, offsets, nulls_first) == [
        hash_of_record(key, offset, nulls_first) for key, offset in zip(keys, offsets, strict=True)
    ]


@pytest.mark.parametrize("offset", OFFSETS)
def test_offsets_are_hashed_most_significant_byte_first(offset: int) -> None:
    assert decoded([None], [offset], False) == [hash_of(offset.to_bytes(8, "big"))]


def keep(run: Pass, wanted: Sequence[tuple[int, bytes]], null: bool) -> None:
    """Keep keys by (place, key)."""
    wanted = sorted(set(wanted))
    key_hashes = np.array([key_hash for key_hash, _ in wanted], np.int64)
    ends = np.cumsum([0, *(len(key) for _, key in wanted)]).astype(np.int64)
    text = array(b"".join(key for _, key in wanted) + b"!")
    record_kernels.keep_keys(
        run.region, run.records, run.hashes, run.cursor, key_hashes, ends, text, null
    )


@given(
    keys=key_lists,
    wanted=st.sets(st.sampled_from(KEYS)),
    key_hashes=st.none() | st.lists(st.integers(0, 2), min_size=len(KEYS), max_size=len(KEYS)),
)
def test_certain_keys_are_kept_whoever_shares_their_place(
    keys: list[bytes | None], wanted: set[bytes | None], key_hashes: list[int] | None
) -> None:
    """With `places` the hashes are made up, so that wanted and other keys collide."""
    run = Pass(keys, range(len(keys)))
    before = run.records.copy()
    hashes = run.hash()
    place_of = {key: hash_of(key or b"") for key in KEYS}
    if key_hashes is not None:
        place_of = dict(zip(KEYS, key_hashes, strict=True))
        hashes = [place_of[key] for key in keys]
        run.hashes[: len(keys)] = hashes

    keep(run, [(place_of[key], key) for key in wanted if key is not None], None in wanted)

    rows = [row for row, key in enumerate(keys) if key in wanted]
    assert run.offsets() == rows
    assert run.records[: len(rows)].tolist() == before[rows].tolist()
    assert run.hashes[: len(rows)].tolist() == [hashes[row] for row in rows]
    assert counted(run.cursor) == count(before[rows])
    assert run.records[len(keys) :].tolist() == before[len(keys) :].tolist()


UPPERS = st.sets(
    st.sampled_from([0, 1, 2**61, 2**62, *map(hash_of, filter(None, KEYS)), HASH_MAX - 1])
).map(lambda inside: [*sorted(inside), HASH_MAX])


@given(keys=key_lists, uppers=UPPERS, data=st.data())
def test_records_are_sorted_by_reader_and_keep_their_order(
    keys: list[bytes | None], uppers: list[int], data: st.DataObject
) -> None:
    owners = data.draw(st.lists(st.integers(-1, 3), min_size=len(uppers), max_size=len(uppers)))
    readers = data.draw(st.integers(max(owners) + 1, 5))
    run = Pass(keys, range(100, 100 + len(keys)))
    before, hashes = run.records.copy(), run.hash()
    room = len(keys)
    placed, placed_hashes = np.zeros(room, record_kernels.RECORD), np.zeros(room, np.int64)
    starts, cells = np.full(readers + 1, 99, np.int64), np.zeros(room, np.int32)
    tables = np.array(uppers, np.int64), np.array(owners, np.int32)

    record_kernels.sort_by_reader(
        run.records, run.hashes, run.cursor, *tables, cells, placed, placed_hashes, starts
    )

    def owner(key_hash: int) -> int:
        return owners[next(cell for cell, upper in enumerate(uppers) if key_hash <= upper)]

    of = [
        [row for row, key_hash in enumerate(hashes) if owner(key_hash) == n] for n in range(readers)
    ]
    rows = [row for own in of for row in own]
    assert starts.tolist() == [sum(map(len, of[:reader])) for reader in range(readers + 1)]
    assert placed[: len(rows)].tolist() == before[rows].tolist()
    assert placed_hashes[: len(rows)].tolist() == [hashes[row] for row in rows]
    assert counted(run.cursor) == count(before[rows])
