"""Whole logs in key ranges: readers side by side have every record once, each in offset order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import mmh3
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.columns import COLUMNS, USUAL
from keyrange.model.key_ranges import HASH_MAX
from keyrange.model.reader_ranges import NOBODY, Placement
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from keyrange.wire.key_range_selection import Selection
from samples.scanned_logs import FEWER, place_of, scanned
from samples.strategies import Batch, Log, Record, Row, array, encode_batch, logs, rows_of, within

SIZES = st.builds(
    DecodeSettings,
    columns=st.sampled_from([COLUMNS, USUAL]),
    batch_rows=st.sampled_from([1, 2, 7, 1000]),
    batch_bytes=st.sampled_from([1, 64, 8 << 20]),
    selection=st.builds(Selection, nulls_first=st.booleans()),
)


@st.composite
def placements(draw: st.DrawFn, log: Log, settings: DecodeSettings, least: int) -> Placement:
    """A cut of the space, many of its bounds at the places of this log's keys."""
    places = [place_of(row, settings) for row in log.rows()]
    bounds = {max(place - step, 0) for place in places for step in (0, 1)} | {0, 2**61, 2**62}
    uppers = [*sorted(draw(st.sets(st.sampled_from(sorted(bounds)), max_size=9))), HASH_MAX]
    uppers = sorted(set(uppers))
    owners = draw(st.lists(st.integers(least, 4), min_size=len(uppers), max_size=len(uppers)))
    return Placement(tuple(uppers), tuple(owners), 0)


def hashes_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [place for batch in batches for place in batch.column("keyHash").to_pylist()]


@FEWER
@given(log=logs(), settings=SIZES, data=st.data(), committed=st.booleans())
def test_readers_side_by_side_have_every_record_once_and_in_order(
    log: Log, settings: DecodeSettings, data: st.DataObject, committed: bool
) -> None:
    placement = data.draw(placements(log, settings, 0))
    inside = st.sampled_from([log.start, log.end, (log.start + log.end) // 2])
    low, high = sorted((data.draw(inside), data.draw(inside)))
    chunk = scanned(log, committed)

    whole = rows_of(Decoder("t", 1, settings).decode(chunk, low, high))
    union: list[Row] = []
    readers_of: dict[bytes, set[int]] = {}
    for reader in range(placement.readers):
        own = Decoder("t", 1, settings, placement=placement.of(reader).alone())
        rows = rows_of(own.decode(chunk, low, high))
        assert all(a.offset < b.offset for a, b in pairwise(rows))
        union += rows
        for row in rows:
            if row.key is not None:
                readers_of.setdefault(row.key, set()).add(reader)

    assert whole == within(log.rows(committed), low, high, "headers" in settings.columns)
    assert sorted(union, key=lambda row: row.offset) == whole
    assert all(len(readers) == 1 for readers in readers_of.values())


@FEWER
@given(log=logs(), settings=SIZES, data=st.data(), committed=st.booleans())
def test_a_pass_for_all_readers_has_of_each_what_it_reads_alone(
    log: Log, settings: DecodeSettings, data: st.DataObject, committed: bool
) -> None:
    placement = data.draw(placements(log, settings, NOBODY))
    chunk, readers = scanned(log, committed), range(placement.readers)
    rows = within(log.rows(committed), log.start, log.end, "headers" in settings.columns)
    expected: list[list[Row]] = [[] for _ in readers]
    for row in rows:
        owner = placement.owners[bisect_left(placement.uppers, place_of(row, settings))]
        if owner != NOBODY:
            expected[owner].append(row)

    together: list[list[Any]] = [[] for _ in readers]
    decoder = Decoder("t", 1, settings, placement=placement)
    for batch, starts in decoder.decode_placed(chunk, log.start, log.end):
        assert 0 < batch.num_rows <= settings.batch_rows
        assert len(starts) == len(readers) + 1
        assert (starts[0], starts[-1]) == (0, batch.num_rows)
        for reader, (start, end) in enumerate(pairwise(starts)):
            together[reader].append(batch.slice(start, end - start))
    for reader in readers:
        own = Decoder("t", 1, settings, placement=placement.of(reader).alone())
        alone = list(own.decode(chunk, log.start, log.end))
        assert rows_of(alone) == rows_of(together[reader]) == expected[reader]
        if "keyHash" in settings.columns:
            places = [place_of(row, settings) for row in expected[reader]]
            assert hashes_of(alone) == hashes_of(together[reader]) == places


@FEWER
@given(log=logs(), settings=SIZES, data=st.data(), committed=st.booleans())
def test_reading_some_keys_is_the_whole_read_filtered(
    log: Log, settings: DecodeSettings, data: st.DataObject, committed: bool
) -> None:
    there = [row.key for row in log.rows()]
    wanted = data.draw(st.lists(st.sampled_from([*there, None, b"", b"absent"]), max_size=4))
    some = replace(settings, selection=replace(settings.selection, keys=tuple(wanted)))
    chunk = scanned(log, committed)
    rows = within(log.rows(committed), log.start, log.end, "headers" in settings.columns)
    expected = [row for row in rows if row.key in wanted]

    out = list(Decoder("t", 1, some).decode(chunk, log.start, log.end))

    assert rows_of(out) == expected
    assert all(batch.num_rows for batch in out)
    placement = data.draw(placements(log, settings, 0))
    union: list[Row] = []
    for reader in range(placement.readers):
        own = Decoder("t", 1, some, placement=placement.of(reader).alone())
        union += rows_of(own.decode(chunk, log.start, log.end))
    assert sorted(union, key=lambda row: row.offset) == expected


@FEWER
@given(log=logs(), settings=SIZES, columns=st.sampled_from([("keyHash",), COLUMNS]))
def test_the_hash_of_a_row_is_its_keys(
    log: Log, settings: DecodeSettings, columns: tuple[str, ...]
) -> None:
    decoder = Decoder("t", 1, replace(settings, columns=columns))
    out = list(decoder.decode(scanned(log, False), log.start, log.end))
    assert hashes_of(out) == [place_of(row, settings) for row in log.rows()]
    assert all(batch.column("keyHash").null_count == 0 for batch in out)


def test_a_megabyte_of_key_is_hashed_kept_and_placed() -> None:
    long = bytes(range(256)) * 4096
    records = (Record(0, 0, long), Record(1, 0, long[:-1]), Record(2, 0, long))
    chunk = scan_chunk(array(encode_batch(Batch(0, records, "zstd"))), "t", 0, 0)
    place = int(mmh3.hash64(long, 0, signed=False)[0]) >> 1
    settings = DecodeSettings(("offset", "keyHash"), selection=Selection((long,)))
    for placement in (None, Placement((place - 1, place, HASH_MAX), (NOBODY, 0, NOBODY), 0)):
        [batch] = Decoder("t", 0, settings, placement=placement).decode(chunk, 0, 3)
        assert batch.to_pydict() == {"offset": [0, 2], "keyHash": [place, place]}
