"""One connection to one broker: connect, secure, authenticate, then requests and their answers.

Blocking, with a deadline for each whole answer, and no thread. A byte now and then wins no time:
that what came last is recent does not move a deadline. Requests may be sent ahead of the answer to
an earlier one; answers come in the order of the requests. A frame is received into a buffer that
the caller reuses, in as few system calls as the kernel allows.

What goes wrong while connecting is named by its cause at once: an unreachable address, a listener
of another protocol (TLS, SASL, HTTP), an untrusted certificate, a wrong password.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.messages import protocol
from keyrange.kafka.model import security_protocol_hint
from keyrange.kafka.response_frames import ConnectionLost, Incoming, NoAnswer, ReceiveBuffer
from keyrange.kafka.socket_opening import open_socket
from keyrange.options.kafka_properties import ClientSettings

__all__ = ["Connection", "ConnectionLost"]


# Answers other than to a fetch: metadata of 100,000 partitions is about 10 MB.
_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
# Who has not proven yet who he is says what he speaks, and how to log in.
_FIRST_BYTES_MAX: Final = 1024 * 1024


class Connection:
    """A ready connection; construct it with `connect`."""

    def __init__(
        self, host: str, port: int, settings: ClientSettings, proven: bool = False
    ) -> None:
        self.host = host
        self.port = port
        # Whether this address has answered a request: what breaks then is not the wrong protocol.
        self.proven = proven
        # Whether this connection has brought an answer: what listens there speaks Kafka.
        self._answered = False
        self._settings = settings
        self._sock: socket.socket | None = None
        self._timeout_s = settings.request_timeout_ms / 1000
        # When it has to be ready; infinity once it is.
        self._ready_by = float("inf")
        self._correlation_id = 0
        # The headers of the requests that are not answered yet.
        self._sent: deque[Any] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        # The level of each feature that the cluster has agreed on (KIP-584).
        self.features: dict[str, int] = {}
        self._authenticate_again_at = float("inf")

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        settings: ClientSettings,
        timeout_ms: int,
        proven: bool = False,
    ) -> Connection:
        """Connect, secure and authenticate within `timeout_ms`.

        `proven`: an earlier connection to this address has answered requests. Raises
        UnavailableError, DeniedError or InvalidError with the cause; never ConnectionLost.
        """
        connection = cls(host, port, settings, proven)
        try:
            connection._ready_by = time.monotonic() + timeout_ms / 1000
            connection._sock = open_socket(host, port, settings, connection._ready_by, proven)
            connection._agree_on_versions()
            if settings.security_protocol.startswith("SASL"):
                from keyrange.kafka.security import sasl_handshake

                connection._authenticate_again_at = sasl_handshake.authenticate(
                    connection, settings
                )
            connection._ready_by = float("inf")
        except ConnectionLost as lost:
            connection.close()
            raise connection.explain(lost) from None
        except KeyrangeError:
            connection.close()
            raise
        return connection

    @property
    def fresh(self) -> bool:
        """Open, and its authentication not about to expire: further requests may be sent."""
        return self._sock is not None and time.monotonic() < self._authenticate_again_at

    @property
    def busy(self) -> bool:
        """Open, with requests that are not answered yet."""
        return self._sock is not None and bool(self._sent)

    @property
    def usable(self) -> bool:
        """Open and with nothing unanswered: a request's answer is the next to come."""
        return self.fresh and not self._sent

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def close(self) -> None:
        sock, self._sock = self._sock, None
        self._sent.clear()
        if sock is not None:
            sock.close()

    def set_timeout(self, timeout_ms: float) -> None:
        """How long a request may take: from when it is sent, or from when its answer is waited for
        where that is later, until the answer is whole."""
        self._timeout_s = max(timeout_ms, 1) / 1000

    def extend_connecting(self, seconds: float) -> None:
        """Connecting may take so much longer."""
        self._ready_by += seconds

    def fetch_version(self) -> int:
        """The version of Fetch to speak; raises UNSUPPORTED_BROKER below Kafka 2.3."""
        # It brings numpy, which a process that reads no records does without.
        from keyrange.wire import fetch_response

        return self._version(
            protocol.FETCH_KEY, fetch_response.VERSION_MIN, fetch_response.VERSION_MAX, "Fetch"
        )

    def send(self, request: Any, version: int) -> None:
        """Send a request whose answer will be received later."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        try:
            sock = self._socket()
            # Of sending as a whole.
            sock.settimeout(max(self._answer_by() - time.monotonic(), 0.001))
            # No local value: it may hold a password.
            sock.sendall(
                protocol.encode(request, version, self._correlation_id, self._settings.client_id)
            )
        except OSError as failure:
            raise self._broken(failure) from None
        self._sent.append(request.header)

    def fileno(self) -> int:
        """For select: an answer's first bytes make it readable. -1 where it is closed."""
        return -1 if self._sock is None else self._sock.fileno()

    def receive(
        self,
        buffer: ReceiveBuffer,
        bytes_max: int,
        by: float | None = None,
        least_rate: float = 0.0,
        **context: Any,
    ) -> memoryview:
        """The answer to the oldest unanswered request, from its correlation id on.

        It has to be whole at `by`, of `time.monotonic`; None: the timeout that is set, from now.
        `least_rate` is that of `Incoming`, in bytes per second. `context` says in an error what was
        asked for.
        """
        try:
            incoming = Incoming(self._socket(), self._answer_by() if by is None else by, least_rate)
            head = buffer.receive(incoming, 4).tobytes()
            (count,) = struct.unpack(">i", head)
            if not 4 <= count <= bytes_max:
                raise self._bad_length(head, count, bytes_max, context)
            frame = buffer.receive(incoming, count)
        except TimeoutError as failure:
            self.close()
            raise NoAnswer(str(failure)) from None
        except (OSError, ConnectionLost) as failure:
            raise self._broken(failure) from None
        except KeyrangeError:
            self.close()
            raise
        expected = self._sent.popleft().correlation_id
        (answered,) = struct.unpack(">i", frame[:4])
        if answered != expected:
            self.close()
            raise error(
                "CORRUPT_FRAME",
                "an answer belongs to another request",
                broker=self.address,
                expected=expected,
                received=answered,
            )
        self._answered = True
        self.proven = self.proven or self._ready_by == float("inf")
        return frame

    def call(self, request: Any, most: int | None = None) -> Any:
        """Send a request and return its decoded answer; only where none is unanswered."""
        by = self._answer_by()
        self.ask(request, most)
        return self.answer(by)

    def ask(self, request: Any, most: int | None = None) -> None:
        """Send a request in the highest version that both sides speak, up to `most`; raises
        UNSUPPORTED_BROKER."""
        least, spoken = protocol.SPOKEN[request.name]
        most = spoken if most is None else min(most, spoken)
        self.send(request, self._version(request.API_KEY, least, most, request.name))

    def answer(self, by: float | None = None) -> Any:
        """The decoded answer to the oldest unanswered request; `by` as in `receive`."""
        sent = next(iter(self._sent), None)
        is_ready = self._ready_by == float("inf")
        most = _ANSWER_BYTES_MAX if is_ready else _FIRST_BYTES_MAX
        frame = self.receive(ReceiveBuffer(), most, by)
        try:
            return protocol.decode(sent, frame)
        except Exception as failure:
            self.close()
            raise error(
                "CORRUPT_FRAME", f"an answer cannot be decoded: {failure}", broker=self.address
            ) from None

    def _broken(self, failure: Exception) -> Exception:
        """TLS_FAILED where the broker refuses the client's certificate, which it says behind the
        handshake since TLS 1.3; else ConnectionLost."""
        self.close()
        if isinstance(failure, ssl.SSLError) and (
            hint := security_protocol_hint.refuses_certificate(
                str(failure), self._settings.has_certificate
            )
        ):
            return error("TLS_FAILED", f"{failure}; {hint}", broker=self.address)
        return ConnectionLost(str(failure))

    def _answer_by(self) -> float:
        return min(time.monotonic() + self._timeout_s, self._ready_by)

    def _socket(self) -> socket.socket:
        if self._sock is None:
            raise ConnectionLost("the connection is closed")
        return self._sock

    def _agree_on_versions(self) -> None:
        """Ask for the broker's versions; an old broker refuses the newest form of the question."""
        request = protocol.api_versions()
        self._versions = {request.API_KEY: protocol.SPOKEN[request.name]}
        answer = self.call(request)
        if answer.error_code == protocol.Code.UNSUPPORTED_VERSION:
            self._versions = {request.API_KEY: (0, 0)}
            answer = self.call(protocol.api_versions())
        if answer.error_code:
            raise error(
                "BROKER_ERROR",
                f"ApiVersions failed with {protocol.error_name(answer.error_code)}",
                broker=self.address,
            )
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }
        features = getattr(answer, "finalized_features", None) or ()
        self.features = {each.name: each.max_version_level for each in features}

    def _version(self, api_key: int, least: int, most: int, name: str) -> int:
        low, high = self._versions.get(api_key, (0, -1))
        if high < least or low > most:
            name = name.removesuffix("Request")
            spoken = f"versions {low} to {high} of {name}" if high >= 0 else f"no {name}"
            raise error(
                "UNSUPPORTED_BROKER",
                f"the broker speaks {spoken}, keyrange versions {least} to {most}",
                broker=self.address,
            )
        return min(high, most)

    def _bad_length(
        self, head: bytes, count: int, bytes_max: int, context: dict[str, Any]
    ) -> KeyrangeError:
        if head.startswith(security_protocol_hint.TLS_ALERT):
            said = security_protocol_hint.speaks_tls(self._settings.security_protocol)
            return error("TLS_FAILED", said, broker=self.address)
        if not (self._answered or self.proven) and (said := security_protocol_hint.foreign(head)):
            return error("NOT_A_BROKER", said, address=self.address)
        if count > bytes_max:
            return error(
                "BATCH_TOO_LARGE",
                f"the broker announces an answer of {count} bytes, allowed are {bytes_max}",
                broker=self.address,
                **context,
            )
        return error(
            "CORRUPT_FRAME", f"a frame announces {count} bytes", broker=self.address, **context
        )

    def explain(self, lost: ConnectionLost) -> KeyrangeError:
        """Why a connection broke before its first use: brokers close it without a word."""
        if self.proven:
            return error("BROKER_UNREACHABLE", f"connection lost: {lost}", broker=self.address)
        hint = security_protocol_hint.closed(self._settings.security_protocol, self._answered)
        if isinstance(lost, NoAnswer):
            hint = security_protocol_hint.silent()
        return error(
            "BROKER_UNREACHABLE",
            f"the connection broke before it was of use: {lost}; {hint}",
            broker=self.address,
        )
