"""CRC32C of what is stored (RFC 3720, B.4)."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

# Below it Python takes 30 us at most; the kernel that checks Kafka's record batches takes 400 ms to
# load, in a process that plans a query and has nothing else for it.
_COMPILED_FROM_BYTES: Final = 256
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    if len(data) < _COMPILED_FROM_BYTES:
        table, crc = _table(), _MASK
        for byte in data:
            crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
        return crc ^ _MASK
    from keyrange.wire import record_kernels

    source = np.frombuffer(bytearray(data), np.uint8)
    return int(record_kernels.crc32c(source, 0, len(source)))


@cache
def _table() -> list[int]:
    """What a byte makes of the rest of a checksum."""
    table = list(range(256))
    for _ in range(8):
        table = [(crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0) for crc in table]
    return table
