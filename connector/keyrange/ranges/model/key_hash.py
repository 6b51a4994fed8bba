"""Where a record lies in the hash space: at the hash of its key, or where option nullKeys says.

A compiled pass does the same for whole columns (`keyrange.wire.record_kernels.hash_keys`);
tests/property/test_key_hash.py holds both equal.
"""

from __future__ import annotations

import mmh3


def hash_of(key: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, shifted right by one."""
    return int(mmh3.hash64(key, 0, signed=False)[0]) >> 1


def hash_of_record(key: bytes | None, offset: int, nulls_first: bool) -> int:
    """The hash of a record's key. One without a key lies at the hash of its offset, so that such
    records spread over all key ranges, or at 0 with `nulls_first`, which keeps their order."""
    if key is not None:
        return hash_of(key)
    return 0 if nulls_first else hash_of(offset.to_bytes(8, "big"))
