"""The SASL handshake of a connection: the mechanism and what it needs, its messages, and for how
long a login counts.

kafka-python's clients compute and check the proofs. References to secrets are resolved here, in the
process that connects, and what they hold is not kept. Packages that only one mechanism needs are
asked for by name.

A broker closes the connection or refuses on a wrong password, and the error says so at once. With a
session lifetime (KIP-368) the broker closes a connection at its end, so one that comes near it is
replaced by another, which authenticates again. What a broker says may be of any length, and may
quote what it was sent.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Collection
from typing import Any, Final, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.messages import protocol, sasl_clients
from keyrange.kafka.model import security_protocol_hint
from keyrange.kafka.response_frames import ConnectionLost
from keyrange.kafka.security import kerberos, tokens
from keyrange.options.allowlist import NotAllowed, not_allowed
from keyrange.options.jaas import read_login
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.secrets import UnseenBytes, UnseenText
from keyrange.text.escaping import one_line
from keyrange.text.masking import without
from keyrange.text.packages import install_line

_REAUTHENTICATE_AT: Final = 0.85
_SAID_MAX: Final = 200
# Between the fields of PLAIN (RFC 4616) and of OAUTHBEARER (RFC 7628), and before a token.
_FIELDS: Final = re.compile(r"[\0\1]|auth=Bearer ")


class SaslConnection(Protocol):
    """What the handshake needs of a connection to a broker."""

    host: str

    @property
    def address(self) -> str: ...

    def call(self, request: Any) -> Any:
        """Send a request and return its decoded answer."""

    def extend_connecting(self, seconds: float) -> None:
        """Connecting may take so much longer."""


def authenticate(connection: SaslConnection, settings: ClientSettings) -> float:
    """Log in; returns when to authenticate again, of `time.monotonic`, infinity for never.

    Raises SASL_AUTHENTICATION_FAILED, ConnectionLost, and what `new_client` raises.
    """
    mechanism = settings.sasl_mechanism
    answer = connection.call(protocol.sasl_handshake(mechanism))
    if answer.error_code == protocol.Code.ILLEGAL_SASL_STATE:
        said = security_protocol_hint.has_no_sasl(settings.security_protocol)
        raise _failed(connection, settings, said)
    if answer.error_code:
        offered = _said(", ".join(answer.mechanisms)) or "no mechanism"
        raise _failed(connection, settings, f"the listener offers {offered}, not {mechanism}")
    sent: set[UnseenText] = set()
    try:
        began = time.monotonic()
        client, user = new_client(settings, connection.host)
        # What gives tokens and tickets has deadlines of its own.
        connection.extend_connecting(time.monotonic() - began)
        lifetime_ms = _exchange(connection, settings, client, user, sent, began)
    except (KeyrangeError, ConnectionLost):
        raise
    except Exception as failure:
        # Each mechanism has errors of its own: of Kerberos, of AWS, of a broker's bad answer.
        said = _said(f"{type(failure).__name__}: {failure}", sent)
        raise _failed(connection, settings, said) from None
    if lifetime_ms <= 0:
        return float("inf")
    return time.monotonic() + lifetime_ms / 1000 * _REAUTHENTICATE_AT


def _exchange(
    connection: SaslConnection,
    settings: ClientSettings,
    client: Any,
    user: str,
    sent: set[UnseenText],
    began: float,
) -> int:
    """The messages of a mechanism; returns the session's lifetime in ms, 0 without one. What was
    sent, whole and in its fields, goes into `sent`, without the user's name. `began`: when the
    client was made."""
    lifetime_ms = 0
    while not client.is_done():
        message = UnseenBytes(client.auth_bytes())
        text = UnseenText(message.decode(errors="replace"))
        sent |= {text, *map(UnseenText, _FIELDS.split(text))} - {user}
        answer = connection.call(protocol.sasl_authenticate(message))
        if answer.error_code:
            is_kept = tokens.forget(began) and settings.sasl_mechanism == "OAUTHBEARER"
            said = _said(answer.error_message or "", sent)
            said = said or protocol.error_name(answer.error_code)
            # No traceback shows it with its values.
            del answer
            if is_kept:
                said = f"a token that was kept was refused, the next try asks for another: {said}"
                raise error("BROKER_UNREACHABLE", said, broker=connection.address)
            hint = why_refused(settings.sasl_mechanism, user)
            raise _failed(connection, settings, f"{said}{hint and '; ' + hint}", user)
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0) or 0
        client.receive(answer.auth_bytes)
    return lifetime_ms


def _said(text: str, sent: Collection[str] = ()) -> str:
    """What a broker says, as far as it is shown, without what it was sent."""
    return one_line(without(text, sent))[:_SAID_MAX]


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


def new_client(settings: ClientSettings, host: str) -> tuple[Any, str]:
    """The client side of the mechanism (auth_bytes, receive, is_done), and who logs in.

    Raises SECRET_NOT_FOUND, PACKAGE_NOT_FOUND, INVALID_OPTIONS for a JAAS configuration that was
    referred to and does not fit, and what `kerberos.new_client` and `tokens.token` raise.
    """
    try:
        login = {name: value.reveal() for name, value in read_login(settings).items()}
    except NotAllowed as failure:
        raise not_allowed("kafka.sasl.jaas.config", failure) from None
    except ValueError as failure:
        raise error("INVALID_OPTIONS", f"option 'kafka.sasl.jaas.config' {failure}") from None
    config: dict[str, Any] = {"host": host, "security_protocol": settings.security_protocol}
    mechanism = settings.sasl_mechanism
    if mechanism == "OAUTHBEARER":
        token, extensions = tokens.token(settings, login), tokens.extensions(login)
        config["sasl_oauth_token_provider"] = sasl_clients.TokenProvider(token, extensions)
        user = login.get("clientId", "")
    elif mechanism == "GSSAPI":
        _require("gssapi", mechanism, "kerberos")
        config |= {
            "sasl_kerberos_service_name": login["serviceName"],
            "principal": login.get("principal", ""),
        }
        return kerberos.new_client(login, host, config), login.get("principal", "")
    elif mechanism == "AWS_MSK_IAM":
        _require("botocore", mechanism, "msk")
        user = config["profile"] = login.get("awsProfileName", "")
    else:
        config["sasl_plain_username"] = user = login["username"]
        config["sasl_plain_password"] = login["password"]
    return sasl_clients.new_client(mechanism, config), user


def why_refused(mechanism: str, user: str) -> str:
    """What to add to a broker's refusal, which tells no reason; "" where nothing is known of it."""
    if mechanism == "GSSAPI":
        return kerberos.refused()
    if mechanism.startswith("SCRAM") and not user.isascii():
        return "Kafka's brokers take the user names of SCRAM in ASCII only"
    return ""


def _require(package: str, mechanism: str, extra: str) -> None:
    try:
        importlib.import_module(package)
    except (ImportError, OSError) as failure:
        raise error(
            "PACKAGE_NOT_FOUND",
            f"{mechanism} needs the Python package {package} ({install_line(extra)}): {failure}",
        ) from None
