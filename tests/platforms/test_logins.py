"""Tokens that a broker checks, from an endpoint with TLS; names and passwords of every kind; and
client certificates that a broker refuses."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, UserScramCredentialUpsertion

from brokers.certificates import Identity, issue
from brokers.logins import COUNT, OAUTH, SCRAM, ends, for_spark, login_options, parsed, read_slowly
from brokers.real_broker import PASSWORD, USER, Topics, client_config
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from keyrange.errors import DeniedError, UnavailableError
from keyrange.kafka.security import tokens
from keyrange.options.kafka_properties import ClientSettings
from platforms.secured_stream import SLOWLY, run_streams
from platforms.signed_tokens import CLIENT_SECRET, TOKEN_S, Provider, Signer, checking_tokens

DAY = datetime.timedelta(days=1)


@pytest.fixture(autouse=True)
def _from_the_start(provider: Provider) -> Iterator[None]:
    tokens.forget()
    provider.grant()
    provider.endpoint.requests.clear()
    yield
    tokens.forget()


@pytest.fixture(scope="module")
def topics(
    provider: Provider, clients: tuple[Identity, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Topics]:
    """A broker that checks signatures and certificates, and ends sessions with their tokens."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    checks, allowed = checking_tokens(provider.signer, keys)
    tls = "listener.name.ssl.ssl."
    settings = SecuredSettings(
        listeners=("SSL", "SASL_SSL"),
        users={USER: PASSWORD},
        properties={
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "connections.max.reauth.ms": "3600000",
            **checks,
            f"{tls}client.auth": "required",
            f"{tls}truststore.type": "PEM",
            f"{tls}truststore.location": str(clients[1]),
        },
        jvm_options=(allowed,),
    )
    with SecuredBroker(settings) as broker:
        made = Topics(broker)
        yield made
        made.close()


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
    assert CLIENT_SECRET not in str(failure.value)
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
        patch.setenv("SECRET_OF_DRIVER", CLIENT_SECRET)
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
    assert CLIENT_SECRET not in text + json.dumps(results)


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
