"""What a listener's first bytes, and the end of a connection, say of the protocol that it speaks:
in words that name the value of kafka.security.protocol to set."""

from __future__ import annotations

import re
from typing import Final

_CERTIFICATE_ALERT: Final = re.compile(r"ALERT_(?:\w*CERTIFICATE\w*|UNKNOWN_CA)")
# What an alert of TLS begins with.
TLS_ALERT: Final = b"\x15\x03"
_PRINTABLE: Final = range(0x20, 0x7F)
# Each protocol, and the one that differs from it in TLS, or in SASL, alone.
_OTHER_TLS: Final = {
    "PLAINTEXT": "SSL",
    "SSL": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_SSL",
    "SASL_SSL": "SASL_PLAINTEXT",
}
_OTHER_SASL: Final = {
    "PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_PLAINTEXT": "PLAINTEXT",
    "SSL": "SASL_SSL",
    "SASL_SSL": "SSL",
}


def foreign(head: bytes) -> str:
    """What to say of an answer whose first four bytes are text; "" where they may be a length: as
    one, four printable characters would be half a GB at least."""
    if not all(byte in _PRINTABLE for byte in head):
        return ""
    begins = head.decode("ascii")
    said = "it answers in HTTP, as a web server" if begins == "HTTP" else f"it begins '{begins}'"
    return f"what listens there does not speak Kafka: {said}"


def speaks_tls(protocol: str) -> str:
    """To a client without TLS, of a listener that speaks it."""
    return _other_tls("speaks TLS", protocol, "without TLS")


def speaks_no_tls(protocol: str) -> str:
    """To a client with TLS, of a listener that does not answer in it."""
    return _other_tls("does not seem to speak TLS", protocol, "with TLS")


def refuses_certificate(said: str, has_certificate: bool) -> str:
    """What to add to the alert of a listener that refuses the client's certificate, or that there
    is none; "" for what is no such alert. `said` is OpenSSL's text."""
    if not _CERTIFICATE_ALERT.search(said):
        return ""
    if not has_certificate:
        return (
            "the listener asks for a client certificate: set kafka.ssl.keystore.location, or "
            "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
        )
    return (
        "the listener does not accept the certificate of kafka.ssl.keystore.*: it has to be valid "
        "today, and of an authority that the broker's trust store holds"
    )


def has_no_sasl(protocol: str) -> str:
    """To a client that logs in, of a listener that knows no login."""
    return (
        f"the listener has no SASL, and kafka.security.protocol is {protocol}: set it to "
        f"{_OTHER_SASL[protocol]} and leave kafka.sasl.* out, or name the port of a listener with "
        "SASL"
    )


def closed(protocol: str, answered: bool) -> str:
    """Why a listener may have closed a connection before it was of use: brokers do so silently.

    `answered`: it has answered a request on this connection, so it speaks Kafka, and TLS or none as
    the client does.
    """
    if protocol.startswith("SASL") and answered:
        return "a broker may end a login like that: its log has the reason"
    if answered:
        return (
            "a listener with SASL does so: set kafka.security.protocol to "
            f"{_OTHER_SASL[protocol]}, with kafka.sasl.mechanism and credentials"
        )
    if protocol.endswith("SSL"):
        return "the listener may ask for a client certificate, or not speak Kafka"
    return f"a listener with TLS does so: set kafka.security.protocol to {_tls_or_both(protocol)}"


def silent() -> str:
    """Why a listener may take a connection and give no answer."""
    return "the broker is busy or starting, or what listens there does not speak Kafka"


def _other_tls(what: str, protocol: str, other: str) -> str:
    return (
        f"the listener {what}, and kafka.security.protocol is {protocol}: set it to "
        f"{_tls_or_both(protocol)}, or name the port of a listener {other}"
    )


def _tls_or_both(protocol: str) -> str:
    other = _OTHER_TLS[protocol]
    login = "without a login" if protocol.startswith("SASL") else "with a login"
    return f"{other}, or {login} to {_OTHER_SASL[other]}"
