"""Frames as they come from a broker, each until a deadline, into memory of the caller's choice."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

_LEAST_BYTES: Final = 64 * 1024


class ConnectionLost(Exception):
    """The connection broke or timed out: a new one may do. Never leaves `keyrange.kafka`."""


class NoAnswer(ConnectionLost):
    """The connection is there, and no answer came in time."""


class Incoming:
    """What a broker sends, until a deadline: `by`, of `time.monotonic`.

    With `least_rate` the deadline moves by a second for so many bytes that came: what is large may
    come over a slow link for as long as it moves. After the deadline nothing is waited for, but
    what lies in the kernel is still taken: the caller may have been at work on something else.
    """

    def __init__(self, sock: socket.socket, by: float, least_rate: float = 0.0) -> None:
        self._sock, self._by = sock, by
        self._s_per_byte = 1 / least_rate if least_rate else 0.0
        self._began = time.monotonic()
        self._bytes = 0

    def recv_into(self, memory: memoryview) -> int:
        """Some bytes, at least one. Raises TimeoutError, ConnectionLost at the end of the stream,
        and what the socket raises."""
        self._sock.settimeout(max(self._by - time.monotonic(), 0))
        try:
            count = self._sock.recv_into(memory)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            waited_s = time.monotonic() - self._began
            raise TimeoutError(
                f"no answer in time, {self._bytes} bytes of one in {waited_s:.1f} s"
                if self._bytes
                else "no answer in time"
            ) from None
        if count == 0:
            raise ConnectionLost("the broker closed the connection")
        self._bytes += count
        self._by += count * self._s_per_byte
        return count


class ReceiveBuffer:
    """Memory for one frame after the other, as `allocate` gives it: a bytearray needs no numpy,
    with which a process that only keeps a member alive would be twice as large."""

    def __init__(self, allocate: Callable[[int], Any] = bytearray) -> None:
        self._allocate = allocate
        self._memory = memoryview(b"")

    def receive(self, incoming: Incoming, count: int) -> memoryview:
        """Exactly `count` bytes, in memory that the next call reuses."""
        filled = 0
        while filled < count:
            if filled == len(self._memory):
                # Grows with what arrives, never by what a length field says.
                size = max(_LEAST_BYTES, min(count, 4 * filled))
                grown = memoryview(self._allocate(size))
                grown[:filled] = self._memory
                self._memory = grown
            filled += incoming.recv_into(self._memory[filled:count])
        return self._memory[:count]
