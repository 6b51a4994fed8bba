"""What each SASL mechanism needs, said before the first connection."""

from __future__ import annotations

import pytest

from keyrange.options.jaas import read_login
from keyrange.options.kafka_properties import (
    ClientSettings,
    Secret,
    parse_client_options,
)
from keyrange.options.value_parsers import Violations

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required "
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required "


def parse_all(options: dict[str, str]) -> tuple[ClientSettings, list[str]]:
    violations = Violations()
    given = {"bootstrap.servers": "h:9092"} | options
    return parse_client_options(given, violations), violations.messages


SASL = {"security.protocol": "SASL_SSL"}


def login(mechanism: str, **given: str) -> list[str]:
    options = {name.replace("_", "."): value for name, value in given.items()}
    return parse_all(SASL | {"sasl.mechanism": mechanism} | options)[1]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_are_needed(mechanism: str) -> None:
    [message] = login(mechanism)
    assert message.startswith("option 'kafka.sasl.jaas.config' must hold username and password")
    assert login(mechanism, sasl_username="u", sasl_password="p") == []
    assert len(login(mechanism, sasl_username="u", sasl_password="")) == 1
    assert len(login(mechanism, sasl_password="p")) == 1


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", SCRAM + 'username="u" password="p";'),
        ("SCRAM-SHA-256", PLAIN + 'username="u" password="p";'),
        ("GSSAPI", PLAIN + 'username="u" password="p";'),
        ("OAUTHBEARER", "software.amazon.msk.auth.iam.IAMLoginModule required;"),
    ],
)
def test_module_and_mechanism_have_to_fit(mechanism: str, module: str) -> None:
    [message] = login(mechanism, sasl_jaas_config=module)
    assert f"must hold a login module for {mechanism}" in message


def test_the_default_mechanism_is_javas() -> None:
    [message] = parse_all(SASL | {"sasl.jaas.config": PLAIN + 'username="u" password="p";'})[1]
    assert "GSSAPI" in message
    assert parse_all(SASL | {"sasl.kerberos.service.name": "kafka"})[1] == []


def test_kerberos_needs_one_service_name() -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required "
    assert "serviceName" in login("GSSAPI")[0]
    assert login("GSSAPI", sasl_jaas_config=module + 'serviceName="kafka";') == []
    both = {"sasl_kerberos_service_name": "kafka"}
    assert login("GSSAPI", sasl_jaas_config=module + 'serviceName="kafka";', **both) == []
    [message] = login("GSSAPI", sasl_jaas_config=module + 'serviceName="other";', **both)
    assert "kafka.sasl.kerberos.service.name" in message


def test_tokens_come_from_one_place() -> None:
    module = f"{OAUTH} required "
    url = {"sasl_oauthbearer_token_endpoint_url": "https://h/token"}
    client = 'clientId="c" clientSecret="s";'
    unsecured = 'unsecuredLoginStringClaim_sub="u";'
    assert login("OAUTHBEARER", sasl_jaas_config=module + client, **url) == []
    assert login("OAUTHBEARER", sasl_jaas_config=module + unsecured) == []
    properties = {
        "sasl_oauthbearer_client_credentials_client_id": "c",
        "sasl_oauthbearer_client_credentials_client_secret": "s",
    }
    assert login("OAUTHBEARER", **properties, **url) == []
    file = {"sasl_oauthbearer_token_endpoint_url": "file:///token"}
    assert login("OAUTHBEARER", sasl_jaas_config=module + ";", **file) == []
    for wrong in (
        {"sasl_jaas_config": module + client},
        {"sasl_jaas_config": module + ";"},
        {"sasl_jaas_config": module + "clientId=c clientSecret=s " + unsecured, **url},
        {"sasl_jaas_config": module + 'clientId="c";', **url},
        url,
    ):
        assert len(login("OAUTHBEARER", **wrong)) == 1


def test_aws_wants_tls() -> None:
    module = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    assert login("AWS_MSK_IAM", sasl_jaas_config=module) == []
    [message] = login("AWS_MSK_IAM", sasl_jaas_config=module, security_protocol="SASL_PLAINTEXT")
    assert "SASL_SSL" in message


@pytest.mark.parametrize("reference", ["env:NOT_THERE", "file:/not/there"])
def test_a_referred_jaas_configuration_is_left_for_the_connection(reference: str) -> None:
    assert login("PLAIN", sasl_jaas_config=reference) == []


def test_properties_win_over_the_jaas_entry() -> None:
    settings, messages = parse_all(
        SASL
        | {
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": PLAIN + 'username="u" password="env:ONE";',
            "sasl.password": "env:OTHER",
        }
    )
    assert messages == []
    assert read_login(settings) == {"username": Secret("u"), "password": Secret("env:OTHER")}
