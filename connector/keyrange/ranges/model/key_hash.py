"""The place of a single key in the hash space.

Where whole columns of keys are hashed a compiled pass does it (`keyrange.wire.kernels.hash_keys`);
tests/property/test_key_hash.py holds both equal.
"""

from __future__ import annotations

import mmh3


def hash_of(key: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, shifted right by one."""
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1
