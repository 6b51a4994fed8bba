"""The SASL handshake of a connection: the mechanism, its messages, and for how long a login counts.

A broker closes the connection or refuses on a wrong password, and the error says so at once. With a
session lifetime (KIP-368) the broker closes a connection at its end, so one that comes near it is
replaced by another, which authenticates again.
"""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.messages import protocol
from keyrange.kafka.model import security_protocol_hint
from keyrange.kafka.response_frames import ConnectionLost
from keyrange.kafka.security import sasl_mechanisms, tokens
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.secrets import UnseenBytes

_REAUTHENTICATE_AT: Final = 0.85


class SaslConnection(Protocol):
    """What the handshake needs of a connection to a broker."""

    host: str

    @property
    def address(self) -> str: ...

    def call(self, message: tuple[Any, Any, int, int], request: Any) -> Any:
        """Send a request and return its decoded answer."""

    def extend_connecting(self, seconds: float) -> None:
        """Connecting may take so much longer."""


def authenticate(connection: SaslConnection, settings: ClientSettings) -> float:
    """Log in; returns when to authenticate again, of `time.monotonic`, infinity for never.

    Raises SASL_AUTHENTICATION_FAILED, ConnectionLost, and what `sasl_mechanisms.new_client` raises.
    """
    mechanism = settings.sasl_mechanism
    answer = connection.call(protocol.SASL_HANDSHAKE, protocol.sasl_handshake(mechanism))
    if answer.error_code == protocol.Code.ILLEGAL_SASL_STATE:
        said = security_protocol_hint.has_no_sasl(settings.security_protocol)
        raise _failed(connection, settings, said)
    if answer.error_code:
        offered = ", ".join(answer.mechanisms) or "no mechanism"
        raise _failed(connection, settings, f"the listener offers {offered}, not {mechanism}")
    try:
        began = time.monotonic()
        client, user = sasl_mechanisms.new_client(settings, connection.host)
        # What gives tokens and tickets has deadlines of its own.
        connection.extend_connecting(time.monotonic() - began)
        lifetime_ms = _exchange(connection, settings, client, user)
    except (KeyrangeError, ConnectionLost):
        raise
    except Exception as failure:
        # Each mechanism has errors of its own: of Kerberos, of AWS, of a broker's bad answer.
        raise _failed(connection, settings, f"{type(failure).__name__}: {failure}") from None
    if lifetime_ms <= 0:
        return float("inf")
    return time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT


def _exchange(connection: SaslConnection, settings: ClientSettings, client: Any, user: str) -> int:
    """The messages of a mechanism; returns the session's lifetime in ms, 0 without one."""
    lifetime_ms = 0
    while not client.is_done():
        request = protocol.sasl_authenticate(UnseenBytes(client.auth_bytes()))
        answer = connection.call(protocol.SASL_AUTHENTICATE, request)
        if answer.error_code:
            tokens.forget()
            said = answer.error_message or protocol.error_name(answer.error_code)
            hint = sasl_mechanisms.why_refused(settings.sasl_mechanism, user)
            raise _failed(connection, settings, f"{said}{hint and '; ' + hint}", user)
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
        client.receive(answer.auth_bytes)
    return lifetime_ms


def _failed(
    connection: SaslConnection, settings: ClientSettings, message: str, user: str = ""
) -> KeyrangeError:
    return error(
        "SASL_AUTHENTICATION_FAILED",
        f"authentication failed: {message}",
        broker=connection.address,
        mechanism=settings.sasl_mechanism,
        **{"user": user} if user else {},
    )
