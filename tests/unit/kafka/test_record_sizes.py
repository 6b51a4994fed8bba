"""Where the keys of a sample lie: what the plan of key ranges goes by."""

from __future__ import annotations

import mmh3

from keyrange.core.offsets import TopicPartition
from keyrange.kafka.record_sizes import key_places
from keyrange.wire.decode import scan_chunk
from keyrange.wire.select import Selection
from strategies import Batch, Record, array, encode_batch, marker


def place(key: bytes) -> int:
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1


def test_a_sample_has_a_place_per_record_where_the_read_will_see_it() -> None:
    records = (Record(0, 0, b"a"), Record(1, 0, None), Record(4, 0, b""), Record(5, 0, b"a"))
    log = encode_batch(Batch(7, records, "zstd")) + encode_batch(marker(13, 1, True))
    chunk = scan_chunk(array(log), "t", 3, 9)
    spread = [place(b"a"), place((8).to_bytes(8, "big")), 0, place(b"a")]
    first = [place(b"a"), 0, 0, place(b"a")]
    assert key_places(TopicPartition("t", 3), chunk, Selection()) == spread
    assert key_places(TopicPartition("t", 3), chunk, Selection(nulls_first=True)) == first
