"""The `kafka.*` options: mapped, ignored or refused, and secrets that never show."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as Spark does with a source
from dataclasses import fields

import pytest

from keyrange.client_options import (
    PROPERTIES,
    ClientSettings,
    Secret,
    parse_client_options,
)
from keyrange.parsing import Violations

PASSWORD = "hunter2-\\\"';=,é"
BOOTSTRAP = {"bootstrap.servers": "h:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "


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
    ("security.protocol", "ssl", "security_protocol", "SSL"),
    ("security.protocol", "PLAINTEXT", "security_protocol", "PLAINTEXT"),
    ("sasl.mechanism", "scram-sha-256", "sasl_mechanism", "SCRAM-SHA-256"),
    ("sasl.username", "u", "sasl_username", "u"),
    ("sasl.password", "p", "sasl_password", Secret("p")),
    ("ssl.ca.location", "/ca.pem", "ssl_ca_location", "/ca.pem"),
    ("ssl.truststore.location", "/ca.pem", "ssl_ca_location", "/ca.pem"),
    ("ssl.truststore.certificates", "PEM", "ssl_ca_pem", "PEM"),
    ("ssl.certificate.location", "/c.pem", "ssl_certificate_location", "/c.pem"),
    ("ssl.keystore.location", "/c.pem", "ssl_certificate_location", "/c.pem"),
    ("ssl.key.location", "/k.pem", "ssl_key_location", "/k.pem"),
    ("ssl.key.password", "p", "ssl_key_password", Secret("p")),
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
    settings, messages = parse_all({name: value})
    assert messages == []
    assert getattr(settings, field) == expected
    changed = {
        each.name
        for each in fields(ClientSettings)
        if getattr(settings, each.name) != getattr(parse()[0], each.name)
    }
    assert changed <= {field}


def test_every_mapped_property_is_tested_here() -> None:
    mapped = {name for name, row in PROPERTIES.items() if row.field} - {"sasl.jaas.config"}
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
    ("sasl.mechanism", "GSSAPI"),
    ("sasl.mechanism", "OAUTHBEARER"),
    ("isolation.level", "READ_COMMITTED"),
    ("isolation.level", "serializable"),
    ("ssl.endpoint.identification.algorithm", "HTTP"),
    ("ssl.truststore.type", "JKS"),
    ("ssl.keystore.type", "PKCS12"),
    ("fetch.max.bytes", "0"),
    ("fetch.max.bytes", "1m"),
    ("request.timeout.ms", "0"),
    ("request.timeout.ms", str(2**31)),
    ("fetch.max.wait.ms", "-1"),
    ("receive.buffer.bytes", "-2"),
    ("sasl.jaas.config", "nonsense"),
    ("sasl.jaas.config", "com.sun.security.auth.module.Krb5LoginModule required x=y;"),
    ("sasl.jaas.config", PLAIN + 'username="u";'),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_one_violation(name: str, value: str) -> None:
    assert "must " in one_violation(name, value)


@pytest.mark.parametrize("name", [name for name, row in PROPERTIES.items() if row.refused])
def test_a_refused_property_says_why_and_not_its_value(name: str) -> None:
    message = one_violation(name, PASSWORD)
    assert "is not supported: " in message
    assert PROPERTIES[name].refused in message
    assert PASSWORD not in message


@pytest.mark.parametrize("name", [name for name, row in PROPERTIES.items() if row.ignored])
def test_an_ignored_property_changes_nothing_and_has_its_reason(name: str) -> None:
    value = "PEM" if name.endswith("store.type") else "anything"
    settings, messages = parse_all({name: value})
    assert messages == []
    assert settings == parse()[0]


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_has_a_field_or_a_reason_and_not_both(name: str) -> None:
    row = PROPERTIES[name]
    assert [bool(row.field), bool(row.ignored), bool(row.refused)].count(True) == 1
    assert name == name.lower()
    if row.field:
        assert row.field in {each.name for each in fields(ClientSettings)}


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


@pytest.mark.parametrize("module", [PLAIN, SCRAM])
@pytest.mark.parametrize(
    ("entries", "user", "password"),
    [
        ('username="u" password="p";', "u", "p"),
        ("username='u' password='p';", "u", "p"),
        ("username=u password=p;", "u", "p"),
        ('username="u" password="p"', "u", "p"),
        ('password="p" username="u" ;', "u", "p"),
        ('\n  username = "u"\n  password = "p";\n', "u", "p"),
        (r'username="u" password="a\"b\\c";', "u", 'a"b\\c'),
        ('username="u" password="a;b=c d\'e";', "u", "a;b=c d'e"),
        ('username="a b" password="é€";', "a b", "é€"),
        ('username="u" password="p" tokenauth="true";', "u", "p"),
    ],
)
def test_jaas_entries_are_read(module: str, entries: str, user: str, password: str) -> None:
    settings, messages = parse_all({"sasl.jaas.config": module + entries})
    assert messages == []
    assert settings.sasl_username == user
    assert settings.sasl_password.reveal() == password


@pytest.mark.parametrize(
    "jaas",
    [f'PlainLoginModule required username="u" password="{PASSWORD}";', f"x {PASSWORD}", PASSWORD],
)
def test_a_jaas_entry_that_cannot_be_read_is_not_repeated(jaas: str) -> None:
    message = one_violation("sasl.jaas.config", jaas)
    assert PASSWORD not in message
    assert "hunter2" not in message


def test_sasl_needs_a_mechanism_and_credentials() -> None:
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
        _, messages = parse_all({"security.protocol": protocol})
        names = [message.split("'")[1] for message in messages]
        assert names == ["kafka.sasl.mechanism", "kafka.sasl.jaas.config"]
    full = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert parse_all(full | {"sasl.username": "u", "sasl.password": "p"})[1] == []
    assert len(parse_all(full | {"sasl.username": "u", "sasl.password": ""})[1]) == 1


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location"])
@pytest.mark.parametrize("ending", [".jks", ".JKS", ".p12", ".pfx"])
def test_java_stores_are_refused_with_the_way_to_pem(name: str, ending: str) -> None:
    message = one_violation(name, "/secrets/store" + ending)
    assert "is not a PEM file" in message
    assert "keytool" in message
    assert "openssl" in message


def test_secrets_never_show() -> None:
    options = {"sasl.password": PASSWORD, "ssl.key.password": PASSWORD + "2"}
    settings, _ = parse_all(options)
    for shown in (repr(settings), str(settings), f"{settings}", repr(settings.sasl_password)):
        assert "hunter2" not in shown
        assert "hunter2" not in shown.encode("unicode_escape").decode()
    assert f"{settings.sasl_password}" == "'***'"
    assert f"{settings.sasl_password!s:>10}".strip() == "'***'"


def test_every_secret_property_is_kept_as_one() -> None:
    for name, row in PROPERTIES.items():
        looks_secret = "password" in name or name in ("sasl.jaas.config", "ssl.keystore.key")
        assert row.secret is looks_secret, name
        if row.secret and row.field:
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


def test_a_jaas_entry_with_an_open_quote_is_refused() -> None:
    assert "password" in one_violation("sasl.jaas.config", PLAIN + 'username="u" password="p')
