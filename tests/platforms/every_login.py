"""A broker that people log in to in every way, with who grants tickets, tokens and certificates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from brokers.certificates import Identity, issue
from brokers.logins import PLAIN, SCRAM, login_options
from brokers.real_broker import USER, Topics
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from platforms.kdc import REALM, SERVICE, Kdc, by_key_tab
from platforms.signed_tokens import Provider, checking_tokens
from project.unseen import MARK

WAYS = ("GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SSL")
# Sessions of the mechanisms that have short ones, beside those that end with their tokens.
SESSIONS_MS = {"gssapi": 4000, "scram-sha-512": 4000, "scram-sha-256": 600}
USER_PASSWORD = f"{MARK}-user"
KEY_PASSWORD = f"{MARK}-key"


@dataclass(frozen=True)
class EveryLogin:
    """The broker, and what logs in to it."""

    topics: Topics
    kdc: Kdc
    reader: Path
    provider: Provider
    client: Identity

    def options(self, way: str) -> dict[str, str]:
        """What a client needs to log in, as Kafka's properties."""
        if way == "GSSAPI":
            return self.with_ticket(by_key_tab(self.reader, "reader"))
        if way == "OAUTHBEARER":
            return self.provider.options(self.topics)
        if way == "SSL":
            return self.with_certificate(self.client)
        return self.with_password(way, USER_PASSWORD)

    def granted(self, way: str) -> int:
        """How many tickets or tokens there were, for ways that have them."""
        if way == "GSSAPI":
            return self.kdc.logins("reader")
        return len(self.provider.granted) if way == "OAUTHBEARER" else 0

    def with_ticket(self, jaas: str) -> dict[str, str]:
        return login_options(self.topics, "GSSAPI", jaas)

    def with_password(self, mechanism: str, password: str) -> dict[str, str]:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        jaas = f'{module}username="{USER}" password="{password}";'
        return login_options(self.topics, mechanism, jaas, tls=True)

    def with_certificate(self, identity: Identity) -> dict[str, str]:
        tls = self.topics.cluster.tls
        assert tls is not None
        return {
            "bootstrap.servers": self.topics.cluster.bootstrap_servers_of("SSL"),
            "security.protocol": "SSL",
            "ssl.truststore.location": str(tls.ca),
            "ssl.keystore.certificate.chain": identity.pem,
            "ssl.keystore.key": identity.key_pem(KEY_PASSWORD),
            "ssl.key.password": KEY_PASSWORD,
        }


@contextmanager
def every_login(
    home: Path, kdc: Kdc, reader: Path, provider: Provider, clients: tuple[Identity, Path]
) -> Iterator[EveryLogin]:
    """A broker with GSSAPI without TLS, tokens and SCRAM with it, and client certificates."""
    checks, allowed = checking_tokens(provider.signer, home / "keys.json")
    key_tab = kdc.add(SERVICE)
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{key_tab}" principal="{SERVICE}@{REALM}";'
    )
    kerberos, tls = "listener.name.sasl_plaintext", "listener.name.sasl_ssl"
    settings = SecuredSettings(
        listeners=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        users={USER: USER_PASSWORD},
        properties={
            **checks,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,GSSAPI",
            f"{kerberos}.sasl.enabled.mechanisms": "GSSAPI",
            f"{kerberos}.gssapi.sasl.jaas.config": jaas,
            "sasl.kerberos.service.name": "kafka",
            f"{tls}.sasl.enabled.mechanisms": ("PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
            "connections.max.reauth.ms": "3600000",
            **{
                f"{kerberos if name == 'gssapi' else tls}.{name}.connections.max.reauth.ms": f"{ms}"
                for name, ms in SESSIONS_MS.items()
            },
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.ssl.ssl.truststore.type": "PEM",
            "listener.name.ssl.ssl.truststore.location": str(clients[1]),
        },
        jvm_options=(allowed, f"-Djava.security.krb5.conf={kdc.conf}"),
    )
    with SecuredBroker(settings) as broker:
        made = Topics(broker)
        provider.grant()
        yield EveryLogin(made, kdc, reader, provider, issue("client", clients[0]))
        made.close()
