"""Options that Spark's connector takes without a word, and that are rarely meant."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

import keyrange
from keyrange.guard.log_dirs import LogDirReader
from keyrange.kafka.security.exposure import exposures
from keyrange.options import SourceOptions, parse_options
from keyrange.source.batch import KeyRangeBatchReader
from keyrange.source.stream import KeyRangeStreamReader

NO_CHECK = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "reader",
    "sasl.password": "s3cret-word",
}


def options(kafka: Mapping[str, str], servers: str = "broker.example:9092") -> SourceOptions:
    named = {"bootstrap.servers": servers, **kafka}
    given = {f"kafka.{name}": value for name, value in named.items()}
    return parse_options({**given, "subscribe": "t"})


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        (NO_CHECK, ["kafka.ssl.endpoint.identification.algorithm"]),
        ({**NO_CHECK, "security.protocol": "PLAINTEXT"}, []),
        ({"security.protocol": "SSL"}, []),
        ({**NO_CHECK, "ssl.endpoint.identification.algorithm": "https"}, []),
        (PLAIN, ["kafka.security.protocol"]),
        ({**PLAIN, "sasl.mechanism": "SCRAM-SHA-512"}, ["kafka.security.protocol"]),
        ({**PLAIN, "security.protocol": "SASL_SSL"}, []),
        (
            {**PLAIN, **NO_CHECK, "security.protocol": "SASL_SSL"},
            ["kafka.ssl.endpoint.identification.algorithm"],
        ),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"}, []),
        ({}, []),
        # What was given for a login, or for TLS, and is not used.
        ({**PLAIN, "security.protocol": "PLAINTEXT"}, ["kafka.security.protocol"]),
        ({**PLAIN, "security.protocol": "SSL"}, ["kafka.security.protocol"]),
        ({"ssl.truststore.location": "/ca.pem"}, ["kafka.security.protocol"]),
        ({"ssl.keystore.location": "/me.p12"}, ["kafka.security.protocol"]),
        ({"ssl.ca.location": "/ca.pem", "security.protocol": "SSL"}, []),
        ({"ssl.ca.location": "/ca.pem", **PLAIN}, ["kafka.security.protocol"] * 2),
    ],
)
def test_what_is_said(kafka: Mapping[str, str], said: list[str]) -> None:
    found = list(exposures(options(kafka).client))

    assert [text.split("'")[1] for text in found] == said
    assert all("broker.example" in text and "et it to " in text for text in found)
    assert "s3cret-word" not in "".join(found)


def test_tokens_too() -> None:
    kafka = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://sso.example/token",
        "sasl.oauthbearer.client.credentials.client.id": "a",
        "sasl.oauthbearer.client.credentials.client.secret": "b",
    }
    assert len(list(exposures(options(kafka).client))) == 1


@pytest.mark.parametrize("servers", ["localhost:1", "127.0.0.1:1,127.0.0.2:2", "[::1]:1"])
def test_a_broker_on_this_machine_is_near_enough(servers: str) -> None:
    assert list(exposures(options(PLAIN, servers).client)) == []
    assert list(exposures(options(NO_CHECK, servers).client)) == []
    assert len(list(exposures(options(PLAIN, f"{servers},other:9").client))) == 1


def test_the_cluster_of_the_volumes_is_named_by_its_own_option() -> None:
    [text] = exposures(options(PLAIN).client, "kafka.admin.")
    assert text.startswith("option 'kafka.admin.security.protocol'")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and each.name == "keyrange.kafka.security.exposure"
    ]


def test_a_query_says_it_once_a_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are parsed many times, and each task makes connections."""
    parsed = options(PLAIN)
    assert warnings(caplog) == []
    reader = KeyRangeStreamReader(parsed)
    reader._opened()
    reader._opened()
    assert len(warnings(caplog)) == 1
    reader.stop()

    caplog.clear()
    monkeypatch.setattr("keyrange.kafka.subscribed_topics.retrying", lambda *_: [])
    KeyRangeBatchReader(parsed).partitions()
    assert len(warnings(caplog)) == 1


def test_a_consumer_says_it_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    given = {f"kafka.{name}": value for name, value in PLAIN.items()}
    table = {"commitTable": str(tmp_path / "commits"), "kafka.group.id": "g"}
    keyrange.Consumer({"kafka.bootstrap.servers": "broker.example:9092", **given, **table})
    assert len(warnings(caplog)) == 1


def test_the_guards_cluster_is_looked_at_too(caplog: pytest.LogCaptureFixture) -> None:
    LogDirReader(options(PLAIN).client).close()
    [text] = warnings(caplog)
    assert text.startswith("option 'kafka.admin.security.protocol'")
