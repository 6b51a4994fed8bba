"""Where each reader's records are: the runs of record batches that hold them, and no others."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.model.reader_ranges import placement_of
from keyrange.ranges.sharing.chunk_results import runs_of_readers
from keyrange.wire.chunk_decoder import Decoder, DecodeSettings, scan_chunk
from samples.strategies import Log, array, logs


@given(log=logs(transactions=False), readers=st.integers(1, 5), data=st.data())
def test_runs_are_the_batches_that_a_reader_needs(
    log: Log, readers: int, data: st.DataObject
) -> None:
    chunk = scan_chunk(array(log.encode()), "t", 0, log.start)
    low = data.draw(st.integers(log.start, chunk.next_offset))
    high = data.draw(st.integers(low, chunk.next_offset))
    placement = placement_of([[span] for span in split_evenly(SPACE, readers)])
    decoder = Decoder("t", 0, DecodeSettings(columns=("offset",)), placement=placement)
    placed = [
        (batch.column(0).to_numpy(), starts)
        for batch, starts in decoder.decode_placed(chunk, low, high)
    ]

    runs, starts = runs_of_readers(chunk, low, high, placed, readers)

    spans = [
        (max(int(row["base_offset"]), low), min(int(row["last_offset"]) + 1, high))
        for row in chunk.batches
    ]
    sizes = [int(row["records_end"] - row["at"]) for row in chunk.batches]
    assert len(starts) == readers + 1
    for reader in range(readers):
        own = runs.slice(starts[reader], starts[reader + 1] - starts[reader]).to_pylist()
        offsets = {
            offset for each, at in placed for offset in each[at[reader] : at[reader + 1]].tolist()
        }
        needed = [n for n, (a, b) in enumerate(spans) if any(a <= each < b for each in offsets)]
        covered = [
            n
            for n, (a, b) in enumerate(spans)
            if any(run["from_offset"] <= a and b <= run["until_offset"] and a < b for run in own)
        ]
        assert covered == needed
        assert sum(run["bytes"] for run in own) == sum(sizes[n] for n in needed)
        assert all(a["until_offset"] <= b["from_offset"] for a, b in pairwise(own))
