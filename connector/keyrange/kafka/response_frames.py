"""Frames as they come from a broker, each until a deadline, into memory of the caller's choice."""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any, Final, Protocol

_STRETCH_BYTES: Final = 1 << 20


class ConnectionLost(Exception):
    """The connection broke or timed out: a new one may do. Never leaves `keyrange.kafka`."""


class NoAnswer(ConnectionLost):
    """The connection is there, and no answer came in time."""


class Buffer(Protocol):
    """Memory for one frame. Its bytes are those of an array or of a memoryview."""

    def receive(self, incoming: Incoming, count: int) -> Any:
        """Exactly `count` bytes, in memory that the next call may use again."""


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


class AnswerBuffer:
    """Memory for one answer that is decoded at once. It needs no numpy: a process that only keeps
    a member alive would be twice as large with it."""

    def receive(self, incoming: Incoming, count: int) -> memoryview:
        # Grows with what arrives, never by what a length field says.
        memory = bytearray()
        stretch = memoryview(bytearray(min(count, _STRETCH_BYTES)))
        while len(memory) < count:
            received = incoming.recv_into(stretch[: count - len(memory)])
            memory += stretch[:received]
        return memoryview(memory)
