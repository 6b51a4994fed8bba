"""Tokens for OAUTHBEARER: from a token endpoint, from a file, or made here without a signature.

The endpoint is asked with the client-credentials grant (RFC 6749, 4.4), over https or on the
machine's own loopback, and without following redirects: those would carry the client's secret to
another place. A token is kept in this process for most of its lifetime. Errors name the endpoint
and what it said, never the secret or the token; nor do the local values of their tracebacks.
"""

from __future__ import annotations

import base64
import json
import math
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, Final
from urllib.parse import quote_plus, urlencode

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.security import tls_stores
from keyrange.kafka.security.http_requests import opener
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.secrets import NO_SECRET, Secret, UnseenText
from keyrange.options.security_properties import TlsSettings
from keyrange.text.masking import without

_ANSWER_BYTES_MAX: Final = 1 << 20
_SAID_MAX: Final = 200
# RFC 6750, 2.1. Anything else could end the message's field, and name another user in the next.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
_PASSES: Final = frozenset((408, 425, 429, *range(500, 600)))

_lock = threading.Lock()
# Each with when it was asked for, and until when it is kept.
_kept: dict[tuple[str, ...], tuple[UnseenText, float, float]] = {}


def token(settings: ClientSettings, login: Mapping[str, str]) -> UnseenText:
    """The token to log in with; `login` has the names of OAuthBearerLoginModule's options.

    Raises TOKEN_REFUSED, TOKEN_ENDPOINT_UNREACHABLE, SECRET_NOT_FOUND for a token's file.
    """
    url = settings.oauth_token_endpoint_url
    if not url:
        return UnseenText(unsecured_token(login, time.time()))
    if url.startswith("file:"):
        return _checked(UnseenText(Secret(url).reveal().strip()), url)
    key = (url, *(login.get(name, "") for name in ("clientId", "clientSecret", "scope")))
    with _lock:
        kept, _, until = _kept.get(key, (UnseenText(), 0.0, 0.0))
        if time.monotonic() < until:
            return kept
        asked_at = time.monotonic()
        fresh, lifetime_s = _ask(settings, login)
        until = asked_at + lifetime_s * settings.login_refresh_window_factor
        _kept[key] = (fresh, asked_at, until)
        return fresh


def forget(before: float = 0.0) -> bool:
    """Ask anew the next time: a broker has refused what is kept. Whether some of that was asked for
    before a time of `time.monotonic`: another one may be taken, where the broker's clock is ahead,
    this host has slept, or keys were changed."""
    with _lock:
        found = any(asked_at < before for _, asked_at, _ in _kept.values())
        _kept.clear()
        return found


def extensions(login: Mapping[str, str]) -> dict[str, str]:
    """SASL extensions (KIP-342), which Confluent Cloud, for example, asks for."""
    prefixes = ("extension_", "unsecuredLoginExtension_")
    found = {
        name.partition("_")[2]: value for name, value in login.items() if name.startswith(prefixes)
    }
    for name, value in found.items():
        if not re.fullmatch(r"[A-Za-z]+", name, re.ASCII) or name == "auth" or "\x01" in value:
            raise error("INVALID_OPTIONS", f"OAUTHBEARER cannot carry the extension {name!r}")
    return found


def unsecured_token(login: Mapping[str, str], now_s: float) -> str:
    """A token without a signature (RFC 7515, appendix A.5), as Java's unsecured login makes it.

    Raises INVALID_OPTIONS for a claim that is no number where it should be one.
    """
    # Whole seconds: a broker whose clock has milliseconds would find the rest in its future, and
    # refuse it.
    issued_s = math.floor(now_s)
    claims: dict[str, Any] = {"iat": issued_s, "exp": now_s + _number(login, _LIFETIME, "3600")}
    for name, value in login.items():
        kind, _, claim = name.partition("_")
        if kind == "unsecuredLoginStringClaim":
            claims[claim] = value
        elif kind == "unsecuredLoginNumberClaim":
            claims[claim] = _number(login, name)
        elif kind == "unsecuredLoginListClaim":
            # The first character parts the others: ",a,b" or "|a|b".
            claims[claim] = value[1:].split(value[0]) if value else []
    principal = login.get("unsecuredLoginPrincipalClaimName", "sub")
    if not claims.get(principal):
        raise error(
            "INVALID_OPTIONS", f"an unsecured token needs unsecuredLoginStringClaim_{principal}"
        )
    parts = ({"alg": "none"}, claims)
    return ".".join(_base64url(json.dumps(part).encode()) for part in parts) + "."


_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"


def _number(login: Mapping[str, str], name: str, default: str = "") -> float:
    try:
        return float(login.get(name, default))
    except ValueError:
        raise error("INVALID_OPTIONS", f"{name} in the JAAS configuration is no number") from None


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _ask(settings: ClientSettings, login: Mapping[str, str]) -> tuple[UnseenText, float]:
    """A token of the endpoint, and its lifetime in seconds; 0 where that is not told."""
    url = settings.oauth_token_endpoint_url
    client, secret = login["clientId"], login["clientSecret"]
    if settings.oauth_header_urlencode:
        client, secret = quote_plus(client), UnseenText(quote_plus(secret))
    form = {"grant_type": "client_credentials"}
    if login.get("scope"):
        form["scope"] = login["scope"]
    pair = UnseenText(base64.b64encode(f"{client}:{secret}".encode()).decode())
    headers = {"Accept": "application/json", "Authorization": UnseenText(f"Basic {pair}")}
    request = urllib.request.Request(url, urlencode(form).encode(), headers, method="POST")
    try:
        with opener(url, lambda: _tls(login)).open(
            request, timeout=settings.login_timeout_ms / 1000
        ) as answer:
            found, lifetime_s = _granted(answer)
    except urllib.error.HTTPError as failure:
        raise _refused(failure, url, (login["clientSecret"], secret, pair)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise error(
            "TOKEN_REFUSED", "the token endpoint's answer holds no access_token", endpoint=url
        ) from None
    except OSError as failure:
        reason = getattr(failure, "reason", failure)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise error(
                "TOKEN_REFUSED",
                f"the token endpoint's certificate: {reason.verify_message}",
                endpoint=url,
            ) from None
        raise error(
            "TOKEN_ENDPOINT_UNREACHABLE", f"no token was had: {reason}", endpoint=url
        ) from None
    return _checked(found, url), lifetime_s


def _granted(answer: IO[bytes]) -> tuple[UnseenText, float]:
    """As `_ask`. Raises where no token was granted."""
    document = json.loads(answer.read(_ANSWER_BYTES_MAX))
    if not isinstance(found := document["access_token"], str):
        raise TypeError
    return UnseenText(found), float(document.get("expires_in") or 0)


def _tls(login: Mapping[str, str]) -> ssl.SSLContext:
    """As to the broker, with the trust store of the JAAS entry, else the system's authorities."""
    return tls_stores.tls_context(
        TlsSettings(
            ssl_truststore_location=login.get("ssl.truststore.location", ""),
            ssl_truststore_type=login.get("ssl.truststore.type", "").upper(),
            ssl_truststore_password=_literal(login.get("ssl.truststore.password", "")),
            ssl_truststore_certificates=_literal(login.get("ssl.truststore.certificates", "")),
        )
    )


def _literal(value: str) -> Secret:
    return Secret(f"literal:{value}") if value else NO_SECRET


def _refused(failure: urllib.error.HTTPError, url: str, secrets: tuple[str, ...]) -> KeyrangeError:
    said = without(_explanation(failure), secrets)[:_SAID_MAX]
    condition = "TOKEN_ENDPOINT_UNREACHABLE" if failure.code in _PASSES else "TOKEN_REFUSED"
    return error(
        condition,
        f"the token endpoint answered with HTTP status {failure.code}{said and ': ' + said}",
        endpoint=url,
    )


def _explanation(body: IO[bytes]) -> str:
    """`error` and `error_description` of RFC 6749, 5.2, as far as they are printable."""
    try:
        document = json.loads(body.read(_ANSWER_BYTES_MAX))
        parts = [str(document[name]) for name in ("error", "error_description") if name in document]
    except (OSError, ValueError, TypeError, RecursionError):
        return ""
    return "".join(each for each in ", ".join(parts) if each.isprintable())


def _checked(value: UnseenText, source: str) -> UnseenText:
    if not _TOKEN.fullmatch(value):
        raise error("TOKEN_REFUSED", "what was given is no bearer token", endpoint=source)
    return value
