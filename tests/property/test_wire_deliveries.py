"""Whole logs of which some records are delivered: what comes out is what a look at every record
finds."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.columns import COLUMNS, USUAL
from keyrange.model.key_ranges import HASH_MAX
from keyrange.model.offset_splits import Delivery
from keyrange.model.reader_ranges import Placement
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings
from keyrange.wire.key_range_selection import Selection
from samples.scanned_logs import FEWER, place_of, scanned
from samples.strategies import Log, Row, logs, rows_of, within

SIZES = st.builds(
    DecodeSettings,
    columns=st.sampled_from([COLUMNS, USUAL, ("offset",)]),
    batch_rows=st.sampled_from([1, 2, 7, 1000]),
    batch_bytes=st.sampled_from([1, 64, 8 << 20]),
    selection=st.builds(Selection, nulls_first=st.booleans()),
)


@st.composite
def deliveries(draw: st.DrawFn, log: Log, settings: DecodeSettings) -> Delivery:
    """Cells at the places of this log's keys, and offsets in it, beside it and of no record."""
    places = [place_of(row, settings) for row in log.rows()] or [2**60]
    uppers: tuple[int, ...] = ()
    if draw(st.booleans()):
        inside = draw(st.sets(st.sampled_from(places), max_size=5))
        uppers = tuple(sorted({*inside, HASH_MAX}))
    there = [row.offset for row in log.rows()] or [log.start]
    bounds = st.sampled_from([*there, log.start, log.end + 1])
    ranges = [sorted((draw(bounds), draw(bounds))) for _ in uppers]
    ranges = [[a, b] if a < b else [0, 0] for a, b in ranges]
    if uppers and not any(b for _, b in ranges):
        ranges[-1] = [log.start, log.end + 1]
    offsets = draw(st.sets(st.sampled_from(there) | st.integers(0, log.end + 3), max_size=6))
    return Delivery(
        uppers,
        tuple(a for a, _ in ranges),
        tuple(b for _, b in ranges),
        tuple(sorted(offsets)),
    )


def is_delivered(row: Row, delivery: Delivery, settings: DecodeSettings) -> bool:
    if row.offset in delivery.offsets:
        return True
    if not delivery.uppers:
        return False
    at = bisect_left(delivery.uppers, place_of(row, settings))
    return delivery.froms[at] <= row.offset < delivery.untils[at]


def offsets_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [at for batch in batches for at in batch.column("offset").to_pylist()]


@FEWER
@given(log=logs(), settings=SIZES, data=st.data(), committed=st.booleans())
def test_what_is_delivered_is_what_a_look_at_every_record_finds(
    log: Log, settings: DecodeSettings, data: st.DataObject, committed: bool
) -> None:
    delivery = data.draw(deliveries(log, settings))
    inside = st.sampled_from([log.start, log.end, (log.start + log.end) // 2])
    low, high = sorted((data.draw(inside), data.draw(inside)))
    chunk = scanned(log, committed)
    rows = within(log.rows(committed), low, high, "headers" in settings.columns)
    expected = [row for row in rows if is_delivered(row, delivery, settings)]

    out = list(Decoder("t", 1, settings, delivery=delivery).decode(chunk, low, high))

    assert offsets_of(out) == [row.offset for row in expected]
    if settings.columns != ("offset",):
        assert rows_of(out) == expected
    assert all(batch.num_rows for batch in out)
    if "keyHash" in settings.columns:
        places = [place for batch in out for place in batch.column("keyHash").to_pylist()]
        assert places == [place_of(row, settings) for row in expected]


@FEWER
@given(log=logs(), settings=SIZES)
def test_a_record_comes_again_wherever_it_stands_in_its_batch(
    log: Log, settings: DecodeSettings
) -> None:
    chunk = scanned(log, False)
    for row in log.rows():
        decoder = Decoder("t", 1, settings, delivery=Delivery((), (), (), (row.offset,)))
        assert offsets_of(list(decoder.decode(chunk, log.start, log.end))) == [row.offset]


@FEWER
@given(log=logs(), settings=SIZES, data=st.data())
def test_readers_of_one_pass_share_what_is_delivered(
    log: Log, settings: DecodeSettings, data: st.DataObject
) -> None:
    delivery = data.draw(deliveries(log, settings))
    placement = Placement((2**61, 2**62, HASH_MAX), (1, 0, 1), 0)
    some = replace(settings, columns=("offset", "keyHash"))
    chunk = scanned(log, False)
    rows = [row for row in log.rows() if is_delivered(row, delivery, settings)]

    together: list[list[Any]] = [[], []]
    decoder = Decoder("t", 1, some, placement=placement, delivery=delivery)
    for batch, starts in decoder.decode_placed(chunk, log.start, log.end):
        for reader, (start, end) in enumerate(pairwise(starts)):
            together[reader].append(batch.slice(start, end - start))

    for reader in (0, 1):
        expected = [
            row.offset
            for row in rows
            if placement.owners[bisect_left(placement.uppers, place_of(row, settings))] == reader
        ]
        alone = Decoder("t", 1, some, placement=placement.of(reader).alone(), delivery=delivery)
        assert offsets_of(together[reader]) == expected
        assert offsets_of(list(alone.decode(chunk, log.start, log.end))) == expected
