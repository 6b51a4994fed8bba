"""The options of a schema registry, one by one and together."""

from __future__ import annotations

import pickle  # noqa: TID251  as Spark does with a source
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.model.offsets import TopicPartition
from keyrange.model.subscription import Assign, Subscribe, SubscribePattern, Subscription
from keyrange.options import check_names, parse_options
from keyrange.options.registry import RegistrySettings, subject_of
from keyrange.options.secrets import Secret
from keyrange.options.value_parsers import Violations
from keyrange.registry.subjects import exposures
from project.unseen import MARK

SOURCE = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}


def registry(**options: str) -> RegistrySettings:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_options({**SOURCE, **given}).registry


def refused(**options: str) -> str:
    with pytest.raises(InvalidError) as caught:
        registry(**options)
    assert MARK not in str(caught.value)
    return caught.value.message


def test_without_a_registry() -> None:
    assert parse_options(SOURCE).registry == RegistrySettings()
    assert RegistrySettings().urls == ()


def test_all_of_it() -> None:
    found = registry(
        schemaregistry__URL=" https://a:8081/apis/ccompat/v7/ ,http://b,https://[::1]:1,http://b",
        schemaRegistry__user="env:USER_OF_REGISTRY",
        schemaRegistry__password=f"literal:{MARK}",
        schemaRegistry__requestTimeout="2s",
        schemaRegistry__tries="2",
        schemaRegistry__ssl__truststore__location="/trust.pem",
        schemaRegistry__SSL__Keystore__Password=MARK,
        valueSubject=" orders ",
        keySubject="keys",
    )
    urls = ("https://a:8081/apis/ccompat/v7", "http://b", "https://[::1]:1")
    assert found.urls == urls
    assert found.user == Secret("env:USER_OF_REGISTRY")
    assert (found.request_timeout_ms, found.tries) == (2_000, 2)
    assert (found.value_subject, found.key_subject) == ("orders", "keys")
    assert found.tls.ssl_truststore_location == "/trust.pem"
    assert found.tls.ssl_keystore_password == Secret(MARK)
    assert MARK not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(pickle.loads(pickle.dumps(found))) == hash(found)


@pytest.mark.parametrize(
    "url",
    [
        "",
        " , ",
        "registry:8081",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://a:0",
        "http://a?b=c",
        "http://a#b",
        "http://[::1",
        "http://a/ü",
        "http://a/b c",
        f"http://user:{MARK}@a",
        f"http://a,https://{MARK}@b",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    assert "option 'schemaRegistry.url' must " in refused(schemaRegistry__url=url)


URL = {"schemaRegistry__url": "https://a"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schemaRegistry__user": MARK}, "'schemaRegistry.user' needs schemaRegistry.url"),
        ({"valueSubject": "a"}, "option 'valueSubject' needs schemaRegistry.url"),
        ({"schemaRegistry__ssl__key__password": MARK}, "password' needs schemaRegistry.url"),
        ({**URL, "schemaRegistry__user": MARK}, "and schemaRegistry.password go together"),
        ({**URL, "schemaRegistry__password": MARK}, "and schemaRegistry.password go together"),
        (
            {
                **URL,
                "schemaRegistry__user": MARK,
                "schemaRegistry__password": MARK,
                "schemaRegistry__token": MARK,
            },
            "'schemaRegistry.token' is given beside schemaRegistry.user",
        ),
        (
            {"schemaRegistry__url": "http://a", "schemaRegistry__ssl__truststore__location": "/a"},
            "'schemaRegistry.ssl.truststore.location' needs https in schemaRegistry.url",
        ),
        ({**URL, "schemaRegistry__ssl__provider": "x"}, "ssl.provider' is not supported"),
        (
            {**URL, "schemaRegistry__ssl__trustore__location": "x"},
            "did you mean 'schemaRegistry.ssl.truststore.location'?",
        ),
        ({**URL, "schemaRegistry__ssl__keystore__key": MARK}, "certificate.chain go together"),
        ({**URL, "schemaRegistry__requestTimeout": "0"}, "must be longer than 0"),
        ({**URL, "schemaRegistry__tries": "0"}, "must be between 1 and 100"),
        ({**URL, "valueSubject": " "}, "'valueSubject' must not be empty"),
        ({**URL, "schemaRegistry__urls": "x"}, "did you mean 'schemaRegistry.url'?"),
    ],
)
def test_what_does_not_go_together(options: dict[str, str], said: str) -> None:
    assert said in refused(**options)


def test_names_alone() -> None:
    check_names(["schemaRegistry.URL", "schemaRegistry.ssl.Truststore.location", "keySubject"])
    with pytest.raises(InvalidError, match=r"schemaRegistry\.ssl\.sasl"):
        check_names(["schemaRegistry.ssl.sasl.mechanism"])


@pytest.mark.parametrize(
    ("subscription", "column", "given", "subject"),
    [
        (Subscribe(("orders",)), "value", "", "orders-value"),
        (Subscribe(("orders",)), "key", "", "orders-key"),
        (Subscribe(("a", "b")), "value", "shop.Order", "shop.Order"),
        (SubscribePattern("a.*"), "value", "shop.Order", "shop.Order"),
        (Assign((TopicPartition("a", 0), TopicPartition("a", 1))), "value", "", "a-value"),
        (Subscribe(("a", "b")), "value", "", "subscribe names 2 topics"),
        (SubscribePattern("orders"), "key", "", "subscribePattern may match several topics"),
    ],
)
def test_subjects(subscription: Subscription, column: Any, given: str, subject: str) -> None:
    violations = Violations()
    settings = RegistrySettings(value_subject=given, key_subject=given)
    found = subject_of(settings, column, subscription, violations)
    if " " not in subject:
        assert (found, violations.messages) == (subject, [])
    else:
        assert found == ""
        assert f"option '{column}Subject' must be given: {subject}" in violations.messages[0]


@pytest.mark.parametrize(
    ("url", "more", "count"),
    [
        ("http://registry:8081", {"token": Secret("t")}, 1),
        ("http://registry:8081", {}, 0),
        ("http://127.0.0.1:8081", {"token": Secret("t")}, 0),
        ("https://registry:8081", {"token": Secret("t")}, 0),
    ],
)
def test_what_is_exposed(url: str, more: dict[str, Any], count: int) -> None:
    assert len(list(exposures(RegistrySettings(urls=(url,), **more)))) == count
    unchecked = registry(
        schemaRegistry__url="https://a", schemaRegistry__ssl__endpoint__identification__algorithm=""
    )
    assert "can pass for a" in " ".join(exposures(unchecked))
