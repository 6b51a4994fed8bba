"""Tokens with a signature, as an identity provider makes them, and the keys by which a broker
checks them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


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


def _encoded(document: dict[str, Any]) -> str:
    return _base64url(json.dumps(document).encode())


def _number(value: int) -> str:
    return _base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
