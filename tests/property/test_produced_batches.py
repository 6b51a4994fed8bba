"""Rows of columns as record batches: kafka-python and keyrange's own reader get them back.

The oracle is naive: one record after the other, by the encoder of the tests and by kafka-python's
murmur2.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from kafka.record import MemoryRecords

from keyrange.errors import KeyrangeError
from keyrange.model.columns import COLUMNS
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.produced_batches import ProducedBatch, RecordWriter, seal
from keyrange.wire.produced_faults import fault_of
from keyrange.wire.topic_limits import BatchSettings, TopicLimits
from samples.strategies import HEADER, Record, array, encode_record, rows_of

NOW_MS = 1_900_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = list[tuple[str | None, bytes | None] | None] | None


@dataclass(frozen=True)
class Sent:
    """A row that is to become a record; `timestamp_ms` and `partition` None leave them open."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None
    partition: int | None

    @property
    def plain_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return tuple((each[0] or "", each[1]) for each in self.headers or () if each is not None)

    def fault(self, partitions: int, request_bytes: int) -> str:
        """The condition that it is refused with, or nothing."""
        record = Record(0, 0, self.key, self.value, self.plain_headers)
        if HEADER.size + len(encode_record(record)) > request_bytes:
            return "MESSAGE_TOO_LARGE"
        nameless = any(each is None or each[0] is None for each in self.headers or ())
        early = self.timestamp_ms is not None and self.timestamp_ms < 0
        nowhere = self.partition is not None and not 0 <= self.partition < partitions
        return "INVALID_RECORD" if nameless or early or nowhere else ""

    def seen(self) -> tuple[Any, ...]:
        at_ms = NOW_MS if self.timestamp_ms is None else self.timestamp_ms
        return self.key, self.value, self.plain_headers, at_ms


payloads = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=120, max_size=300))
headers = st.lists(st.tuples(st.text(max_size=5), payloads), max_size=4)
rows_of_any_kind = st.builds(
    Sent,
    payloads,
    payloads,
    st.one_of(st.none(), headers),
    st.one_of(st.none(), st.integers(0, 2**42), st.integers(NOW_MS, NOW_MS + 200)),
    st.one_of(st.none(), st.none(), st.integers(0, 3)),
)
bad_rows = st.builds(
    Sent,
    payloads,
    st.sampled_from((None, b"v", b"v" * 5_000)),
    st.one_of(st.none(), st.lists(st.sampled_from((None, (None, b"x"), ("n", None))), max_size=2)),
    st.sampled_from((None, 0, -1, -(2**40))),
    st.sampled_from((None, 0, -1, 4, 2**31 - 1)),
)


def column_types(random: Random) -> dict[str, pa.DataType]:
    bytes_ = random.choice((pa.binary(), pa.large_binary(), pa.binary_view()))
    element = pa.struct(
        [("key", random.choice((pa.string(), pa.large_string()))), ("value", bytes_)]
    )
    return {
        "key": random.choice((pa.binary(), pa.large_binary())),
        "value": bytes_,
        "headers": random.choice((pa.list_, pa.large_list))(element),
        "timestamp": pa.timestamp(random.choice(("ms", "us")), random.choice((None, "UTC"))),
        "partition": random.choice((pa.int32(), pa.int64())),
    }


def columns(random: Random, rows: list[Sent]) -> pa.RecordBatch:
    """The rows as a slice of more rows, or as they are; columns of nulls may be left out."""
    before = random.choice((0, 0, 3))
    padded = [*rows[:1] * before, *rows, *rows[:1] * before]
    kinds = column_types(random)
    factor = {"ms": 1, "us": 1_000}[kinds["timestamp"].unit]
    made: dict[str, list[Any]] = {
        "key": [row.key for row in padded],
        "value": [row.value for row in padded],
        "headers": [
            row.headers and [each and {"key": each[0], "value": each[1]} for each in row.headers]
            for row in padded
        ],
        "timestamp": [
            None
            if row.timestamp_ms is None
            else row.timestamp_ms * factor + random.randrange(factor)
            for row in padded
        ],
        "partition": [row.partition for row in padded],
    }
    names = [
        name
        for name in made
        if name == "value" or any(each is not None for each in made[name]) or random.random() < 0.5
    ]
    random.shuffle(names)
    arrays = [
        pa.array(made[name], pa.int64()).cast(kinds[name])
        if name in ("timestamp", "partition")
        else pa.array(made[name], kinds[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names).slice(before, len(rows))


def expected(rows: list[Sent], partitions: int, settings: BatchSettings, sticky: int) -> Any:
    """The rows of each partition in order, and the condition of each row that is refused."""
    placed: dict[int, list[int]] = defaultdict(list)
    refused, filled = {}, 0
    for at, row in enumerate(rows):
        if fault := row.fault(partitions, settings.request_bytes):
            refused[at] = fault
        elif row.partition is not None:
            placed[row.partition].append(at)
        elif row.key is not None:
            placed[(murmur2(row.key) & 0x7FFFFFFF) % partitions].append(at)
        else:
            if filled >= settings.batch_bytes:
                sticky, filled = (sticky + 1) % partitions, 0
            body = len(encode_record(Record(0, 0, None, row.value, row.plain_headers)))
            # Without the length and the two deltas, which depend on the batch.
            filled += body - 2 - len_of_length(body)
            placed[sticky].append(at)
    return dict(placed), refused


def len_of_length(whole: int) -> int:
    return next(n for n in range(1, 6) if whole - n < 1 << (7 * n - 1))


def by_kafka_python(data: bytes) -> list[tuple[Any, ...]]:
    records = MemoryRecords(data)
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            (each.key, each.value, tuple(each.headers), each.timestamp, each.offset)
            for each in batch
        ]
    return found


def by_keyrange(data: bytes) -> list[tuple[Any, ...]]:
    chunk = scan_chunk(array(data), "topic", 0, 0)
    decoder = Decoder("topic", 0, DecodeSettings(COLUMNS))
    return [
        (row.key, row.value, tuple(row.headers or ()), row.timestamp_us // 1000, row.offset)
        for row in rows_of(decoder.decode(chunk, 0, 2**62))
    ]


def check(
    batches: list[ProducedBatch], rows: list[Sent], settings: BatchSettings, placed: Any
) -> None:
    found: dict[int, list[int]] = defaultdict(list)
    sequence = 0
    for batch in batches:
        seal(batch.data, 2**40, 7, sequence)
        data = batch.data.tobytes()
        first, *_ = records = by_kafka_python(data)
        assert records == by_keyrange(data)
        chosen = batch.rows.tolist()
        assert [record[:4] for record in records] == [rows[at].seen() for at in chosen]
        assert [record[4] for record in records] == list(range(len(chosen)))
        fields = HEADER.unpack_from(data)
        assert fields[1] == len(data) - 12
        assert fields[5] & 0x10 == 0x10
        assert fields[6:9] == (len(chosen) - 1, first[3], max(record[3] for record in records))
        assert fields[9:] == (2**40, 7, sequence, len(chosen))
        limit = settings.batch_bytes if len(chosen) > 1 else settings.request_bytes
        assert len(data) <= limit
        found[batch.partition] += chosen
        sequence += len(chosen)
    assert found == placed


@given(
    rows=st.lists(st.one_of(rows_of_any_kind, bad_rows), max_size=40),
    batch_bytes=st.integers(0, 3_000),
    request_bytes=st.integers(62, 4_000),
    compression=st.sampled_from(CODECS),
    seed=st.integers(0, 2**32),
)
def test_rows_are_read_back_from_their_partitions_in_order(
    rows: list[Sent], batch_bytes: int, request_bytes: int, compression: str, seed: int
) -> None:
    random = Random(seed)
    partitions, sticky = random.choice((1, 3, 4)), random.randrange(4)
    settings = BatchSettings(batch_bytes, request_bytes, compression)
    placed, refused = expected(rows, partitions, settings, sticky % partitions)
    if not rows:
        return
    if refused:
        first = min(refused)
        said = rf"\[{refused[first]}\].*topic=topic.*row={first}\b"
        with pytest.raises(KeyrangeError, match=said):
            RecordWriter("topic", partitions, settings, sticky).write(columns(random, rows), NOW_MS)
        rows = [row for at, row in enumerate(rows) if at not in refused]
        placed, _ = expected(rows, partitions, settings, sticky % partitions)
    writer = RecordWriter("topic", partitions, settings, sticky)
    check(writer.write(columns(random, rows), NOW_MS), rows, settings, placed)


@given(
    rows=st.lists(st.one_of(rows_of_any_kind, rows_of_any_kind, bad_rows), min_size=1, max_size=8),
    message_bytes=st.sampled_from((0, 80, 200, 1_000)),
    request_bytes=st.sampled_from((62, 300, 10_000)),
    compression=st.sampled_from(CODECS),
    seed=st.integers(0, 2**32),
)
def test_limits_say_before_what_the_writer_or_the_broker_would_refuse(
    rows: list[Sent], message_bytes: int, request_bytes: int, compression: str, seed: int
) -> None:
    batch_bytes = min(request_bytes, message_bytes or request_bytes)
    settings = BatchSettings(batch_bytes, request_bytes, compression)
    given_rows = columns(Random(seed), rows)
    fault = fault_of(TopicLimits(settings, message_bytes, 4), given_rows)
    try:
        batches = RecordWriter("topic", 4, settings).write(given_rows, 0)
    except KeyrangeError:
        assert fault is not None
    else:
        too_large = message_bytes and any(len(each.data) > message_bytes for each in batches)
        assert (fault is not None) == bool(too_large), fault


def test_a_row_is_as_large_whichever_partition_it_names() -> None:
    """Also where nobody knows how many there are, as of topics that rows name."""
    rows = pa.RecordBatch.from_pydict({"value": [Random(1).randbytes(500)], "partition": [7]})
    for limits in (TopicLimits(message_bytes=300), TopicLimits(message_bytes=300, partitions=8)):
        assert "as it is sent" in str(fault_of(limits, rows))


@pytest.mark.ordinary
@pytest.mark.parametrize("compression", CODECS)
def test_large_values_many_headers_and_times_that_go_back(compression: str) -> None:
    random = Random(5)
    rows = [
        Sent(
            random.randbytes(random.choice((0, 1, 70_000))),
            random.choice((b"", b"text " * 60_000, random.randbytes(300_000), None)),
            [
                (f"h{n}", random.choice((None, b"", random.randbytes(9_000))))
                for n in range(n_headers)
            ],
            random.choice((0, 2**42, NOW_MS)),
            None,
        )
        for n_headers in (0, 1, 200, 3)
        for _ in range(4)
    ]
    settings = BatchSettings(1 << 20, 8 << 20, compression)
    placed, refused = expected(rows, 3, settings, 0)
    assert not refused
    batches = RecordWriter("topic", 3, settings).write(columns(random, rows), NOW_MS)
    check(batches, rows, settings, placed)


def test_rows_without_key_stay_with_a_partition_until_a_batch_is_full_from_call_to_call() -> None:
    writer = RecordWriter("topic", 3, BatchSettings(batch_bytes=100), sticky=1)
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 26]})  # 30 bytes each
    calls = [writer.write(rows, NOW_MS) for _ in range(9)]
    assert [each.partition for batches in calls for each in batches] == [1] * 4 + [2] * 4 + [0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": [b"k"]}, "no column value"),
        ({"value": [b"v"], "topic": ["t"]}, "no part of a record: topic"),
        ({"value": [1]}, "column value is int64"),
        ({"value": [b"v"], "timestamp": [1]}, "column timestamp is int64"),
        ({"value": [b"v"], "partition": ["1"]}, "column partition is string"),
        ({"value": [b"v"], "headers": [[b"x"]]}, "column headers is list"),
    ],
)
def test_columns_of_another_kind_are_refused_by_name(
    columns: dict[str, list[Any]], said: str
) -> None:
    writer = RecordWriter("topic", 1, BatchSettings())
    with pytest.raises(KeyrangeError, match=f"INVALID_TOPIC_COLUMNS.*{said}"):
        writer.write(pa.RecordBatch.from_pydict(columns), NOW_MS)
