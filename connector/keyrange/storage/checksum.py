"""CRC32C of what is stored, by the kernel that checks Kafka's record batches."""

from __future__ import annotations

import numpy as np


def crc32c(data: bytes) -> int:
    # Half a second in a process that plans a query or writes its log, and has nothing to check yet.
    from keyrange.wire import kernels

    source = np.frombuffer(bytearray(data), np.uint8)
    return int(kernels.crc32c(source, 0, len(source)))
