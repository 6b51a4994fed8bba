"""The hash of a single key, which is its place in the hash space.

A compiled pass hashes whole columns of keys (`keyrange.wire.record_kernels.hash_keys`) and finds
the key range of each. A record without a key lies where option nullKeys says: at the hash of its
offset, or at 0. tests/property/test_key_hash.py holds both equal.
"""

from __future__ import annotations

import mmh3


def hash_of(key: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, shifted right by one."""
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1
