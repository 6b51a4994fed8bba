"""Logs gone wrong: rows exactly as a second decoder reads them, or a typed error, nothing else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import CorruptError, InvalidError, KeyrangeError
from keyrange.model.columns import chosen_columns
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import Row, array, rows_of
from unit.wire import mutations, reference

BATCHES_MAX = 1 << 20


def read(data: bytes, low: int, high: int, rows: int, headers: bool) -> reference.Reading:
    """What keyrange makes of a chunk."""
    reading, place = reference.Reading(), True
    try:
        chunk = scan_chunk(array(data), "topic", 3, low)
        sizes = DecodeSettings(chosen_columns(None, headers), rows, 64, BATCHES_MAX)
        for batch in Decoder("topic", 3, sizes).decode(chunk, low, high):
            reading.rows += rows_of([batch])
    except (CorruptError, InvalidError) as failure:
        reading.condition = failure.condition.name
        place = "topic=topic, partition=3, offset=" in failure.message
    assert place
    return reading


@settings(max_examples=settings().max_examples * 10)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from([mutations.whole, mutations.resealed]),
    rows=st.sampled_from([1, 2, 100]),
    headers=st.booleans(),
    high=st.sampled_from([2**63 - 1, 7, 4]),
)
def test_a_log_gone_wrong_reads_as_the_reference_reads_it(
    seed: int, kind: object, rows: int, headers: bool, high: int
) -> None:
    data = kind(Random(seed))
    seen = read(data, 0, high, rows, headers)
    expected = reference.read(data, 0, high, headers)
    if not compressed(data):
        assert seen.condition == expected.condition
    # Codecs differ in how much of a damaged frame they still give; what came before is the same.
    common = min(len(seen.rows), len(expected.rows))
    assert seen.rows[:common] == expected.rows[:common]
    if not expected.condition and not seen.condition:
        assert seen.rows == expected.rows
    check_order(seen.rows)


def check_order(rows: list[Row]) -> None:
    offsets = [row.offset for row in rows]
    assert offsets == sorted(set(offsets))


def compressed(data: bytes) -> bool:
    """Whether any batch of it may name a codec."""
    at = 0
    while len(data) - at >= 61:
        if data[at + 22] & 7:
            return True
        at += max(int.from_bytes(data[at + 8 : at + 12], "big", signed=True) + 12, 61)
    return False


@settings(max_examples=settings().max_examples * 5)
@given(data=st.binary(max_size=200), low=st.integers(0, 2**63 - 1))
def test_bytes_of_any_kind_are_refused_or_empty(data: bytes, low: int) -> None:
    reading = read(data, low, 2**63 - 1, 10, True)
    assert reading.rows == []
    assert reading.condition or not data


@given(seed=st.integers(0, 2**32))
def test_a_flip_anywhere_behind_the_checksum_is_noticed(seed: int) -> None:
    """Every byte of one batch, one bit each: only offset and leader epoch are not covered."""
    random = Random(seed)
    data = mutations.encode_batch(mutations.log(random)[0])
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << random.randrange(8)
        if at < 8 or 12 <= at < 16:
            continue
        with pytest.raises(KeyrangeError):
            scan_chunk(array(bytes(bad)), "topic", 3, 0)


@given(seed=st.integers(0, 2**32))
def test_a_flip_in_offset_or_epoch_moves_the_batch_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    batch = mutations.log(random)[0]
    data = mutations.encode_batch(batch)
    for at in (*range(8), *range(12, 16)):
        bad = bytearray(data)
        bad[at] ^= 1 << random.randrange(8)
        seen = read(bytes(bad), 0, 2**63 - 1, 100, True)
        moved = int.from_bytes(bad[:8], "big", signed=True) - batch.base_offset
        if moved + batch.base_offset < 0:
            assert seen == reference.Reading([], "CORRUPT_BATCH")
        else:
            rows = [row._replace(offset=row.offset + moved) for row in batch.rows()]
            assert seen == reference.Reading(rows)
