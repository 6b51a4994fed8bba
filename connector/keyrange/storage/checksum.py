"""CRC32C of what is stored, by the kernel that checks Kafka's record batches."""

from __future__ import annotations

import numpy as np

from keyrange.wire import kernels


def crc32c(data: bytes) -> int:
    source = np.frombuffer(bytearray(data), np.uint8)
    return int(kernels.crc32c(source, 0, len(source)))
