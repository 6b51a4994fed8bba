"""The `kafka.*` properties that secure a connection: sasl.*, ssl.* and security.*.

Java's names, and librdkafka's for credentials and PEM files. `kafka_properties` holds the others,
and the checks of one property against another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from keyrange.options.allowlist import check_path
from keyrange.options.secrets import NO_SECRET, Secret, parse_secret, referred_path
from keyrange.options.value_parsers import (
    Property,
    boolean,
    int_between,
    local_path,
    one_of,
    prop,
    text,
)

MECHANISMS: Final = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "GSSAPI",
    "AWS_MSK_IAM",
)

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


def _hostname_check(value: str) -> bool:
    if value not in ("https", ""):
        raise ValueError("must be 'https', or empty to switch the check of the host name off")
    return value == "https"


def _token_endpoint(value: str) -> str:
    """https, http to this machine, or a file that something else keeps fresh."""
    url = urlsplit(value)
    if url.username or url.password or url.query or url.fragment:
        raise ValueError("must be an address without user, password, query and fragment")
    host = url.hostname or ""
    secured = url.scheme == "https" and host
    if not secured and not (url.scheme == "http" and is_loopback(host)) and url.scheme != "file":
        raise ValueError(
            "must be https://..., file:///... of a token, or http:// on the machine's own loopback"
        )
    if url.scheme == "file":
        check_path(referred_path(value))
    return value


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is this machine and nothing else."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _tls_versions(value: str) -> tuple[str, ...]:
    """Older ones may be named, as old configurations do; they are never spoken."""
    named = {part.strip() for part in value.split(",")}
    if not named <= {"TLSv1", "TLSv1.1", *TLS_VERSIONS}:
        raise ValueError(f"must be a list of {', '.join(TLS_VERSIONS)}")
    spoken = tuple(version for version in TLS_VERSIONS if version in named)
    if not spoken:
        raise ValueError(f"must name one of {', '.join(TLS_VERSIONS)}: older ones are not safe")
    return spoken


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0.5 <= share <= 1:
        raise ValueError("must be a number from 0.5 to 1.0")
    return share


def _class_among(*names: str) -> Callable[[str], str]:
    """A Java class whose work is done here anyway; a platform may have shaded its name."""

    def parse(value: str) -> str:
        if value and not any(f".{value}".endswith(f".{name}") for name in names):
            raise ValueError(
                f"must be empty or one of {', '.join(names)}: Java classes are not run"
            )
        return value

    return parse


_TICKETS = "a ticket is taken from the cache or the keytab when a connection is made"
_NO_REFRESH = "a token that is due is replaced when the next connection is made"
_BROKERS_CHECK = "the broker checks tokens"
_NO_ASSERTION = "only the client-credentials grant is spoken, with clientId and clientSecret"
_STORE_TYPE = one_of("PEM", "PKCS12", "JKS", upper=True, shown=False)
POSITIVE = int_between(1, 2**31 - 1)
_OAUTH = "org.apache.kafka.common.security.oauthbearer."


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Whom a connection over TLS trusts, and its own certificate. Plain data, hashable."""

    ssl_truststore_location: str = prop(
        "ssl.truststore.location", "", local_path, also="ssl.ca.location"
    )
    ssl_truststore_type: str = prop("ssl.truststore.type", "", _STORE_TYPE)
    ssl_truststore_password: Secret = prop("ssl.truststore.password", NO_SECRET, parse_secret)
    ssl_truststore_certificates: Secret = prop(
        "ssl.truststore.certificates", NO_SECRET, parse_secret
    )
    ssl_keystore_location: str = prop(
        "ssl.keystore.location", "", local_path, also="ssl.certificate.location"
    )
    ssl_keystore_type: str = prop("ssl.keystore.type", "", _STORE_TYPE)
    ssl_keystore_password: Secret = prop("ssl.keystore.password", NO_SECRET, parse_secret)
    ssl_keystore_certificate_chain: Secret = prop(
        "ssl.keystore.certificate.chain", NO_SECRET, parse_secret
    )
    ssl_keystore_key: Secret = prop("ssl.keystore.key", NO_SECRET, parse_secret)
    ssl_key_location: str = prop("ssl.key.location", "", local_path)
    ssl_key_password: Secret = prop("ssl.key.password", NO_SECRET, parse_secret)
    ssl_enabled_protocols: tuple[str, ...] = prop(
        "ssl.enabled.protocols", TLS_VERSIONS, _tls_versions
    )
    ssl_check_hostname: bool = prop("ssl.endpoint.identification.algorithm", True, _hostname_check)

    @property
    def has_certificate(self) -> bool:
        """Whether the client has a certificate of its own, for mutual TLS."""
        return bool(self.ssl_keystore_location or self.ssl_keystore_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings(TlsSettings):
    """How a connection to a broker is secured. Plain data, hashable."""

    security_protocol: str = prop(
        "security.protocol",
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", upper=True, shown=False),
    )
    sasl_mechanism: str = prop(
        "sasl.mechanism", "GSSAPI", one_of(*MECHANISMS, upper=True, shown=False)
    )
    sasl_jaas: Secret = prop("sasl.jaas.config", NO_SECRET, parse_secret)
    sasl_username: Secret = prop("sasl.username", NO_SECRET, parse_secret)
    sasl_password: Secret = prop("sasl.password", NO_SECRET, parse_secret)
    kerberos_service_name: str = prop("sasl.kerberos.service.name", "", text)
    oauth_token_endpoint_url: str = prop("sasl.oauthbearer.token.endpoint.url", "", _token_endpoint)
    oauth_client_id: Secret = prop(
        "sasl.oauthbearer.client.credentials.client.id", NO_SECRET, parse_secret
    )
    oauth_client_secret: Secret = prop(
        "sasl.oauthbearer.client.credentials.client.secret", NO_SECRET, parse_secret
    )
    oauth_scope: str = prop("sasl.oauthbearer.scope", "", text)
    oauth_header_urlencode: bool = prop("sasl.oauthbearer.header.urlencode", False, boolean)
    login_timeout_ms: int = prop("sasl.login.read.timeout.ms", 10_000, POSITIVE)
    login_refresh_window_factor: float = prop("sasl.login.refresh.window.factor", 0.8, _share)


_IGNORED = (
    Property("ssl.protocol", ignored="see ssl.enabled.protocols; by default TLS 1.2 or newer"),
    Property(
        "sasl.login.callback.handler.class",
        parse=_class_among(
            f"{_OAUTH}OAuthBearerLoginCallbackHandler",
            f"{_OAUTH}secured.OAuthBearerLoginCallbackHandler",
            f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
        ),
        ignored="tokens come from the token endpoint, or are made where they are unsecured",
    ),
    Property(
        "sasl.client.callback.handler.class",
        parse=_class_among("software.amazon.msk.auth.iam.IAMClientCallbackHandler"),
        ignored="AWS_MSK_IAM signs with the credentials that botocore finds",
    ),
    Property(
        "sasl.oauthbearer.jwt.retriever.class",
        parse=_class_among(
            f"{_OAUTH}DefaultJwtRetriever",
            f"{_OAUTH}ClientCredentialsJwtRetriever",
            f"{_OAUTH}FileJwtRetriever",
        ),
        ignored="the token endpoint's address says which it is",
    ),
    Property("sasl.kerberos.kinit.cmd", ignored=_TICKETS),
    Property("sasl.kerberos.min.time.before.relogin", ignored=_TICKETS),
    Property("sasl.kerberos.ticket.renew.jitter", ignored=_TICKETS),
    Property("sasl.kerberos.ticket.renew.window.factor", ignored=_TICKETS),
    Property("sasl.login.connect.timeout.ms", ignored="sasl.login.read.timeout.ms bounds it too"),
    Property("sasl.login.refresh.buffer.seconds", ignored=_NO_REFRESH),
    Property("sasl.login.refresh.min.period.seconds", ignored=_NO_REFRESH),
    Property("sasl.login.refresh.window.jitter", ignored=_NO_REFRESH),
    Property("sasl.login.retry.backoff.ms", ignored="retry.backoff.ms paces it"),
    Property("sasl.login.retry.backoff.max.ms", ignored="retry.backoff.max.ms paces it"),
    Property("sasl.oauthbearer.clock.skew.seconds", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.expected.audience", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.expected.issuer", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.jwks.endpoint.refresh.ms", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.jwks.endpoint.url", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.jwt.validator.class", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.scope.claim.name", ignored=_BROKERS_CHECK),
    Property("sasl.oauthbearer.sub.claim.name", ignored=_BROKERS_CHECK),
    Property("ssl.secure.random.implementation", ignored="OpenSSL's is used"),
)

_REFUSED = (
    Property("config.providers", refused="write env:NAME or file:PATH instead of the secret"),
    Property("sasl.login.class", refused="it is a Java class"),
    *(
        Property(f"sasl.oauthbearer.assertion.{name}", refused=_NO_ASSERTION)
        for name in (
            "algorithm",
            "claim.aud",
            "claim.exp.seconds",
            "claim.iss",
            "claim.jti.include",
            "claim.nbf.seconds",
            "claim.sub",
            "file",
            "private.key.file",
            "private.key.passphrase",
            "template.file",
        )
    ),
    Property("ssl.provider", refused="OpenSSL is used"),
    Property("ssl.cipher.suites", refused="OpenSSL's defaults are used"),
    Property("ssl.keymanager.algorithm", refused="OpenSSL is used"),
    Property("ssl.trustmanager.algorithm", refused="OpenSSL is used"),
    Property("ssl.engine.factory.class", refused="OpenSSL is used"),
    Property("security.providers", refused="OpenSSL is used"),
)

UNUSED_SECURITY_PROPERTIES: Final = (*_IGNORED, *_REFUSED)
