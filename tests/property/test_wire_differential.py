"""Against kafka-python: what its builder writes, and what its decoder reads of our logs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from keyrange.model.columns import COLUMNS
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import CONTROL, Log, Row, array, logs, records, rows_of

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def decode(data: bytes, from_offset: int = 0) -> list[Row]:
    chunk = scan_chunk(array(data), "t", 0, from_offset)
    settings = DecodeSettings(columns=COLUMNS)
    return rows_of(Decoder("t", 0, settings).decode(chunk, from_offset, 2**63 - 1))


def by_kafka_python(data: bytes) -> list[Row]:
    rows = []
    for batch in MemoryRecords(data):
        assert batch.validate_crc()
        if batch.is_control_batch:
            continue
        rows += [
            Row(
                record.offset,
                record.timestamp * 1000,
                record.timestamp_type,
                record.key,
                record.value,
                record.headers or None,
            )
            for record in batch
        ]
    return rows


@given(log=logs())
def test_both_decoders_read_a_log_alike(log: Log) -> None:
    data = log.encode()
    assert decode(data, log.start) == by_kafka_python(data) == log.rows()
    control = sum(bool(batch.flags & CONTROL) for batch in log.batches)
    assert control == sum(batch.is_control_batch for batch in MemoryRecords(data))


@pytest.mark.parametrize("codec", CODECS)
@given(
    sent=st.lists(st.tuples(st.integers(0, 2**42), records), min_size=1, max_size=20),
    filler=st.integers(0, 2_000),
)
def test_a_batch_of_kafka_pythons_builder_reads_as_it_was_sent(
    codec: str, sent: list[tuple[int, Any]], filler: int
) -> None:
    builder = MemoryRecordsBuilder(2, CODECS[codec], 1 << 20)
    expected = []
    for offset, (timestamp, record) in enumerate(sent):
        value = (record.value or b"") + b"z" * filler
        headers = list(record.headers)
        builder.append(timestamp, record.key, value, headers)
        expected.append(Row(offset, timestamp * 1000, 0, record.key, value, headers or None))
    builder.close()
    data = bytes(builder.buffer())
    if filler > 500:
        assert data[22] & 7 == CODECS[codec]
    assert decode(data) == by_kafka_python(data) == expected
