"""Logins, sessions that end (KIP-368) and Java's stores, against a real broker that wants them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from brokers.certificates import KEY_PASSWORD, STORE_PASSWORD, keytool
from brokers.logins import (
    COUNT,
    OAUTH,
    PLAIN,
    Watched,
    create_numbers,
    ends,
    for_spark,
    login_options,
    parsed,
    read_slowly,
)
from brokers.real_broker import PASSWORD, USER, Record, Topics, wait_until
from brokers.secured_brokers import SecuredBroker, SecuredSettings
from brokers.token_endpoint import Endpoint, token_endpoint
from keyrange.cli.main import app
from keyrange.errors import CATALOGUE, DeniedError
from keyrange.kafka.security import tokens
from project.forms import usually
from project.unseen import MARK
from samples.checkpoints import commit_batch, make_checkpoint, plan_batch
from spark.sources import Collected, batch, stream

LIFETIME_S = 3.0
UNSECURED = OAUTH + 'unsecuredLoginStringClaim_sub="reader";'
CLIENT = OAUTH + 'clientId="reader" clientSecret="hunter2";'


@pytest.fixture(scope="module")
def strict() -> Iterator[Topics]:
    """A broker whose sessions are short, that takes tokens, and whose SSL asks for certificates."""
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    properties = {
        "sasl.enabled.mechanisms": mechanisms,
        "connections.max.reauth.ms": str(int(LIFETIME_S * 1000)),
        "listener.name.ssl.ssl.client.auth": "required",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        properties[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = (
            OAUTH + 'unsecuredLoginStringClaim_sub="broker";'
        )
    settings = SecuredSettings(
        listeners=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        users={USER: PASSWORD},
        mutual_tls=True,
        properties=properties,
    )
    with SecuredBroker(settings) as broker:
        made = Topics(broker)
        yield made
        made.close()


@pytest.fixture(autouse=True)
def _no_kept_tokens() -> Iterator[None]:
    tokens.forget()
    yield
    tokens.forget()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Grants tokens of one session's length, which the broker takes: they need no signature."""

    def grant() -> tuple[int, bytes]:
        claims = {"unsecuredLoginStringClaim_sub": "reader", "unsecuredLoginLifetimeSeconds": "3"}
        token = tokens.unsecured_token(claims, time.time())
        return 200, b'{"access_token": "%s", "expires_in": 3}' % token.encode()

    with token_endpoint() as started:
        started.answer = grant
        yield started


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", PLAIN + f'username="{USER}" password="{PASSWORD}";'),
        pytest.param("OAUTHBEARER", UNSECURED, marks=pytest.mark.slow),
    ],
)
def test_reading_for_longer_than_a_session(
    strict: Topics, mechanism: str, jaas: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that nears its end gives way to another between two requests: nothing is lost,
    neither records nor a connection."""
    topic = create_numbers(strict, "sessions")
    client = parsed(login_options(strict, mechanism, jaas) | {"max.partition.fetch.bytes": "40000"})
    watched = Watched(monkeypatch)

    assert read_slowly(client, topic, COUNT, seconds=3 * LIFETIME_S) == list(range(COUNT))

    replaced = watched.made - watched.lost - 2
    assert replaced >= 2, (watched.made, watched.lost)


def test_a_stream_outlives_its_sessions(
    spark: SparkSession, strict: Topics, endpoint: Endpoint, tmp_path: Path
) -> None:
    """The planning process keeps one connection; its tokens end with its sessions."""
    topic = strict.create_topic("stream")
    url = {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    given = for_spark(login_options(strict, "OAUTHBEARER", "kafkashaded." + CLIENT, tls=True) | url)
    collected = Collected()
    query = (
        stream(spark, strict, topic, startingOffsets="earliest", **given)
        .writeStream.foreachBatch(collected)
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    sent: list[bytes] = []

    def outlived() -> bool:
        """A record for every half of a session, until a third token was asked for."""
        sent.append(b"%d" % len(sent))
        strict.produce(topic, [sent[-1]])
        time.sleep(LIFETIME_S / 2)
        return query.exception() is not None or (len(sent) >= 6 and len(endpoint.requests) >= 3)

    try:
        wait_until(outlived)
        wait_until(lambda: query.exception() is not None or len(collected.values) >= len(sent))
    finally:
        query.stop()

    assert query.exception() is None
    assert collected.values == sent


def test_a_token_that_the_broker_refuses(strict: Topics, endpoint: Endpoint) -> None:
    """It is not kept: the next connection asks for another."""
    topic = strict.create_topic("refused")
    client = parsed(
        login_options(strict, "OAUTHBEARER", CLIENT)
        | {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    )
    good = endpoint.answer
    old = tokens.unsecured_token({"unsecuredLoginStringClaim_sub": "reader"}, time.time() - 7200)
    endpoint.grant(access_token=old, expires_in=3600)
    with pytest.raises(DeniedError, match=r"\[SASL_AUTHENTICATION_FAILED\].*user=reader") as caught:
        ends(client, topic)
    assert old not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    endpoint.answer = good
    assert ends(client, topic) == 0


def test_a_client_that_the_endpoint_refuses(strict: Topics, endpoint: Endpoint) -> None:
    endpoint.answer = lambda: (401, b'{"error": "invalid_client"}')
    client = parsed(
        login_options(strict, "OAUTHBEARER", CLIENT)
        | {"sasl.oauthbearer.token.endpoint.url": endpoint.url}
    )
    with pytest.raises(DeniedError, match="invalid_client") as caught:
        ends(client, "none")
    assert str(caught.value).startswith("[TOKEN_REFUSED]")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_login_that_is_refused_ends_watch_with_1(
    strict: Topics, tmp_path: Path, output: str
) -> None:
    """With the cause and what mends it, for each thing that asks the cluster."""
    home = make_checkpoint(tmp_path / "checkpoint")
    plan_batch(home, 0, 1_000, {"0": 100})
    commit_batch(home, 0)
    wrong = login_options(strict, "PLAIN", PLAIN + f'username="{USER}" password="{MARK}";')
    named = for_spark(wrong) | {f"kafka.admin.{name}": value for name, value in wrong.items()}
    given = [part for name, value in named.items() for part in ("--option", f"{name}={value}")]
    result = CliRunner().invoke(app, ["watch", str(home), "--once", "--output", output, *given])
    assert result.exit_code == 1, result.output
    assert result.stdout.count("[SASL_AUTHENTICATION_FAILED]") == 2
    remedy = CATALOGUE["SASL_AUTHENTICATION_FAILED"].remedy
    assert result.stdout.count(f"To mend it: {remedy}.") == 2
    assert MARK not in result.output


def test_references_reach_the_executors_as_such(
    spark: SparkSession, strict: Topics, tmp_path: Path
) -> None:
    """Files, as Kubernetes mounts secrets: looked up by each process that connects."""
    topic = strict.create_topic("references")
    strict.produce(topic, [Record(b"%d" % n) for n in range(100)])
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "jaas").write_text(
        f'{PLAIN} username="{USER}" password="file:{tmp_path}/password";'
    )
    given = for_spark(login_options(strict, "PLAIN", f"file:{tmp_path}/jaas", tls=True))
    frame = batch(spark, strict, topic, **given)
    assert frame.count() == 100

    (tmp_path / "password").write_text("not-" + PASSWORD)
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
        batch(spark, strict, topic, **given).count()
    assert PASSWORD not in str(caught.value)
    (tmp_path / "password").unlink()
    with pytest.raises(Exception, match="SECRET_NOT_FOUND") as caught:
        batch(spark, strict, topic, **given).count()
    assert f"file:{tmp_path}/password" in str(caught.value)


@pytest.fixture(scope="module")
def java_stores(strict: Topics, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's certificate and the client's, as Java's users hold them."""
    tls = strict.cluster.tls
    assert tls is not None
    assert tls.client is not None
    directory = tmp_path_factory.mktemp("stores")
    (directory / "key.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client",
            load_pem_private_key(tls.client.key.read_bytes(), None),  # type: ignore[arg-type]
            x509.load_pem_x509_certificate(tls.client.certificate.read_bytes()),
            None,
            BestAvailableEncryption(STORE_PASSWORD.encode()),
        )
    )
    keytool("-importkeystore", "-srckeystore", str(directory / "key.p12"), "-srcstorepass",
            STORE_PASSWORD, "-destkeystore", str(directory / "key.jks"), "-deststoretype", "JKS",
            "-deststorepass", STORE_PASSWORD, "-srcalias", "client",
            "-destkeypass", KEY_PASSWORD)  # fmt: skip
    for kind, ending in (("JKS", "jks"), ("PKCS12", "p12")):
        keytool("-importcert", "-noprompt", "-alias", "broker", "-file", str(tls.ca), "-keystore",
                str(directory / f"trust.{ending}"), "-storetype", kind,
                "-storepass", STORE_PASSWORD)  # fmt: skip
    return directory


@pytest.mark.parametrize("kind", usually("jks", "p12"))
def test_mutual_tls_with_javas_stores(
    spark: SparkSession, strict: Topics, java_stores: Path, kind: str
) -> None:
    topic = strict.create_topic("mutual")
    strict.produce(topic, [b"x"] * 3)
    given = {
        "bootstrap.servers": strict.cluster.bootstrap_servers_of("SSL"),
        "security.protocol": "SSL",
        "ssl.truststore.location": str(java_stores / f"trust.{kind}"),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    with pytest.raises(Exception, match=r"TLS|client certificate"):
        ends(parsed(given), topic)
    given |= {
        "ssl.keystore.location": str(java_stores / f"key.{kind}"),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": KEY_PASSWORD if kind == "jks" else STORE_PASSWORD,
    }
    assert batch(spark, strict, topic, **for_spark(given)).count() == 3
