"""Decoding records: lengths that lie, timestamps at their limits, headers, sizes of batches."""

from __future__ import annotations

import struct

import pytest

from keyrange.errors import CorruptError, KeyrangeError
from keyrange.model.columns import COLUMNS, chosen_columns
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import (
    COMPRESS,
    LOG_APPEND,
    TIMESTAMP_MS_MAX,
    Batch,
    Log,
    Record,
    Row,
    array,
    encode_batch,
    encode_record,
    raw_batch,
    rows_of,
    varint,
)

HUGE = (2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)
NEGATIVE = (-1, -2, -(2**31), -(2**63))


def body(*parts: bytes) -> bytes:
    inner = b"\0" + b"".join(parts)
    return varint(len(inner)) + inner


def decode(
    payload: bytes, count: int = 1, codec: str = "none", headers: bool = True, **fields: int
) -> list[Row]:
    number, compress = COMPRESS[codec]
    last = fields.pop("last_delta", count - 1)
    batch = Batch(40, last_delta=last, **fields)
    data = raw_batch(batch, number, compress(payload), count)
    chunk = scan_chunk(array(data), "topic", 3, 40)
    settings = DecodeSettings(chosen_columns(None, headers))
    return rows_of(Decoder("topic", 3, settings).decode(chunk, 40, 2**63 - 1))


ZERO, NULL, ONE = varint(0), varint(-1), varint(1)
GOOD = (ZERO, ZERO, NULL, NULL, ZERO)


def hostile() -> dict[str, bytes]:
    cases = {}
    for value in (*HUGE, *NEGATIVE, 5):
        number = varint(value)
        cases[f"record length {value}"] = number + body(*GOOD)[1:]
        cases[f"header count {value}"] = body(ZERO, ZERO, NULL, NULL, number)
        cases[f"header key length {value}"] = body(ZERO, ZERO, NULL, NULL, ONE, number, ZERO)
        cases[f"offset delta {value}"] = body(ZERO, number, NULL, NULL, ZERO)
        if value != -1:
            cases[f"key length {value}"] = body(ZERO, ZERO, number, NULL, ZERO)
            cases[f"value length {value}"] = body(ZERO, ZERO, NULL, number, ZERO)
            cases[f"header value length {value}"] = body(
                ZERO, ZERO, NULL, NULL, ONE, ONE + b"k", number
            )
    for at in range(len(GOOD)):
        parts = list(GOOD)
        parts[at] = b"\xff" * 10
        cases[f"endless number in field {at}"] = body(*parts)
        parts[at] = b"\x80" * 10 + b"\0"
        cases[f"zero in eleven bytes in field {at}"] = body(*parts)
        cases[f"fields missing from {at} on"] = body(*GOOD[:at])
    cases["endless record length"] = b"\xff" * 10 + body(*GOOD)
    cases["bytes behind the fields"] = body(*GOOD, b"x")
    cases["bytes behind the headers"] = body(ZERO, ZERO, NULL, NULL, ONE, ONE + b"k", NULL, b"x")
    cases["bytes behind the records"] = body(*GOOD) + b"x"
    cases["no bytes"] = b""
    return cases


HOSTILE = hostile()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_that_contradicts_itself_is_refused_with_its_place(name: str, codec: str) -> None:
    with pytest.raises(CorruptError) as caught:
        decode(HOSTILE[name], codec=codec)
    assert caught.value.condition.name == "CORRUPT_BATCH"
    assert caught.value.message.endswith("(topic=topic, partition=3, offset=40)")


def test_an_offset_delta_that_wraps_is_refused_and_not_skipped() -> None:
    """The sum with the base offset becomes negative and so falls before the range."""
    for delta in (2**63 - 1, 2**63 - 41):
        with pytest.raises(CorruptError, match="CORRUPT_BATCH"):
            decode(body(ZERO, varint(delta), NULL, NULL, ZERO))


def test_deltas_must_grow() -> None:
    for first, second in ((0, 0), (1, 0), (1, 1)):
        pair = encode_record(Record(first)) + encode_record(Record(second))
        with pytest.raises(CorruptError) as caught:
            decode(pair, 2, last_delta=5)
        assert f"offset={40 + first + 1})" in caught.value.message


def test_headers_end_with_their_record() -> None:
    """A header that reaches into the next record would show its bytes, or ask for gigabytes."""
    reaching = body(ZERO, ZERO, NULL, NULL, ONE, ONE + b"k", varint(20))
    following = encode_record(Record(1, value=b"x" * 40))
    with pytest.raises(CorruptError) as caught:
        decode(reaching + following, 2)
    assert "offset=40)" in caught.value.message
    short = body(ZERO, ZERO, NULL, NULL, ONE, ONE + b"k", NULL, b"left over")
    with pytest.raises(CorruptError, match="CORRUPT_BATCH"):
        decode(short + following, 2)
    assert len(decode(short + following, 2, headers=False)) == 2


def test_header_keys_that_are_not_utf8_read_as_java_reads_them() -> None:
    raw = b"a\xff\xc3(b"
    [row] = decode(body(ZERO, ZERO, NULL, NULL, ONE, varint(len(raw)) + raw, ONE + b"\xff"))
    assert row.headers == [("a\ufffd\ufffd(b", b"\xff")]


def test_headers_keep_order_duplicates_and_nulls_and_are_null_when_there_are_none() -> None:
    headers = (("b", b"1"), ("a", None), ("b", b""), ("", b"2"))
    records = (Record(0, headers=headers), Record(1), Record(2, headers=(("ü", b""),)))
    rows = decode(b"".join(map(encode_record, records)), 3)
    assert [row.headers for row in rows] == [list(headers), None, [("ü", b"")]]


def test_null_and_empty_are_two_things() -> None:
    records = (Record(0, key=None, value=b""), Record(1, key=b"", value=None))
    rows = decode(b"".join(map(encode_record, records)), 2)
    assert [(row.key, row.value) for row in rows] == [(None, b""), (b"", None)]


@pytest.mark.parametrize("flags", [0, LOG_APPEND])
@pytest.mark.parametrize("sign", [1, -1])
def test_timestamps_reach_to_the_last_millisecond_that_microseconds_hold(
    flags: int, sign: int
) -> None:
    most = sign * TIMESTAMP_MS_MAX
    fields = {"flags": flags, "base_timestamp": most, "max_timestamp": most}
    [row] = decode(encode_record(Record()), **fields)
    assert row.timestamp_us == most * 1000
    for beyond in (most + sign, sign * (2**63 - 1)):
        fields = {"flags": flags, "base_timestamp": beyond, "max_timestamp": beyond}
        with pytest.raises(CorruptError) as caught:
            decode(encode_record(Record()), **fields)
        assert caught.value.condition.name == "KAFKA_MALFORMED_RECORD_TIMESTAMP"
        assert "offset=40)" in caught.value.message


@pytest.mark.parametrize(
    ("base", "delta"),
    [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (2**62, 2**62), (-(2**63), -1)],
)
def test_timestamps_that_wrap_are_malformed(base: int, delta: int) -> None:
    with pytest.raises(CorruptError, match="KAFKA_MALFORMED_RECORD_TIMESTAMP"):
        decode(encode_record(Record(timestamp_delta=delta)), base_timestamp=base)


def test_a_malformed_timestamp_outside_of_the_range_is_nobodys() -> None:
    payload = encode_record(Record(0, timestamp_delta=2**62)) + encode_record(Record(1))
    data = raw_batch(Batch(last_delta=1), 0, payload, 2)
    chunk = scan_chunk(array(data), "t", 0, 0)
    assert len(rows_of(Decoder("t", 0, DecodeSettings()).decode(chunk, 1, 2))) == 1


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_kafka_does_not_have_are_refused_by_name(codec: int) -> None:
    data = raw_batch(Batch(7), codec, encode_record(Record()), 1)
    chunk = scan_chunk(array(data), "topic", 3, 7)
    with pytest.raises(CorruptError) as caught:
        list(Decoder("topic", 3, DecodeSettings()).decode(chunk, 7, 8))
    assert caught.value.condition.name == "UNSUPPORTED_COMPRESSION"
    assert caught.value.message == f"compression codec {codec} (topic=topic, partition=3, offset=7)"


@pytest.mark.parametrize("codec", [name for name in COMPRESS if name != "none"])
def test_compressed_records_cut_off_anywhere_are_refused(codec: str) -> None:
    number, compress = COMPRESS[codec]
    packed = compress(encode_record(Record(value=bytes(range(250)))))
    for size in range(len(packed)):
        data = raw_batch(Batch(last_delta=0), number, packed[:size], 1)
        chunk = scan_chunk(array(data), "t", 0, 0)
        with pytest.raises(KeyrangeError, match="CORRUPT_BATCH"):
            list(Decoder("t", 0, DecodeSettings()).decode(chunk, 0, 1))


@pytest.mark.parametrize("codec", COMPRESS)
def test_rows_before_a_damaged_batch_are_handed_over(codec: str) -> None:
    """Batch 1 holds a record that lies; what stands before it arrives, nothing behind it does."""
    good = Batch(0, (Record(),), codec)
    number, compress = COMPRESS[codec]
    bad = raw_batch(Batch(1, last_delta=0), number, compress(body(*GOOD, b"x")), 1)
    data = encode_batch(good) + bad + encode_batch(Batch(2, (Record(),), codec))
    chunk = scan_chunk(array(data), "t", 0, 0)
    decoding = Decoder("t", 0, DecodeSettings(batch_rows=1)).decode(chunk, 0, 9)
    rows = rows_of([next(decoding)])
    with pytest.raises(CorruptError, match="offset=1"):
        next(decoding)
    assert [row.offset for row in rows] == [0]


@pytest.mark.parametrize("rows", [1, 2, 5, 10])
def test_batches_are_filled_to_their_rows(rows: int) -> None:
    log = Log(tuple(Batch(at, (Record(), Record(1))) for at in range(0, 10, 2)))
    chunk = scan_chunk(array(log.encode()), "t", 0, 0)
    decoder = Decoder("t", 0, DecodeSettings(batch_rows=rows))
    assert [batch.num_rows for batch in decoder.decode(chunk, 0, 10)] == [rows] * (10 // rows)


def test_one_record_larger_than_the_batch_is_still_one_batch() -> None:
    log = Log((Batch(0, (Record(value=b"x" * 5_000), Record(1, value=b"y"))),))
    chunk = scan_chunk(array(log.encode()), "t", 0, 0)
    decoder = Decoder("t", 0, DecodeSettings(batch_bytes=1_000))
    assert [batch.num_rows for batch in decoder.decode(chunk, 0, 10)] == [1, 1]


def test_a_batch_handed_over_does_not_change_with_the_receive_buffer() -> None:
    data = array(encode_batch(Batch(0, (Record(key=b"key", headers=(("h", b"v"),)),))))
    decoder = Decoder("t", 0, DecodeSettings(columns=COLUMNS))
    out = list(decoder.decode(scan_chunk(data, "t", 0, 0), 0, 1))
    before = rows_of(out)
    data.fill(0xEE)
    assert rows_of(out) == before


def test_the_delete_horizon_flag_changes_nothing() -> None:
    """Compaction sets bit 6 and writes the horizon as base timestamp, deltas follow it."""
    data = encode_batch(Batch(0, (Record(timestamp_delta=-7),), flags=0x40, base_timestamp=1_000))
    assert struct.unpack_from(">h", data, 21) == (0x40,)
    rows = rows_of(
        Decoder("t", 0, DecodeSettings()).decode(scan_chunk(array(data), "t", 0, 0), 0, 1)
    )
    assert rows[0].timestamp_us == 993_000


def test_headers_count_towards_the_size_of_a_batch() -> None:
    """Many empty headers are small on the wire and large in memory."""
    records = tuple(Record(n, headers=(("", b""),) * 500) for n in range(10))
    chunk = scan_chunk(array(encode_batch(Batch(0, records))), "t", 0, 0)
    decoder = Decoder("t", 0, DecodeSettings(columns=COLUMNS, batch_bytes=40_000))
    assert [batch.num_rows for batch in decoder.decode(chunk, 0, 10)] == [3, 3, 3, 1]
