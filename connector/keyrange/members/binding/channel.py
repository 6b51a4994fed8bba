"""What tasks and the binding service say to one another: lines of JSON, each with a proof that its
writer knows the secret of this run.

Nothing that comes over the wire is unpickled, and a line has a length at the most. Both sides begin
with a nonce; every line is proven over both nonces, over its direction and over all that was said
before it. So no line can be said again: not in another connection, which has other nonces, and not
later in its own, as the answer to another question. Plan and secret reach the tasks by Spark's own
way, as the options do.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

ASK_BYTES_MAX: Final = 16 * 1024
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_BLOCK: Final = 64 * 1024
_NONCE_BYTES: Final = 16
_NONCE: Final = re.compile(rb"[0-9a-f]{%d}" % (2 * _NONCE_BYTES))


class BadLine(Exception):
    """A line that is too long, not JSON, cut off, or not proven."""


class Channel:
    """One connection, from its first byte on; `is_service` says which side this is.

    `within` says until when what follows has to be done. That is one deadline for all of it: a
    byte now and then does not put it off.
    """

    def __init__(self, sock: socket.socket, secret: bytes, is_service: bool) -> None:
        self._sock, self._secret = sock, secret
        self._is_service = is_service
        self._said = b""
        self._buffer = bytearray()
        self._deadline = float("inf")

    def within(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    def begin(self) -> None:
        """Exchange the nonces. Raises as `receive`."""
        own = os.urandom(_NONCE_BYTES).hex().encode()
        self._write(own + b"\n")
        other = self._line(_BLOCK)
        if not _NONCE.fullmatch(other):
            raise BadLine("a connection does not begin with a nonce")
        nonces = own + other if self._is_service else other + own
        self._said = hashlib.sha256(nonces).digest()

    def send(self, document: Mapping[str, Any]) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        line = self._prove(self._is_service, body) + b" " + body + b"\n"
        self._hear(self._is_service, body)
        self._write(line)

    def receive(self, bytes_max: int) -> dict[str, Any]:
        """The other side's next line. Raises BadLine, OSError, TimeoutError."""
        line = self._line(bytes_max)
        proof, _, body = line.partition(b" ")
        if not hmac.compare_digest(proof, self._prove(not self._is_service, body)):
            raise BadLine("a line is not proven: its writer does not know the secret of this run")
        self._hear(not self._is_service, body)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise BadLine("a line is not JSON") from None
        if not isinstance(document, dict):
            raise BadLine("a line is not a JSON object")
        return document

    def _prove(self, by_service: bool, body: bytes) -> bytes:
        about = b"%s%d" % (self._said, by_service)
        return hmac.new(self._secret, about + body, hashlib.sha256).hexdigest().encode()

    def _hear(self, by_service: bool, body: bytes) -> None:
        """What is said next is proven over this line: an answer over its question."""
        digest = hashlib.sha256(body).digest()
        self._said = hashlib.sha256(b"%s%d%s" % (self._said, by_service, digest)).digest()

    def _wait(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no whole line in time")
        self._sock.settimeout(None if left_s == float("inf") else left_s)

    def _write(self, line: bytes) -> None:
        self._wait()
        self._sock.sendall(line)

    def _line(self, bytes_max: int) -> bytes:
        at = 0
        while True:
            end = self._buffer.find(b"\n", at)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return line
            at = len(self._buffer)
            if at > bytes_max:
                raise BadLine(f"a line is longer than {bytes_max} bytes")
            self._wait()
            received = self._sock.recv(_BLOCK)
            if not received:
                raise BadLine("the connection was closed")
            self._buffer += received
