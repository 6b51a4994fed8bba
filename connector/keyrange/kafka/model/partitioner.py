"""Which partition Kafka's default partitioner gives a key."""

from __future__ import annotations

from typing import Final

_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java's producer sends a record with this key to: murmur2 of the key, its
    sign bit cleared, modulo the number of partitions.

    Producers of other languages may have another default, and any may name the partition itself.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(key: bytes) -> int:
    """MurmurHash2 with Kafka's seed, as an unsigned number of 32 bits."""
    h = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = (h * _MULTIPLIER & _MASK) ^ k
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15
