"""The `kafka.*` options: mapped, ignored or refused, and secrets that never show."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as Spark does with a source
from dataclasses import fields
from pathlib import Path

import pytest

from keyrange.options.kafka_properties import (
    PROPERTIES,
    ClientSettings,
    Secret,
    parse_client_options,
)
from keyrange.options.security_properties import MECHANISMS
from keyrange.options.value_parsers import Violations

PASSWORD = "hunter2-\\\"';=,é"
BOOTSTRAP = {"bootstrap.servers": "h:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "


def parse(**options: str) -> tuple[ClientSettings, list[str]]:
    return parse_all({name.replace("_", "."): value for name, value in options.items()})


def parse_all(options: dict[str, str]) -> tuple[ClientSettings, list[str]]:
    violations = Violations()
    return parse_client_options(BOOTSTRAP | options, violations), violations.messages


def one_violation(name: str, value: str) -> str:
    _, messages = parse_all({name: value})
    assert len(messages) == 1, messages
    assert messages[0].startswith(f"option 'kafka.{name}' ")
    return messages[0]


MAPPED = [
    ("bootstrap.servers", "a:1, b:65535 ,", "bootstrap_servers", (("a", 1), ("b", 65535))),
    ("bootstrap.servers", "PLAINTEXT://a:1", "bootstrap_servers", (("a", 1),)),
    ("bootstrap.servers", "[::1]:9092", "bootstrap_servers", (("::1", 9092),)),
    ("client.id", "me", "client_id", "me"),
    ("client.rack", "r1", "client_rack", "r1"),
    ("client.rack", " r1\n", "client_rack", "r1"),
    ("group.id", "g", "group_id", "g"),
    ("security.protocol", "ssl", "security_protocol", "SSL"),
    ("security.protocol", "PLAINTEXT", "security_protocol", "PLAINTEXT"),
    *[("sasl.mechanism", name.lower(), "sasl_mechanism", name) for name in MECHANISMS],
    ("sasl.jaas.config", f'{PLAIN} username="u";', "sasl_jaas", Secret(f'{PLAIN} username="u";')),
    ("sasl.username", "u", "sasl_username", Secret("u")),
    ("sasl.password", "p", "sasl_password", Secret("p")),
    ("sasl.kerberos.service.name", "kafka", "kerberos_service_name", "kafka"),
    *[
        ("sasl.oauthbearer.token.endpoint.url", url, "oauth_token_endpoint_url", url)
        for url in (
            "https://h/token",
            "http://localhost:8080/token",
            "http://127.0.0.9/token",
            "http://[::1]:80/",
            "file:///var/run/token",
        )
    ],
    ("sasl.oauthbearer.client.credentials.client.id", "c", "oauth_client_id", Secret("c")),
    ("sasl.oauthbearer.client.credentials.client.secret", "p", "oauth_client_secret", Secret("p")),
    ("sasl.oauthbearer.scope", "read", "oauth_scope", "read"),
    ("sasl.oauthbearer.header.urlencode", "TRUE", "oauth_header_urlencode", True),
    ("sasl.login.read.timeout.ms", "5", "login_timeout_ms", 5),
    ("sasl.login.refresh.window.factor", "0.5", "login_refresh_window_factor", 0.5),
    ("ssl.ca.location", "/ca.pem", "ssl_truststore_location", "/ca.pem"),
    ("ssl.truststore.location", "/ca.jks", "ssl_truststore_location", "/ca.jks"),
    ("ssl.truststore.type", "jks", "ssl_truststore_type", "JKS"),
    ("ssl.truststore.password", "p", "ssl_truststore_password", Secret("p")),
    ("ssl.truststore.certificates", "PEM", "ssl_truststore_certificates", Secret("PEM")),
    ("ssl.certificate.location", "/c.pem", "ssl_keystore_location", "/c.pem"),
    ("ssl.keystore.location", "/c.p12", "ssl_keystore_location", "/c.p12"),
    ("ssl.keystore.type", "PKCS12", "ssl_keystore_type", "PKCS12"),
    ("ssl.keystore.password", "p", "ssl_keystore_password", Secret("p")),
    ("ssl.keystore.key", "PEM", "ssl_keystore_key", Secret("PEM")),
    ("ssl.keystore.certificate.chain", "C", "ssl_keystore_certificate_chain", Secret("C")),
    ("ssl.key.location", "/k.pem", "ssl_key_location", "/k.pem"),
    ("ssl.key.password", "p", "ssl_key_password", Secret("p")),
    ("ssl.enabled.protocols", "TLSv1.3", "ssl_enabled_protocols", ("TLSv1.3",)),
    ("ssl.enabled.protocols", "TLSv1,TLSv1.1, TLSv1.2", "ssl_enabled_protocols", ("TLSv1.2",)),
    ("ssl.endpoint.identification.algorithm", "", "ssl_check_hostname", False),
    ("ssl.endpoint.identification.algorithm", "https", "ssl_check_hostname", True),
    ("isolation.level", "read_committed", "isolation_level", "read_committed"),
    ("fetch.min.bytes", "0", "fetch_min_bytes", 0),
    ("fetch.max.wait.ms", "5", "fetch_max_wait_ms", 5),
    ("fetch.max.bytes", "5", "fetch_max_bytes", 5),
    ("max.partition.fetch.bytes", "5", "max_partition_fetch_bytes", 5),
    ("request.timeout.ms", "5", "request_timeout_ms", 5),
    ("default.api.timeout.ms", "5", "default_api_timeout_ms", 5),
    ("socket.connection.setup.timeout.ms", "5", "socket_connection_setup_timeout_ms", 5),
    ("retry.backoff.ms", "5", "retry_backoff_ms", 5),
    ("retry.backoff.max.ms", "5", "retry_backoff_max_ms", 5),
    ("receive.buffer.bytes", "-1", "receive_buffer_bytes", -1),
    ("send.buffer.bytes", "7", "send_buffer_bytes", 7),
    ("metadata.max.age.ms", "5", "metadata_max_age_ms", 5),
]


@pytest.mark.parametrize(("name", "value", "field", "expected"), MAPPED)
def test_a_property_reaches_its_field(name: str, value: str, field: str, expected: object) -> None:
    beside = {
        "ssl.keystore.key": {"ssl.keystore.certificate.chain": "C"},
        "ssl.keystore.certificate.chain": {"ssl.keystore.key": "K"},
        "sasl.jaas.config": {"ssl.protocol": "TLS"},
    }.get(name, {})
    settings, messages = parse_all({name: value, **beside})
    assert messages == []
    assert getattr(settings, field) == expected
    changed = {
        each.name
        for each in fields(ClientSettings)
        if getattr(settings, each.name) != getattr(parse_all(beside)[0], each.name)
    }
    assert changed <= {field}


def test_every_mapped_property_is_tested_here() -> None:
    mapped = {name for name, row in PROPERTIES.items() if row.field}
    assert mapped == {name for name, *_ in MAPPED}


def test_defaults() -> None:
    settings, messages = parse()
    assert messages == []
    assert settings == ClientSettings(bootstrap_servers=(("h", 9092),))
    assert settings.security_protocol == "PLAINTEXT"
    assert settings.ssl_check_hostname is True
    assert settings.isolation_level == "read_uncommitted"
    assert settings.max_partition_fetch_bytes == 8 << 20
    assert settings.sasl_password == Secret("")


BAD = [
    *[("bootstrap.servers", value) for value in ("", ",", "h", "h:", "h:0", "h:65536", "h:a")],
    ("security.protocol", "TLS"),
    ("sasl.mechanism", "EXTERNAL"),
    ("isolation.level", "READ_COMMITTED"),
    ("isolation.level", "serializable"),
    ("ssl.endpoint.identification.algorithm", "HTTP"),
    ("ssl.truststore.type", "JCEKS"),
    ("ssl.enabled.protocols", ""),
    ("ssl.enabled.protocols", "TLSv1,TLSv1.1"),
    ("ssl.enabled.protocols", "TLSv1.3,TLSv9"),
    ("ssl.keystore.type", "BKS"),
    ("fetch.max.bytes", "0"),
    ("fetch.max.bytes", "1m"),
    ("request.timeout.ms", "0"),
    ("request.timeout.ms", str(2**31)),
    ("fetch.max.wait.ms", "-1"),
    ("receive.buffer.bytes", "-2"),
    ("sasl.jaas.config", "nonsense"),
    ("sasl.jaas.config", PLAIN + 'username="env:"'),
    ("sasl.password", "env:"),
    ("sasl.password", "env:a b"),
    ("sasl.password", "file:"),
    ("sasl.password", "file://"),
    ("ssl.keystore.password", "env:A-B"),
    ("sasl.login.refresh.window.factor", "1.1"),
    ("sasl.login.refresh.window.factor", "nan"),
    ("sasl.login.callback.handler.class", "com.example.Handler"),
    ("sasl.client.callback.handler.class", "com.example.Handler"),
    ("sasl.oauthbearer.jwt.retriever.class", "com.example.Retriever"),
    *[
        ("sasl.oauthbearer.token.endpoint.url", url)
        for url in (
            "",
            "h/token",
            "http://h/token",
            "http://127.0.0.1.example.com/token",
            "http://localhost@h/token",
            "https:///token",
            "ftp://h/token",
            "https://u:p@h/token",
            "https://h/token?secret=x",
        )
    ],
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_one_violation(name: str, value: str) -> None:
    assert "must " in one_violation(name, value)


def test_a_refused_property_says_why_and_not_its_value() -> None:
    refused = {name: row.refused for name, row in PROPERTIES.items() if row.refused}
    assert len(refused) > 10
    for name, reason in refused.items():
        message = one_violation(name, PASSWORD)
        assert f"is not supported: {reason}" in message
        assert PASSWORD not in message, name


def test_an_ignored_property_changes_nothing_and_has_its_reason() -> None:
    ignored = [name for name, row in PROPERTIES.items() if row.ignored]
    assert len(ignored) > 10
    for name in ignored:
        value = "" if name.endswith(".class") else "anything"
        settings, messages = parse_all({name: value})
        assert messages == [], name
        assert settings == parse()[0], name


def test_a_property_has_a_field_or_a_reason_and_not_both() -> None:
    reasons = {
        name: [bool(each) for each in (row.field, row.ignored, row.refused)]
        for name, row in PROPERTIES.items()
    }
    assert [name for name, those in reasons.items() if those.count(True) != 1] == []
    assert [name for name in PROPERTIES if name != name.lower()] == []
    known = {"", *(each.name for each in fields(ClientSettings))}
    assert [name for name, row in PROPERTIES.items() if (row.field or "") not in known] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("fetch.max.byte", "fetch.max.bytes"),
    ],
)
def test_a_misspelt_property_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    assert f"did you mean 'kafka.{meant}'?" in one_violation(name, "x")


def test_a_property_like_no_other_is_refused_without_a_guess() -> None:
    assert "did you mean" not in one_violation("zzzzzz", "x")


def test_bootstrap_servers_are_required() -> None:
    violations = Violations()
    parse_client_options({}, violations)
    assert violations.messages == ["option 'kafka.bootstrap.servers' must be specified"]


@pytest.mark.parametrize("shade", ["", "kafkashaded.", "shadedmskiam.", "a.b_c."])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (
            "sasl.login.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        ),
        (
            "sasl.client.callback.handler.class",
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        ),
    ],
)
def test_handlers_whose_work_is_done_here_are_taken(name: str, value: str, shade: str) -> None:
    assert parse_all({name: shade + value})[1] == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ssl.keystore.key": "K"}, "ssl.keystore.key"),
        ({"ssl.keystore.certificate.chain": "C"}, "ssl.keystore.key"),
        (
            {"ssl.truststore.certificates": "C", "ssl.truststore.location": "/t"},
            "ssl.truststore.certificates",
        ),
        (
            {
                "ssl.keystore.key": "K",
                "ssl.keystore.certificate.chain": "C",
                "ssl.keystore.location": "/k",
            },
            "ssl.keystore.key",
        ),
    ],
)
def test_a_store_is_given_once_and_wholly(given: dict[str, str], named: str) -> None:
    [message] = parse_all(given)[1]
    assert message.startswith(f"option 'kafka.{named}' ")


@pytest.mark.parametrize(("version", "count"), [("3.9.2", 98), ("4.3.1", 116)])
def test_every_property_of_javas_consumer_has_a_row(version: str, count: int) -> None:
    """What ConsumerConfig.configNames() of kafka-clients prints: of Spark 4.2's, and of 4.3.1."""
    golden = Path(__file__).parents[2] / "golden" / f"consumer-properties-{version}.txt"
    names = golden.read_text().split()
    assert len(names) == count
    assert [name for name in names if name not in PROPERTIES] == []


def test_secrets_never_show() -> None:
    options = {"sasl.password": PASSWORD, "ssl.key.password": PASSWORD + "2"}
    settings, _ = parse_all(options)
    for shown in (repr(settings), str(settings), f"{settings}", repr(settings.sasl_password)):
        assert "hunter2" not in shown
        assert "hunter2" not in shown.encode("unicode_escape").decode()
    assert f"{settings.sasl_password}" == "'***'"
    assert f"{settings.sasl_password!s:>10}".strip() == "'***'"


def test_every_secret_property_is_kept_as_one() -> None:
    """Java's properties of type PASSWORD, and what else holds credentials."""
    words = ("password", "passphrase", "secret")
    for name, row in PROPERTIES.items():
        looks_secret = any(word in name for word in words)
        looks_secret = looks_secret or name in ("sasl.jaas.config", "ssl.keystore.key")
        if looks_secret and row.field:
            kept = [each.type for each in fields(ClientSettings) if each.name == row.field]
            assert kept == ["Secret"]


def test_secrets_travel_to_executors_and_compare() -> None:
    settings, _ = parse_all({"sasl.password": PASSWORD})
    for travelled in (pickle.loads(pickle.dumps(settings)), copy.deepcopy(settings)):
        assert travelled == settings
        assert hash(travelled) == hash(settings)
        assert travelled.sasl_password.reveal() == PASSWORD
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
    assert bool(Secret("a"))


@pytest.mark.parametrize(
    "value",
    [":9092", "h h:1", "SSL:/h:9092", "h:\u00b2", "h:65536", "h:0", "h", "h:9092:1x", "[::1:9]"],
)
def test_an_address_that_is_none_is_refused(value: str) -> None:
    assert "host:port" in one_violation("bootstrap.servers", value)


@pytest.mark.parametrize(
    ("value", "host"),
    [("broker-1.x:9092", "broker-1.x"), ("[::1]:9092", "::1"), ("SASL_SSL://h:9092", "h")],
)
def test_addresses(value: str, host: str) -> None:
    settings, messages = parse_all({"bootstrap.servers": value})
    assert messages == []
    assert settings.bootstrap_servers == ((host, 9092),)


@pytest.mark.parametrize("name", ["sasl.mechanism", "security.protocol", "ssl.keystore.type"])
def test_a_secret_in_the_place_of_a_word_is_not_shown(name: str) -> None:
    violations = Violations()
    parse_client_options({"bootstrap.servers": "h:1", name: "hunter2"}, violations)
    assert any("must be one of" in each for each in violations.messages)
    assert "hunter2" not in str(violations.messages).lower()
