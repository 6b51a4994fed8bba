"""One connection to one broker: connect, secure, authenticate, then requests and their answers.

Blocking, with a deadline on every step, and no thread. Requests may be sent ahead of the answer to
an earlier one; answers come in the order of the requests. A frame is received into a buffer that
the caller reuses, in as few system calls as the kernel allows.

What goes wrong while connecting is named by its cause at once: an unreachable address, TLS against
a plaintext listener or the other way round, an untrusted certificate, a wrong password.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections import deque
from typing import Any, Final, Protocol

from keyrange.client_options import ClientSettings
from keyrange.errors import KeyrangeError, error
from keyrange.kafka import protocol, sasl, stores, tokens

_log = logging.getLogger(__name__)

# Answers other than to a fetch: metadata of 100,000 partitions is about 10 MB.
_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_STRETCH_BYTES: Final = 1 << 20
_TLS_ALERT: Final = b"\x15\x03"
_REAUTHENTICATE_AT: Final = 0.85


class ConnectionLost(Exception):
    """The connection broke or timed out: a new one may do. Never leaves `keyrange.kafka`."""


class Buffer(Protocol):
    """Memory for one frame. Its bytes are those of an array or of a memoryview."""

    def receive(self, sock: socket.socket, count: int) -> Any:
        """Exactly `count` bytes, in memory that the next call may use again."""


class _AnswerBuffer:
    """Memory for one answer that is decoded at once. It needs no numpy: a process that only keeps
    a member alive would be twice as large with it."""

    def receive(self, sock: socket.socket, count: int) -> memoryview:
        # Grows with what arrives, never by what a length field says.
        memory = bytearray()
        while len(memory) < count:
            received = sock.recv(min(count - len(memory), _STRETCH_BYTES))
            if not received:
                raise ConnectionLost("the broker closed the connection")
            memory += received
        return memoryview(memory)


class Connection:
    """A ready connection; construct it with `connect`."""

    def __init__(
        self, host: str, port: int, settings: ClientSettings, proven: bool = False
    ) -> None:
        self.host = host
        self.port = port
        # Whether this address has answered a request: what breaks then is not the wrong protocol.
        self.proven = proven
        self._ready = False
        self._settings = settings
        self._sock: socket.socket | None = None
        self._correlation_id = 0
        self._sent: deque[int] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._authenticate_again_at = float("inf")

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        settings: ClientSettings,
        client_version: str,
        timeout_ms: int,
        proven: bool = False,
    ) -> Connection:
        """Connect, secure and authenticate within `timeout_ms`.

        `proven`: an earlier connection to this address has answered requests. Raises
        UnavailableError, DeniedError or InvalidError with the cause; never ConnectionLost.
        """
        connection = cls(host, port, settings, proven)
        try:
            connection._open(timeout_ms)
            connection._agree_on_versions(client_version)
            if settings.security_protocol.startswith("SASL"):
                connection._authenticate()
            connection.set_timeout(settings.request_timeout_ms)
            connection._ready = True
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
        """How long to wait for bytes to leave or to come; the longest silence, not the whole."""
        if self._sock is not None:
            self._sock.settimeout(max(timeout_ms, 1) / 1000)

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
        frame = protocol.encode(request, version, self._correlation_id, self._settings.client_id)
        try:
            self._socket().sendall(frame)
        except OSError as failure:
            self.close()
            raise ConnectionLost(str(failure)) from None
        self._sent.append(self._correlation_id)

    def fileno(self) -> int:
        """For select: an answer's first bytes make it readable. -1 where it is closed."""
        return -1 if self._sock is None else self._sock.fileno()

    def receive(self, buffer: Buffer, bytes_max: int, **context: Any) -> Any:
        """The answer to the oldest unanswered request, from its correlation id on.

        `context` says in an error what was asked for.
        """
        try:
            sock = self._socket()
            head = buffer.receive(sock, 4).tobytes()
            (count,) = struct.unpack(">i", head)
            if not 4 <= count <= bytes_max:
                raise self._bad_length(head, count, bytes_max, context)
            frame = buffer.receive(sock, count)
        except (OSError, ConnectionLost) as failure:
            self.close()
            reason = "no answer in time" if isinstance(failure, TimeoutError) else str(failure)
            raise ConnectionLost(reason) from None
        except KeyrangeError:
            self.close()
            raise
        expected = self._sent.popleft()
        (answered,) = struct.unpack(">i", frame[:4].tobytes())
        if answered != expected:
            self.close()
            raise error(
                "CORRUPT_FRAME",
                "an answer belongs to another request",
                broker=self.address,
                expected=expected,
                received=answered,
            )
        self.proven = self.proven or self._ready
        return frame

    def call(self, message: tuple[Any, Any, int, int], request: Any) -> Any:
        """Send a request and return its decoded answer; only where none is unanswered."""
        return self.answer(message, self.ask(message, request))

    def ask(self, message: tuple[Any, Any, int, int], request: Any) -> int:
        """Send a request of a message kind; returns the version that `answer` needs."""
        request_class, _, least, most = message
        version = self._version(request_class.API_KEY, least, most, request_class.name)
        self.send(request, version)
        return version

    def answer(self, message: tuple[Any, Any, int, int], version: int) -> Any:
        frame = self.receive(_AnswerBuffer(), _ANSWER_BYTES_MAX)
        body = frame[protocol.header_bytes(message[1], version) :]
        try:
            return protocol.decode(message[1], version, body)
        except Exception as failure:
            self.close()
            raise error(
                "CORRUPT_FRAME", f"an answer cannot be decoded: {failure}", broker=self.address
            ) from None

    def _socket(self) -> socket.socket:
        if self._sock is None:
            raise ConnectionLost("the connection is closed")
        return self._sock

    def _open(self, timeout_ms: int) -> None:
        """TCP, and TLS where asked for. All addresses of the name are tried."""
        settings = self._settings
        try:
            sock = socket.create_connection((self.host, self.port), timeout_ms / 1000)
        except (OSError, UnicodeError) as failure:
            # UnicodeError: a name with an empty or over-long label.
            raise error(
                "BROKER_UNREACHABLE", f"cannot connect: {failure}", broker=self.address
            ) from None
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        if settings.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.security_protocol.endswith("SSL"):
            try:
                context = stores.tls_context(settings)
                self._sock = context.wrap_socket(sock, server_hostname=self.host.rstrip("."))
            except ssl.SSLCertVerificationError as failure:
                raise self._tls_failed(
                    f"the broker's certificate: {failure.verify_message}"
                ) from None
            except (ssl.SSLError, OSError) as failure:
                broken = not isinstance(failure, ssl.SSLError) or isinstance(
                    failure, ssl.SSLEOFError
                )
                if broken and self.proven:
                    raise error(
                        "BROKER_UNREACHABLE",
                        f"the connection broke during the TLS handshake: {failure}",
                        broker=self.address,
                    ) from None
                hint = " (does the listener speak TLS at all?)" if _no_tls(failure) else ""
                raise self._tls_failed(f"{failure}{hint}") from None

    def _tls_failed(self, message: str) -> KeyrangeError:
        return error("TLS_FAILED", f"TLS could not be agreed on: {message}", broker=self.address)

    def _agree_on_versions(self, client_version: str) -> None:
        """Ask for the broker's versions; an old broker refuses the newest form of the question."""
        request_class, _, least, most = protocol.API_VERSIONS
        self._versions = {request_class.API_KEY: (least, most)}
        answer = self.call(protocol.API_VERSIONS, protocol.api_versions(client_version))
        if answer.error_code == protocol.Code.UNSUPPORTED_VERSION:
            self._versions = {request_class.API_KEY: (least, 0)}
            answer = self.call(protocol.API_VERSIONS, protocol.api_versions(client_version))
        if answer.error_code:
            raise error(
                "BROKER_ERROR",
                f"ApiVersions failed with {protocol.error_name(answer.error_code)}",
                broker=self.address,
            )
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }

    def _version(self, api_key: int, least: int, most: int, name: str) -> int:
        low, high = self._versions.get(api_key, (0, -1))
        if high < least or low > most:
            raise error(
                "UNSUPPORTED_BROKER",
                f"the broker speaks versions {low} to {high} of {name}, keyrange {least} to {most}",
                broker=self.address,
            )
        return min(high, most)

    def _authenticate(self) -> None:
        """SASL. The broker closes or refuses on a wrong password, and says so at once."""
        mechanism = self._settings.sasl_mechanism
        answer = self.call(protocol.SASL_HANDSHAKE, protocol.sasl_handshake(mechanism))
        if answer.error_code:
            raise self._sasl_failed(
                f"the listener offers {', '.join(answer.mechanisms) or 'no mechanism'}, "
                f"not {mechanism}"
            )
        try:
            client, user = sasl.new_client(self._settings, self.host)
            lifetime_ms = self._exchange(client, user)
        except (KeyrangeError, ConnectionLost):
            raise
        except Exception as failure:
            # Each mechanism has errors of its own: of Kerberos, of AWS, of a broker's bad answer.
            raise self._sasl_failed(f"{type(failure).__name__}: {failure}") from None
        if lifetime_ms > 0:
            # KIP-368: the broker cuts the connection at the end of the lifetime; a connection that
            # comes near it is replaced between two requests.
            self._authenticate_again_at = time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT

    def _exchange(self, client: Any, user: str) -> int:
        """The messages of a mechanism; returns the session's lifetime in ms, 0 without one."""
        lifetime_ms = 0
        while not client.is_done():
            request = protocol.sasl_authenticate(client.auth_bytes())
            answer = self.call(protocol.SASL_AUTHENTICATE, request)
            if answer.error_code:
                tokens.forget()
                raise self._sasl_failed(
                    answer.error_message or protocol.error_name(answer.error_code), user
                )
            lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
            client.receive(answer.auth_bytes)
        return lifetime_ms

    def _sasl_failed(self, message: str, user: str = "") -> KeyrangeError:
        return error(
            "SASL_AUTHENTICATION_FAILED",
            f"authentication failed: {message}",
            broker=self.address,
            mechanism=self._settings.sasl_mechanism,
            **{"user": user} if user else {},
        )

    def _bad_length(
        self, head: bytes, count: int, bytes_max: int, context: dict[str, Any]
    ) -> KeyrangeError:
        if head.startswith(_TLS_ALERT):
            return error(
                "TLS_FAILED",
                f"the listener speaks TLS, and kafka.security.protocol is "
                f"{self._settings.security_protocol}",
                broker=self.address,
            )
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
        settings = self._settings
        if self.proven:
            return error("BROKER_UNREACHABLE", f"connection lost: {lost}", broker=self.address)
        if settings.security_protocol == "PLAINTEXT":
            hint = "a listener for TLS or SASL closes plaintext connections like that"
        elif settings.security_protocol.startswith("SASL"):
            hint = "a listener without SASL closes connections like that"
        else:
            hint = "the listener may ask for a client certificate or for SASL"
        return error(
            "BROKER_UNREACHABLE",
            f"the connection broke before it was ready: {lost}; {hint}",
            broker=self.address,
        )


def _no_tls(failure: Exception) -> bool:
    """What OpenSSL says when the other side does not answer in TLS."""
    text = str(failure)
    return any(
        sign in text
        for sign in ("WRONG_VERSION_NUMBER", "EOF", "RECORD_LAYER", "reset", "timed out")
    )
