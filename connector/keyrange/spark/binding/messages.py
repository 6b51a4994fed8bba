"""What tasks and the binding service say to one another: lines of JSON, each with a proof that its
writer knows the secret of this run.

Nothing that comes over the wire is unpickled, and a line has a length at the most. The service
begins with a challenge; every line is proven over it, over its direction and over its number, so
that none can be said again. Plan and secret reach the tasks by Spark's own way, as the options do.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from keyrange.core.delivery import Delivery
from keyrange.core.placement import Placement
from keyrange.core.splits import Split

ASK_BYTES_MAX: Final = 16 * 1024
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_BLOCK: Final = 64 * 1024


class BadLine(Exception):
    """A line that is too long, not JSON, cut off, or not proven."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the service of a run listens, and the secret of that run."""

    host: str
    port: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Greeting:
    """What tasks are told of the run that they belong to: `run` is its name."""

    address: Address
    run: str


class Channel:
    """One connection, from the challenge on; `is_service` says which side this is."""

    def __init__(self, sock: socket.socket, secret: bytes, is_service: bool) -> None:
        self._sock, self._secret = sock, secret
        self._is_service = is_service
        self._challenge = b""
        self._sent = self._received = 0
        self._buffer = bytearray()

    def challenge(self, nonce: bytes) -> None:
        """The service's first word."""
        self._challenge = nonce.hex().encode()
        self._sock.sendall(self._challenge + b"\n")

    def take_challenge(self) -> None:
        self._challenge = self._line(ASK_BYTES_MAX)

    def send(self, document: Mapping[str, Any]) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        proof = self._proof(self._is_service, self._sent, body)
        self._sent += 1
        self._sock.sendall(proof + b" " + body + b"\n")

    def receive(self, bytes_max: int) -> dict[str, Any]:
        """The other side's next line. Raises BadLine, OSError, TimeoutError."""
        line = self._line(bytes_max)
        proof, _, body = line.partition(b" ")
        expected = self._proof(not self._is_service, self._received, body)
        if not hmac.compare_digest(proof, expected):
            raise BadLine("a line is not proven: its writer does not know the secret of this run")
        self._received += 1
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise BadLine("a line is not JSON") from None
        if not isinstance(document, dict):
            raise BadLine("a line is not a JSON object")
        return document

    def _proof(self, by_service: bool, number: int, body: bytes) -> bytes:
        about = b"%s %d %d " % (self._challenge, by_service, number)
        return hmac.new(self._secret, about + body, hashlib.sha256).hexdigest().encode()

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
            received = self._sock.recv(_BLOCK)
            if not received:
                raise BadLine("the connection was closed")
            self._buffer += received


def write_split(split: Split) -> dict[str, Any]:
    document: dict[str, Any] = {
        "topic": split.topic,
        "partition": split.partition,
        "offsets": [split.from_offset, split.until_offset],
        "bytes": split.bytes_estimate,
    }
    if split.placement is not None:
        own = split.placement
        document["placement"] = [own.uppers, own.owners, own.reader]
    if split.shared:
        document["shared"] = split.shared
    if split.delivery is not None:
        each = split.delivery
        document["delivery"] = [each.uppers, each.froms, each.untils, each.offsets]
    return document


def read_split(document: Mapping[str, Any]) -> Split:
    placement = delivery = None
    if "placement" in document:
        uppers, owners, reader = document["placement"]
        placement = Placement(tuple(uppers), tuple(owners), reader)
    if "delivery" in document:
        delivery = Delivery(*map(tuple, document["delivery"]))
    from_offset, until_offset = document["offsets"]
    return Split(
        document["topic"],
        document["partition"],
        from_offset,
        until_offset,
        document["bytes"],
        placement,
        document.get("shared", ""),
        delivery,
    )
