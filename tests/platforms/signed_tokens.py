"""Tokens with a signature, as an identity provider makes and grants them, and the keys by which a
broker checks them."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from brokers.logins import OAUTH, login_options, parsed
from brokers.real_broker import Topics
from brokers.token_endpoint import Endpoint
from keyrange.options.kafka_properties import ClientSettings
from project.unseen import MARK

# Of each token that a provider grants.
TOKEN_S = 3
CLIENT_SECRET = f"{MARK}-oauth"
_CHECKS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


class Signer:
    """One RSA key of a provider."""

    def __init__(self, name: str = "one") -> None:
        self._name = name
        self._key = rsa.generate_private_key(65537, 2048)

    def token(self, lifetime_s: float, subject: str = "reader") -> str:
        """A JWT of RS256 that is valid from now on, in whole seconds."""
        now = int(time.time())
        head = {"alg": "RS256", "kid": self._name, "typ": "JWT"}
        claims = {"sub": subject, "iat": now, "exp": now + lifetime_s, "scope": "kafka"}
        signed = f"{_encoded(head)}.{_encoded(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64url(signature)}"

    def key_set(self) -> str:
        """The public key as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._name}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]})


@dataclass(frozen=True)
class Provider:
    """Who signs tokens, where they are asked for, and the authority of its certificate."""

    signer: Signer
    endpoint: Endpoint
    jaas: str
    authority: Path
    # In their order.
    granted: list[str] = field(default_factory=list)

    def grant(self) -> None:
        """A new token for each request."""

        def answer() -> tuple[int, bytes]:
            token = self.signer.token(TOKEN_S)
            self.granted.append(token)
            return 200, json.dumps({"access_token": token, "expires_in": TOKEN_S}).encode()

        self.endpoint.answer = answer

    def client(self, topics: Topics, **given: str) -> ClientSettings:
        return parsed(self.options(topics) | {n.replace("_", "."): v for n, v in given.items()})

    def options(self, topics: Topics) -> dict[str, str]:
        url = {"sasl.oauthbearer.token.endpoint.url": self.endpoint.url}
        return login_options(topics, "OAUTHBEARER", self.jaas, tls=True) | url


def checking_tokens(signer: Signer, keys: Path) -> tuple[dict[str, str], str]:
    """Properties and the JVM option of a broker whose SASL_SSL takes what this signer signs; its
    public key is put into the file `keys`."""
    keys.write_text(signer.key_set())
    prefix = "listener.name.sasl_ssl.oauthbearer.sasl."
    properties = {
        f"{prefix}jaas.config": f"{OAUTH};",
        f"{prefix}server.callback.handler.class": _CHECKS,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    return properties, f"{_ALLOWED}{keys.as_uri()}"


def _encoded(document: dict[str, Any]) -> str:
    return _base64url(json.dumps(document).encode())


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
