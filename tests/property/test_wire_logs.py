"""Whole logs: what is decoded is what was written, for every range, size and isolation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from keyrange.model.columns import COLUMNS, USUAL
from keyrange.source.schema import source_schema
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.columns import arrow_schema
from keyrange.wire.fetch_response import AbortedTransaction
from samples.strategies import Log, array, logs, rows_of, within

SIZES = st.builds(
    DecodeSettings,
    columns=st.sampled_from([COLUMNS, USUAL]),
    batch_rows=st.sampled_from([1, 2, 3, 7, 1000]),
    batch_bytes=st.sampled_from([1, 10, 64, 8 << 20]),
)


def aborted(log: Log) -> list[AbortedTransaction]:
    return [AbortedTransaction(*entry) for entry in log.aborted]


@given(log=logs(), settings=SIZES, data=st.data(), committed=st.booleans())
def test_every_range_decodes_to_exactly_its_records(
    log: Log, settings: DecodeSettings, data: st.DataObject, committed: bool
) -> None:
    inside = st.integers(log.start - 1, log.end + 1)
    chunk = scan_chunk(array(log.encode()), "t", 1, log.start, aborted(log) if committed else ())
    decoder = Decoder("t", 1, settings)
    for _ in range(3):
        low, high = sorted((data.draw(inside), data.draw(inside)))
        out = list(decoder.decode(chunk, low, high))
        assert rows_of(out) == within(log.rows(committed), low, high, "headers" in settings.columns)
        assert all(0 < batch.num_rows <= settings.batch_rows for batch in out)
        assert all(batch.schema.equals(arrow_schema(settings.columns)) for batch in out)
        for batch in out:
            assert batch.column("topic").to_pylist() == ["t"] * batch.num_rows
            assert batch.column("partition").to_pylist() == [1] * batch.num_rows


@given(log=logs(), settings=SIZES)
def test_an_arrow_batch_exceeds_its_bytes_by_its_last_record_at_most(
    log: Log, settings: DecodeSettings
) -> None:
    chunk = scan_chunk(array(log.encode()), "t", 1, log.start)
    for batch in Decoder("t", 1, settings).decode(chunk, log.start, log.end):
        sizes = [len(row.key or b"") + len(row.value or b"") for row in rows_of([batch])]
        assert sum(sizes[:-1]) < settings.batch_bytes


@given(log=logs(), data=st.data(), committed=st.booleans())
def test_fetching_with_cut_off_tails_delivers_every_record_once_and_in_order(
    log: Log, data: st.DataObject, committed: bool
) -> None:
    """As a broker answers: from the batch that holds the offset, cut anywhere behind it."""
    position = data.draw(st.integers(log.start, log.end - 1))
    start = position
    settings = DecodeSettings(columns=COLUMNS)
    decoder = Decoder("t", 0, settings)
    rows = []
    while position < log.end:
        rest = [batch for batch in log.batches if batch.last_offset >= position]
        whole = Log(tuple(rest)).encode()
        least = len(Log((rest[0],)).encode())
        answer = array(whole[: data.draw(st.integers(least, len(whole)))])
        # The broker names the transactions that overlap the answer: here, all that are not over.
        chunk = scan_chunk(answer, "t", 0, position, overlapping(log, rest) if committed else ())
        assert chunk.next_offset > position
        rows += rows_of(decoder.decode(chunk, position, log.end))
        position = chunk.next_offset
    assert rows == within(log.rows(committed), start, log.end, True)
    assert [row.offset for row in rows] == sorted({row.offset for row in rows})


def overlapping(log: Log, rest: list[object]) -> list[AbortedTransaction]:
    """Those whose abort marker is not in front of what is fetched."""
    entries, position = [], rest[0].base_offset
    for producer, first in log.aborted:
        ends = [
            batch.base_offset
            for batch in log.batches
            if batch.flags & 0x20 and batch.producer_id == producer and batch.base_offset >= first
        ]
        if ends[0] >= position:
            entries.append(AbortedTransaction(producer, first))
    return entries


@given(log=logs(), data=st.data())
def test_a_chunk_is_consumed_up_to_its_last_whole_batch(log: Log, data: st.DataObject) -> None:
    whole = log.encode()
    sizes = [len(Log((batch,)).encode()) for batch in log.batches]
    cut = data.draw(st.integers(sizes[0], len(whole)))
    count = max(n for n in range(len(sizes) + 1) if sum(sizes[:n]) <= cut)
    chunk = scan_chunk(array(whole[:cut]), "t", 0, log.start)
    assert len(chunk.batches) == count
    assert chunk.next_offset == log.batches[count - 1].last_offset + 1


@given(log=logs(transactions=False))
def test_a_decoder_may_be_used_for_chunk_after_chunk(log: Log) -> None:
    """Its buffers are reused, and what was handed over before stays as it was."""
    decoder = Decoder("t", 0, DecodeSettings(columns=COLUMNS, batch_rows=3))
    chunk = scan_chunk(array(log.encode()), "t", 0, log.start)
    first = list(decoder.decode(chunk, log.start, log.end))
    second = list(decoder.decode(chunk, log.start, log.end))
    assert rows_of(first) == rows_of(second) == log.rows()


def test_the_schema_is_sparks_column_for_column() -> None:
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    plain = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    headers = pa.field("headers", pa.list_(pa.field("element", header)))
    assert arrow_schema(USUAL).equals(pa.schema(plain))
    key_hash = ("keyHash", pa.int64())
    assert arrow_schema(COLUMNS).equals(pa.schema([*plain, headers, key_hash]))


SUBSETS = st.sets(st.sampled_from(COLUMNS), min_size=1).map(
    lambda chosen: tuple(name for name in COLUMNS if name in chosen)
)


@given(log=logs(), settings=SIZES, columns=SUBSETS, data=st.data())
def test_a_read_of_some_columns_is_the_full_reads_columns(
    log: Log, settings: DecodeSettings, columns: tuple[str, ...], data: st.DataObject
) -> None:
    """Rows may be cut into other batches; each holds the columns asked for and nothing else."""
    chunk = scan_chunk(array(log.encode()), "t", 1, log.start)
    low, high = sorted((data.draw(offsets_of(log)), data.draw(offsets_of(log))))
    full = Decoder("t", 1, DecodeSettings(columns=COLUMNS)).decode(chunk, low, high)
    some = list(Decoder("t", 1, replace(settings, columns=columns)).decode(chunk, low, high))
    for batch in some:
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(columns))
        assert 0 < batch.num_rows <= settings.batch_rows
    expected = pa.Table.from_batches(full, arrow_schema(COLUMNS)).select(columns)
    assert pa.Table.from_batches(some, arrow_schema(columns)).equals(expected)


def offsets_of(log: Log) -> st.SearchStrategy[int]:
    return st.integers(log.start - 1, log.end + 1)


@given(columns=SUBSETS)
def test_the_arrow_schema_is_what_spark_makes_of_the_sources(columns: tuple[str, ...]) -> None:
    """Spark compares the two, nullability included, before it takes the first batch."""
    assert to_arrow_schema(source_schema(columns), timezone="UTC").equals(arrow_schema(columns))


@given(log=logs(), columns=SUBSETS)
def test_only_what_is_copied_counts_towards_the_bytes_of_a_batch(
    log: Log, columns: tuple[str, ...]
) -> None:
    """Without keys, values and headers a run of uncompressed batches is one Arrow batch."""
    log = Log(tuple(replace(batch, codec="none") for batch in log.batches))
    chunk = scan_chunk(array(log.encode()), "t", 1, log.start)
    settings = DecodeSettings(columns, batch_bytes=1)
    counts = [out.num_rows for out in Decoder("t", 1, settings).decode(chunk, log.start, log.end)]
    rows = log.rows()
    counted = [name for name in ("key", "value", "headers") if name in columns]
    held = [any(getattr(row, name) for name in counted) for row in rows]
    ends = [at + 1 for at, full in enumerate(held) if full and at + 1 < len(rows)]
    assert counts == [end - start for start, end in pairwise([0, *ends, len(rows)]) if rows]
