"""The memory that answers to fetches are received into, again and again."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from keyrange.kafka.response_frames import Incoming

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class ReceiveBuffer:
    """Memory for one frame; grows while bytes arrive, never by what a length field says."""

    _BYTES_MIN: Final = 64 * 1024

    def __init__(self) -> None:
        self._memory: Bytes = np.empty(self._BYTES_MIN, np.uint8)

    def receive(self, incoming: Incoming, count: int) -> Bytes:
        """Exactly `count` bytes, in memory that the next call reuses."""
        filled = 0
        while filled < count:
            if filled == len(self._memory):
                grown = np.empty(min(max(count, self._BYTES_MIN), 4 * len(self._memory)), np.uint8)
                grown[:filled] = self._memory
                self._memory = grown
            until = min(count, len(self._memory))
            filled += incoming.recv_into(self._memory.data[filled:until])
        return self._memory[:count]
