"""The client side of each SASL mechanism, which computes the client's proofs and checks the
broker's: kafka-python's own for PLAIN, SCRAM, OAUTHBEARER and AWS_MSK_IAM, and its GSSAPI with
credentials of our choice.

kafka-python's warning of credentials in the clear is held back: `keyrange.kafka.security.exposure`
gives one, which names the option.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient

# RFC 7677, 4, and Java's client. A broker of somebody else's asks for one, and tries passwords on
# what it is answered.
_SCRAM_ITERATIONS_MIN: Final = 4096


def new_client(mechanism: str, config: dict[str, Any]) -> Any:
    """kafka-python's client side of a SASL mechanism: auth_bytes, receive, is_done."""
    logging.getLogger("kafka.net.sasl").setLevel(logging.ERROR)
    if mechanism == "GSSAPI":
        return _Kerberos(**config)
    if mechanism.startswith("SCRAM"):
        # RFC 5802, 5.1: commas and equal signs part the message's fields.
        name = config["sasl_plain_username"].replace("=", "=3D").replace(",", "=2C")
        return _Scram(sasl_mechanism=mechanism, **config | {"sasl_plain_username": name})
    client = get_sasl_mechanism(mechanism)(sasl_mechanism=mechanism, **config)
    if mechanism == "AWS_MSK_IAM":
        made = partial(_amazon_session, client._boto_session_cls, config["profile"])
        client._boto_session_cls = made
    return client


def _amazon_session(session_class: Any, profile: str) -> Any:
    session = session_class(profile=profile or None)
    if session.get_credentials() is None:
        raise LookupError(
            "botocore finds no AWS credentials: not in the environment, a profile or a role"
        )
    return session


class _Scram(SaslMechanismScram):  # type: ignore[misc]
    """kafka-python's SCRAM, which makes no proof of few iterations."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        named = (config[f"sasl_plain_{each}"] for each in ("username", "password"))
        self._scram_client = _ScramClient(*named, config["sasl_mechanism"])


class _ScramClient(ScramClient):  # type: ignore[misc]
    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if iterations < _SCRAM_ITERATIONS_MIN:
            raise ValueError(
                f"the broker asks for {iterations} iterations, and {_SCRAM_ITERATIONS_MIN} are the "
                "fewest that keep the password from being guessed"
            )
        super().create_salted_password(salt, iterations)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """What kafka-python's OAUTHBEARER asks for its token and its extensions (KIP-342)."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._token, self._extensions = token, extensions

    def token(self) -> str:
        return self._token

    def extensions(self) -> Mapping[str, str]:
        return self._extensions


class _Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """kafka-python's GSSAPI with a principal and a credential store of its own."""

    def __init__(self, **config: Any) -> None:
        import gssapi

        self._is_done = self._is_authenticated = False
        self.auth_id = f"{config['sasl_kerberos_service_name']}@{config['host']}"
        self.gssapi_name = gssapi.Name(
            self.auth_id, gssapi.NameType.hostbased_service
        ).canonicalize(gssapi.MechType.kerberos)
        principal, store = config["principal"], config["ticket_store"]
        credentials = gssapi.Credentials(
            name=gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None,
            usage="initiate",
            store=store or None,
        )
        self._client_ctx = gssapi.SecurityContext(
            name=self.gssapi_name, creds=credentials, usage="initiate"
        )
        self._next_token = self._client_ctx.step(None)
