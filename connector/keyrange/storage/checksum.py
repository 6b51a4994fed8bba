"""CRC32C of what is stored."""

from __future__ import annotations

from typing import Final

import numpy as np
from kafka.record._crc32c import crc

# Below it kafka-python's pure Python takes 25 us at most; the kernel that checks Kafka's record
# batches takes 400 ms to load, in a process that plans a query and has nothing else for it.
_COMPILED_FROM_BYTES: Final = 256


def crc32c(data: bytes) -> int:
    if len(data) < _COMPILED_FROM_BYTES:
        return int(crc(data))
    from keyrange.wire import kernels

    source = np.frombuffer(bytearray(data), np.uint8)
    return int(kernels.crc32c(source, 0, len(source)))
