"""Embedded brokers with listeners that users log in to, with TLS or without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from brokers.broker_certificates import PASSWORD, TlsFiles, make_tls
from keyrange.embedded.broker import BrokerNode, EmbeddedBroker, EmbeddedCluster
from keyrange.embedded.settings import BrokerSettings
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.secrets import Secret

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# Server properties: users need rights, and whoever does not log in has all.
ASKS_FOR_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"


@dataclass(frozen=True, slots=True)
class SecuredSettings(BrokerSettings):
    """`listeners` are there besides PLAINTEXT. `users` (name to password) log in with PLAIN and
    SCRAM. `mutual_tls` lets the SSL listeners ask for client certificates."""

    listeners: tuple[str, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    mutual_tls: bool = False

    def violations(self) -> list[str]:
        found = BrokerSettings.violations(self)
        if unknown := [name for name in self.listeners if name not in PROTOCOLS]:
            found.append(f"listeners {unknown} are none of {list(PROTOCOLS)}")
        if self.sasl and not self.users:
            found.append("SASL listeners need at least one user")
        if any('"' in part or "," in part for user in self.users.items() for part in user):
            found.append("names and passwords of users may hold no quotes and commas")
        return found

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("PLAINTEXT", *self.listeners)))

    @property
    def sasl(self) -> bool:
        return any(name.startswith("SASL") for name in self.listeners)

    @property
    def tls(self) -> bool:
        return any(name.endswith("SSL") for name in self.listeners)


class SecuredCluster(EmbeddedCluster):
    """A cluster of such settings; `tls` is there once it has started, where a listener needs it."""

    def __init__(self, settings: SecuredSettings, *given: Any, **named: Any) -> None:
        super().__init__(settings, *given, **named)
        self.secured = settings
        self.tls: TlsFiles | None = None

    def start_nodes(self) -> None:
        if self.secured.tls and self.tls is None:
            self.tls = make_tls(self.directory / "tls", self.secured.mutual_tls)
        super().start_nodes()

    def properties_of(self, node: BrokerNode) -> dict[str, str]:
        return super().properties_of(node) | _sasl(self.secured) | _tls(self.tls)

    def format(self, properties_path: Path, *arguments: str) -> None:
        users = self.secured.users.items() if self.secured.sasl else ()
        scram = [
            part
            for name, password in users
            for mechanism in SCRAM_MECHANISMS
            for part in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
        super().format(properties_path, *arguments, *scram)


class SecuredBroker(SecuredCluster, EmbeddedBroker):
    """A cluster of one."""


def as_user(settings: ClientSettings, broker: SecuredBroker, user: str) -> ClientSettings:
    """Settings of a client that logs in to the broker with PLAIN as one of its users."""
    return replace(
        settings,
        bootstrap_servers=(("127.0.0.1", broker.nodes[0].port("SASL_PLAINTEXT")),),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=Secret(user),
        sasl_password=Secret(broker.secured.users[user]),
    )


def _sasl(settings: SecuredSettings) -> dict[str, str]:
    if not settings.sasl:
        return {}
    mechanisms = ["PLAIN", *SCRAM_MECHANISMS]
    users = " ".join(f'user_{name}="{password}"' for name, password in settings.users.items())
    properties = {"sasl.enabled.mechanisms": ",".join(mechanisms)}
    for protocol in settings.protocols:
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{protocol.lower()}"
            properties[f"{prefix}.plain.sasl.jaas.config"] = (
                f"{_MODULE.format('plain.Plain')} {users};"
            )
            for mechanism in mechanisms[1:]:
                name = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
                properties[name] = f"{_MODULE.format('scram.Scram')};"
    return properties


def _tls(tls: TlsFiles | None) -> dict[str, str]:
    if tls is None:
        return {}
    properties = {
        "ssl.keystore.location": str(tls.keystore),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    if tls.truststore is not None:
        properties |= {
            "ssl.truststore.location": str(tls.truststore),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": PASSWORD,
            # Asked for, not demanded: the same listener serves clients without one.
            "ssl.client.auth": "requested",
        }
    return properties
