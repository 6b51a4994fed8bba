"""What a sample says: how many bytes an offset takes, and where the keys lie."""

from __future__ import annotations

import mmh3

from keyrange.kafka.record_sizes import bytes_per_offset, key_hashes
from keyrange.model.offsets import TopicPartition
from keyrange.wire.chunk_decoder import scan_chunk
from samples.strategies import Batch, Record, array, encode_batch, marker


def key_hash(key: bytes) -> int:
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1


def test_a_sample_has_a_place_per_record_where_the_read_will_see_it() -> None:
    records = (Record(0, 0, b"a"), Record(1, 0, None), Record(4, 0, b""), Record(5, 0, b"a"))
    log = encode_batch(Batch(7, records, "zstd")) + encode_batch(marker(13, 1, True))
    chunk = scan_chunk(array(log), "t", 3, 9)
    spread = [key_hash(b"a"), key_hash((8).to_bytes(8, "big")), 0, key_hash(b"a")]
    first = [key_hash(b"a"), 0, 0, key_hash(b"a")]
    assert key_hashes(TopicPartition("t", 3), chunk, nulls_first=False) == spread
    assert key_hashes(TopicPartition("t", 3), chunk, nulls_first=True) == first


def test_bytes_per_offset_are_those_of_whole_batches() -> None:
    first = encode_batch(Batch(7, (Record(0, 0, b"a"), Record(4, 0, None)), "zstd"))
    second = encode_batch(marker(12, 1, True))
    both = first + second
    # Offsets 7 to 11, and 12; what lies between records in a compacted log counts.
    assert bytes_per_offset(memoryview(first)) == len(first) / 5
    assert bytes_per_offset(memoryview(both)) == len(both) / 6
    for cut in range(len(both)):
        whole = bytes_per_offset(memoryview(both)[:cut])
        assert whole == (len(first) / 5 if cut >= len(first) else None)


def test_bytes_that_are_no_batches_of_format_2_say_nothing() -> None:
    batch = bytearray(encode_batch(Batch(7, (Record(0, 0, b"a"),), "none")))
    for at, value in ((16, 1), (8, 0xFF)):
        other = bytearray(batch)
        other[at] = value
        assert bytes_per_offset(memoryview(other)) is None
