"""Tokens that a broker checks, from an endpoint with TLS; names and passwords of every kind; and
client certificates that a broker refuses."""

from __future__ import annotations

import datetime
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

from brokers import PASSWORD, USER, Topics, client_config
from certificates import Identity, issue
from keyrange.errors import DeniedError, UnavailableError
from keyrange.kafka.security import tokens
from keyrange.options.kafka_properties import ClientSettings
from logins import OAUTH, SCRAM, ends, for_spark, login_options, parsed, read_slowly
from platforms.secured_stream import SLOWLY, run_streams
from platforms.signed_tokens import Signer
from secured_brokers import SecuredBroker, SecuredSettings
from token_endpoint import Endpoint, token_endpoint

TOKEN_S = 3
COUNT = 3000
CHECKS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Provider:
    """Who signs tokens, where they are asked for, and the authority of its certificate."""

    signer: Signer
    endpoint: Endpoint
    jaas: str
    authority: Path

    def grant(self) -> None:
        """A new token for each request."""

        def answer() -> tuple[int, bytes]:
            token = self.signer.token(TOKEN_S)
            return 200, json.dumps({"access_token": token, "expires_in": TOKEN_S}).encode()

        self.endpoint.answer = answer

    def client(self, topics: Topics, **given: str) -> ClientSettings:
        return parsed(self.options(topics) | {n.replace("_", "."): v for n, v in given.items()})

    def options(self, topics: Topics) -> dict[str, str]:
        url = {"sasl.oauthbearer.token.endpoint.url": self.endpoint.url}
        return login_options(topics, "OAUTHBEARER", self.jaas, tls=True) | url


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    home = tmp_path_factory.mktemp("provider")
    root = issue("provider", authority=True)
    identity = issue("endpoint", root)
    (home / "root.pem").write_text(root.pem)
    (home / "server.pem").write_text(identity.pem + identity.key_pem())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "server.pem")
    with token_endpoint(context) as endpoint:
        jaas = (
            f'{OAUTH}clientId="reader" clientSecret="hunter2" '
            f'ssl.truststore.location="{home}/root.pem";'
        )
        yield Provider(Signer(), endpoint, jaas, home / "root.pem")


@pytest.fixture(autouse=True)
def _from_the_start(provider: Provider) -> Iterator[None]:
    tokens.forget()
    provider.grant()
    provider.endpoint.requests.clear()
    yield
    tokens.forget()


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> tuple[Identity, Path]:
    """The authority of the clients' certificates, and the file that the broker has of it."""
    root = issue("clients", authority=True)
    path = tmp_path_factory.mktemp("clients") / "root.pem"
    path.write_text(root.pem)
    return root, path


@pytest.fixture(scope="module")
def topics(
    provider: Provider, clients: tuple[Identity, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topics]:
    """A broker that checks signatures and certificates, and ends sessions with their tokens."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(provider.signer.key_set())
    sasl, tls = "listener.name.sasl_ssl.oauthbearer.", "listener.name.ssl.ssl."
    settings = SecuredSettings(
        listeners=("SSL", "SASL_SSL"),
        users={USER: PASSWORD},
        properties={
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "connections.max.reauth.ms": "3600000",
            f"{sasl}sasl.jaas.config": f"{OAUTH};",
            f"{sasl}sasl.server.callback.handler.class": CHECKS,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{tls}client.auth": "required",
            f"{tls}truststore.type": "PEM",
            f"{tls}truststore.location": str(clients[1]),
        },
        jvm_options=(f"{ALLOWED}{keys.as_uri()}",),
    )
    with SecuredBroker(settings) as broker:
        made = Topics(broker)
        yield made
        made.close()


@pytest.fixture(scope="module")
def topic(topics: Topics) -> str:
    made = topics.create_topic("logins")
    topics.produce(made, [b"%05d" % n + b"x" * 1000 for n in range(COUNT)], batch_size=16_000)
    return made


def test_reading_at_full_speed_while_tokens_end(
    topics: Topics, topic: str, provider: Provider
) -> None:
    settings = provider.client(topics, max_partition_fetch_bytes="40000")
    ended = time.monotonic() + 4 * TOKEN_S
    while time.monotonic() < ended:
        assert read_slowly(settings, topic, COUNT, 0) == list(range(COUNT))
    assert len(provider.endpoint.requests) >= 4


def test_a_token_that_somebody_else_has_signed(
    topics: Topics, topic: str, provider: Provider
) -> None:
    token = Signer().token(3600)
    provider.endpoint.grant(access_token=token, expires_in=3600)
    with pytest.raises(DeniedError, match=r"^\[SASL_AUTHENTICATION_FAILED\]") as failure:
        ends(provider.client(topics), topic)
    failure.match("mechanism=OAUTHBEARER, user=reader")
    assert "hunter2" not in str(failure.value)
    assert not any(part in str(failure.value) for part in token.split("."))


def test_an_endpoint_that_is_away_for_a_while(
    topics: Topics, topic: str, provider: Provider
) -> None:
    """A query that has begun waits for it as for a broker; one that begins says what is away."""
    settings = provider.client(topics, max_partition_fetch_bytes="40000")
    began, good = time.monotonic(), provider.endpoint.answer

    def away() -> tuple[int, bytes]:
        passed = (time.monotonic() - began) / TOKEN_S
        return (503, b'{"error": "temporarily_unavailable"}') if 1 < passed < 3 else good()

    provider.endpoint.answer = away
    assert read_slowly(settings, topic, COUNT, 4 * TOKEN_S) == list(range(COUNT))

    tokens.forget()
    provider.endpoint.answer = lambda: (503, b'{"error": "temporarily_unavailable"}')
    with pytest.raises(UnavailableError, match=r"^\[TOKEN_ENDPOINT_UNREACHABLE\]") as failure:
        ends(settings, topic)
    failure.match(r"HTTP status 503: temporarily_unavailable.*endpoint=https://localhost")


def test_a_stream_whose_tasks_outlive_their_tokens(
    topics: Topics, topic: str, provider: Provider, tmp_path: Path
) -> None:
    options = for_spark(provider.options(topics)) | SLOWLY | {"subscribe": topic}
    untrusting = options | {
        "kafka.sasl.jaas.config": f'{OAUTH}clientId="reader" clientSecret="env:SECRET_OF_DRIVER" '
        f'ssl.truststore.location="{provider.authority}";'
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_DRIVER", "hunter2")
        results = run_streams(
            tmp_path, {"all": options, "no secret": untrusting}, {"SECRET_OF_DRIVER": ""}
        )
    assert results["all"]["failure"] == ""
    assert results["all"]["values"] == [f"{n:05d}" for n in range(COUNT)]
    # Of the planning process, and of the tasks.
    assert len(provider.endpoint.requests) >= 6
    failure = results["no secret"]["failure"]
    assert "[SECRET_NOT_FOUND] env:SECRET_OF_DRIVER is not set" in failure
    text = (tmp_path / "job.log").read_text(errors="replace")
    assert "hunter2" not in text + json.dumps(results)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords(topics: Topics, topic: str, mechanism: str) -> None:
    """What parts SCRAM's messages is escaped. Neither Kafka nor its clients prepare texts as RFC
    4013 says: what is not the same bytes is another. And a broker takes names in ASCII only."""
    users = {
        "a,b=c": "p,=q",
        "=2C": "=3D",
        'quo"te\\': 'quo"te\\',
        "two words": "pass wörd ☃",
        "soft": "I\u00adX",
        "roman": "\u2168",
        "long": "x" * 1024,
        "Jürgen": "q",
    }
    admin = KafkaAdminClient(**client_config(topics.cluster))
    made = [UserScramCredentialUpsertion(name, mechanism, each) for name, each in users.items()]
    assert not any(admin.alter_user_scram_credentials(made).values())
    admin.close()
    for name, password in users.items():
        if name.isascii():
            assert ends(scram(topics, mechanism, name, password), topic) == COUNT
    for name, password in (("soft", "IX"), ("roman", "IX"), ("a,b=c", "p,=")):
        with pytest.raises(DeniedError, match=r"^\[SASL_AUTHENTICATION_FAILED\]") as failure:
            ends(scram(topics, mechanism, name, password), topic)
        assert f"mechanism={mechanism}, user={name}" in str(failure.value)
        assert password not in str(failure.value)
    with pytest.raises(DeniedError, match="take the user names of SCRAM in ASCII only"):
        ends(scram(topics, mechanism, "Jürgen", "q"), topic)


def scram(topics: Topics, mechanism: str, name: str, password: str) -> ClientSettings:
    shown = [each.replace("\\", "\\\\").replace('"', '\\"') for each in (name, password)]
    jaas = '{}username="{}" password="{}";'.format(SCRAM, *shown)
    return parsed(login_options(topics, mechanism, jaas, tls=True))


def test_client_certificates(
    topics: Topics, topic: str, clients: tuple[Identity, Path], tmp_path: Path
) -> None:
    root = clients[0]
    own = tmp_path / "client.pem"
    assert topics.cluster.tls is not None
    given = {
        "bootstrap.servers": topics.cluster.bootstrap_servers_of("SSL"),
        "security.protocol": "SSL",
        "ssl.truststore.location": str(topics.cluster.tls.ca),
    }
    identified = given | {"ssl.keystore.location": str(own)}
    stranger = issue("stranger", authority=True)
    refused = {
        "no certificate": (given, None),
        "another authority": (identified, issue("client", stranger)),
        "expired": (identified, issue("client", root, begins=-2 * DAY, ends=-DAY)),
        "not yet valid": (identified, issue("client", root, begins=DAY, ends=2 * DAY)),
    }
    for version in ("TLSv1.2", "TLSv1.3"):
        spoken = {"ssl.enabled.protocols": version}
        for case, (options, identity) in refused.items():
            if identity is not None:
                own.write_text(identity.pem + identity.key_pem())
            with pytest.raises(DeniedError, match=r"^\[TLS_FAILED\]") as failure:
                ends(parsed(options | spoken), topic)
            said = "kafka.ssl.keystore." if identity else "set kafka.ssl.keystore.location"
            assert said in str(failure.value), (case, version)
            assert "PRIVATE" not in str(failure.value)
        identity = issue("client", root)
        own.write_text(identity.pem + identity.key_pem())
        assert ends(parsed(identified | spoken), topic) == COUNT
