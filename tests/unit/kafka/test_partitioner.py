"""Kafka's default partitioner, by Kafka's own numbers."""

from __future__ import annotations

import pytest

from keyrange.kafka.messages.produce import partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # Of UtilsTest.testMurmur2 in Apache Kafka.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_partition_is_that_of_the_hash_that_kafka_tests(key: bytes, signed: int) -> None:
    for partitions in (1, 7, 1_000, 2**31):
        assert partition_of(key, partitions) == signed % 2**31 % partitions
