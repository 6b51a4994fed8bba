"""A socket to a broker, by a deadline: TCP, and TLS where it is asked for.

What goes wrong is named by its cause at once: an unreachable address, TLS against a plaintext
listener, a certificate that is not trusted.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.model import security_protocol_hint
from keyrange.options.kafka_properties import ClientSettings

# OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_WRONG_TIME: Final = frozenset((9, 10))


def open_socket(
    host: str, port: int, settings: ClientSettings, by: float, proven: bool
) -> socket.socket:
    """A socket that is connected, and secured, before `by`, of `time.monotonic`.

    `proven`: an earlier connection to this address has answered requests. Raises
    BROKER_UNREACHABLE, TLS_FAILED, and what a store of certificates raises.
    """
    try:
        sock = _dial(host, port, by)
    except (OSError, UnicodeError) as failure:
        # UnicodeError: a name with an empty or over-long label.
        raise _unreachable(f"cannot connect: {failure}", host, port) from None
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if settings.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        if settings.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if not settings.security_protocol.endswith("SSL"):
            return sock
        # Of the handshake as a whole.
        sock.settimeout(max(by - time.monotonic(), 0.001))
        return _secured(sock, host, port, settings, proven)
    except BaseException:
        sock.close()
        raise


def _dial(host: str, port: int, by: float) -> socket.socket:
    """A connection to one of the addresses of the name, which is looked up anew each time.

    Each gets its share of the time: one that is silent does not take that of the others.
    """
    found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    failed = OSError("the name has no address")
    for tried, (family, kind, number, _, address) in enumerate(found):
        left_s = max(by - time.monotonic(), 0.001)
        sock = socket.socket(family, kind, number)
        try:
            sock.settimeout(left_s / (len(found) - tried))
            sock.connect(address)
            return sock
        except OSError as failure:
            sock.close()
            failed = failure
        except BaseException:
            sock.close()
            raise
    raise failed


def _secured(
    sock: socket.socket, host: str, port: int, settings: ClientSettings, proven: bool
) -> socket.socket:
    from keyrange.kafka.security import tls_stores

    try:
        context = tls_stores.tls_context(settings)
        return context.wrap_socket(sock, server_hostname=host.rstrip("."))
    except ssl.SSLCertVerificationError as failure:
        raise _tls_failed(f"the broker's certificate: {_cause(failure)}", host, port) from None
    except TimeoutError:
        # A network that is slow today: to try again may help, unlike with the wrong protocol.
        hint = "" if proven else f"; {security_protocol_hint.silent()}"
        raise _unreachable(
            f"the TLS handshake was not finished in time{hint}", host, port
        ) from None
    except (ssl.SSLError, OSError) as failure:
        broken = not isinstance(failure, ssl.SSLError) or isinstance(failure, ssl.SSLEOFError)
        if broken and proven:
            raise _unreachable(
                f"the connection broke during the TLS handshake: {failure}", host, port
            ) from None
        said = str(failure)
        if hint := security_protocol_hint.refuses_certificate(said, settings.has_certificate):
            said = f"{said}; {hint}"
        elif _no_tls(said):
            said = f"{said}; {security_protocol_hint.speaks_no_tls(settings.security_protocol)}"
        raise _tls_failed(said, host, port) from None


def _cause(failure: ssl.SSLCertVerificationError) -> str:
    """What is wrong with a certificate; where that is its time, the clock may be what is wrong."""
    if failure.verify_code not in _WRONG_TIME:
        return failure.verify_message
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"{failure.verify_message}; the clock of this machine says {now}"


def _no_tls(said: str) -> bool:
    """Whether OpenSSL says so when the other side does not answer in TLS."""
    return any(sign in said for sign in ("WRONG_VERSION_NUMBER", "EOF", "RECORD_LAYER", "reset"))


def _unreachable(message: str, host: str, port: int) -> KeyrangeError:
    return error("BROKER_UNREACHABLE", message, broker=f"{host}:{port}")


def _tls_failed(message: str, host: str, port: int) -> KeyrangeError:
    return error("TLS_FAILED", f"TLS could not be agreed on: {message}", broker=f"{host}:{port}")
