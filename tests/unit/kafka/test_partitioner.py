"""Kafka's default partitioner, beside another implementation of it and by Kafka's own numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

import strategies  # noqa: F401  registers the hypothesis profiles
from keyrange.kafka.model.partitioner import murmur2, partition_of


@given(st.binary(max_size=64))
def test_the_hash_is_that_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 1000))
def test_the_partition_is_that_of_the_hash_without_its_sign(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == murmur2_of_kafka_python(key) % 2**31 % partitions


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
def test_the_hash_has_the_values_that_kafka_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
