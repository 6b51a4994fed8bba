"""Secrets in the options of the source: never shown, and whole after a journey."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251  as Spark does with a source
import traceback

import pytest

from keyrange.errors import InvalidError
from keyrange.options import SourceOptions, parse_options

REQUIRED = {"subscribe": "t", "kafka.bootstrap.servers": "h:9092"}
PASSWORD = "hunter2-\\\"';=,é"


def with_secrets() -> SourceOptions:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="u" password="{PASSWORD[:7]}";'
    return parse_options(
        REQUIRED
        | {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas,
            "kafka.ssl.key.password": PASSWORD,
        }
    )


def test_secrets_never_show() -> None:
    options = with_secrets()
    for shown in (repr(options), str(options), f"{options}", "%s" % options):  # noqa: UP031
        assert "hunter2" not in shown
    with pytest.raises(TypeError) as caught:
        options < 1  # noqa: B015
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.sasl.password": PASSWORD, "kafka.security.protocol": PASSWORD[:3]},
        {"kafka.sasl.pasword": PASSWORD},
        {"kafka.ssl.keystore.password": PASSWORD, "kafka.ssl.keystore.type": "BKS"},
        {"kafka.ssl.keystore.key": PASSWORD},
        {"kafka.ssl.keystore.key": PASSWORD, "kafka.ssl.keystore.location": "/s"},
        {"kafka.sasl.oauthbearer.token.endpoint.url": f"https://me:{PASSWORD}@h/"},
        {"kafka.sasl.jaas.config": f"PlainLoginModule required password={PASSWORD}"},
        {"password": PASSWORD},
        {"sasl.password": PASSWORD},
        {"kafka.sasl.login.callback.handler.class": PASSWORD},
    ],
)
def test_a_refusal_never_repeats_a_secret(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidError) as caught:
        parse_options(REQUIRED | wrong)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_options_travel_and_a_broken_journey_shows_no_secret() -> None:
    options = with_secrets()
    data = pickle.dumps(options)
    for travelled in (pickle.loads(data), copy.deepcopy(options)):
        assert travelled == options
        assert travelled.client.ssl_key_password.reveal() == PASSWORD
    for size in range(len(data)):
        with pytest.raises(Exception) as caught:
            pickle.loads(data[:size])
        assert "hunter2" not in str(caught.value)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        with_secrets().min_tasks = 5
