"""Scanning chunks: what a batch's header may say, where batches lie."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from keyrange.errors import CorruptError
from keyrange.wire.chunk_decoder import Chunk, Decoder, DecodeSettings, scan_chunk
from samples.strategies import Batch, Record, array, encode_batch, rows_of, sealed


def batch(offset: int = 0, count: int = 1, **fields: object) -> Batch:
    records = tuple(Record(index, value=b"%d" % (offset + index)) for index in range(count))
    return Batch(offset, records, **fields)


def scan(data: bytes, from_offset: int = 0) -> Chunk:
    return scan_chunk(array(data), "topic", 3, from_offset)


def put(at: int, form: str, value: int, reseal: bool = True) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        out = bytearray(data)
        struct.pack_into(form, out, at, value)
        return sealed(bytes(out)) if reseal else bytes(out)

    return change


LENGTH = "the batch's length field is too small"
COUNT = "the batch's record count cannot be true"
ORDER = "the batch's offsets are out of order"
VERSION = "the batch is not of message format v2, but v{}"

HOSTILE = {
    "negative length": (put(8, ">i", -1, False), LENGTH),
    "least length": (put(8, ">i", -(2**31), False), LENGTH),
    "length of a header less one": (put(8, ">i", 48, False), LENGTH),
    "no length": (put(8, ">i", 0, False), LENGTH),
    "magic 0": (put(16, ">B", 0), VERSION.format(0)),
    "magic 1": (put(16, ">B", 1), VERSION.format(1)),
    "magic 3": (put(16, ">B", 3), VERSION.format(3)),
    "magic -1": (put(16, ">B", 255), VERSION.format(255)),
    "checksum": (put(17, ">I", 5, False), "the batch's CRC32C does not match its bytes"),
    "last offset before the first": (put(23, ">i", -1), COUNT),
    "most records": (put(57, ">i", 2**31 - 1), COUNT),
    "negative count": (put(57, ">i", -1), COUNT),
    "more records than offsets": (put(57, ">i", 2), COUNT),
    "more records than bytes": (lambda d: put(57, ">i", 900)(put(23, ">i", 999)(d)), COUNT),
    "negative offset": (put(0, ">q", -1, False), ORDER),
    "the last offset there is": (put(0, ">q", 2**63 - 1, False), ORDER),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("before", [0, 2])
def test_a_hostile_header_is_refused_with_its_place(name: str, before: int) -> None:
    change, message = HOSTILE[name]
    good = b"".join(encode_batch(batch(offset)) for offset in range(before))
    with pytest.raises(CorruptError) as caught:
        scan(good + change(encode_batch(batch(before))))
    version = "magic" in name
    expected = "UNSUPPORTED_BATCH_VERSION" if version else "CORRUPT_BATCH"
    assert caught.value.condition.name == expected
    assert caught.value.message == f"{message} (topic=topic, partition=3, offset={before})"


def test_a_length_beyond_the_chunk_is_a_batch_cut_off() -> None:
    good = encode_batch(batch())
    huge = put(8, ">i", 2**31 - 1, False)(encode_batch(batch(1)))
    assert scan(good + huge).next_offset == 1
    with pytest.raises(CorruptError, match="holds bytes but no whole batch"):
        scan(huge)


def test_batches_that_overlap_are_refused() -> None:
    """Kafka never writes them; a changed base offset, which no checksum covers, makes them."""
    first = encode_batch(batch(5, 5))
    for offset in (5, 9):
        with pytest.raises(CorruptError, match=ORDER):
            scan(first + encode_batch(batch(offset, 9)), 5)
    assert scan(first + encode_batch(batch(10)), 5).next_offset == 11


def test_the_first_batch_may_begin_but_not_end_before_the_fetched_offset() -> None:
    data = encode_batch(batch(5, 5))
    assert scan(data, 9).next_offset == 10
    with pytest.raises(CorruptError, match=ORDER):
        scan(data, 10)


def test_an_empty_chunk_holds_nothing_and_stays_where_it_is() -> None:
    chunk = scan(b"", 7)
    assert len(chunk.batches) == 0
    assert chunk.next_offset == 7


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 3000])
def test_any_number_of_batches_is_scanned(count: int) -> None:
    """The table is filled in rounds of 1,024 rows."""
    data = b"".join(encode_batch(batch(offset)) for offset in range(count))
    chunk = scan(data + encode_batch(batch(count))[:-1])
    assert chunk.next_offset == count
    assert list(chunk.batches["base_offset"]) == list(range(count))
    rows = rows_of(Decoder("t", 0, DecodeSettings()).decode(chunk, 0, count))
    assert [row.value for row in rows] == [b"%d" % offset for offset in range(count)]


def test_overlap_is_noticed_between_two_rounds_of_the_scan() -> None:
    data = b"".join(encode_batch(batch(offset)) for offset in range(1024))
    with pytest.raises(CorruptError, match=ORDER):
        scan(data + encode_batch(batch(1023, 5)))
