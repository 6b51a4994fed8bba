"""The options of a topic about keys and values: the source's words, and what of them is taken from
the source."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.registry import RegistrySettings
from keyrange.options.topic_options import TopicValues, parse_topic_options
from keyrange.options.value_format import ValueOptions
from keyrange.options.value_parsers import Violations

SOURCE = RegistrySettings(urls=("http://a:1",), value_subject="read", key_subject="read-key")
AVRO = {"format": "avro", "schema": '"int"'}


def parsed(
    options: dict[str, str],
    registry: RegistrySettings | None = None,
    topic: str = "out",
    **values: str,
) -> tuple[TopicValues, list[str]]:
    violations = Violations()
    _, _, found = parse_topic_options(
        options,
        topic,
        ValueOptions(**values),
        ClientSettings(),
        registry or RegistrySettings(),
        violations,
    )
    return found, violations.messages


def test_the_registry_is_the_sources_and_its_subjects_are_not() -> None:
    found, wrong = parsed({}, SOURCE, format="avro")
    assert wrong == []
    assert found.registry.urls == SOURCE.urls
    assert (found.subject("value", "out"), found.subject("key", "out")) == ("out-value", "out-key")
    found, wrong = parsed({"valueSubject": "mine"}, SOURCE, format="avro")
    assert (wrong, found.subject("value", "out")) == ([], "mine")


def test_a_registry_of_its_own_has_nothing_of_the_sources() -> None:
    own = {"schemaRegistry.url": "https://b:2", "schemaRegistry.ssl.truststore.type": "PEM"}
    found, _ = parsed(own, SOURCE, format="avro")
    assert found.registry.urls == ("https://b:2",)
    assert found.registry.value_subject == ""


def test_avro_without_the_sources_registry() -> None:
    found, wrong = parsed({"avroEncoding": "binary"}, SOURCE, **AVRO)
    assert (wrong, found.registry.urls, found.encoding) == ([], (), "binary")


def test_all_words_are_taken_with_their_names_in_any_case() -> None:
    options = {
        "valueschema.LOCATION": "/a.proto",
        "valueMessage": "M",
        "keySchema.location": "s3://b/k.avsc",
        "keySubject": "k",
        "schemaRegistry.autoRegister": "true",
        "kafka.compression.type": "lz4",
    }
    found, wrong = parsed(options, SOURCE, format="protobuf", key_format="avro")
    assert wrong == []
    assert found.values.form("value") == ("protobuf", "", "/a.proto", "M")
    assert found.values.form("key") == ("avro", "", "s3://b/k.avsc", "")
    assert (found.registers, found.subject("key", "out")) == (True, "k")


@pytest.mark.parametrize(
    ("options", "registry", "values", "said"),
    [
        ({}, None, {"format": "avro"}, "option 'value_format' is avro, and needs value_schema"),
        ({}, None, {"key_format": "protobuf"}, "option 'key_format' is protobuf, and needs key"),
        ({}, None, {"schema": '"int"'}, "'value_schema' needs value_format avro or protobuf"),
        ({"keySchema.location": "/a"}, None, {}, "needs key_format avro or protobuf"),
        ({"valueSchema.location": "a"}, None, {"format": "avro"}, "'valueSchema.location' must"),
        ({"valueSchema.location": "/a"}, None, AVRO, "is given beside value_schema"),
        ({"valueMessage": "M"}, None, AVRO, "'valueMessage' needs value_format protobuf"),
        ({"avroEncoding": "xml"}, None, AVRO, "'avroEncoding' must be"),
        ({"avroEncoding": "binary"}, None, {}, "needs value_format or key_format avro"),
        ({"valueFormat": "avro"}, None, {}, "'valueFormat' is not a property of Kafka's producer"),
        ({"badValues": "fail"}, None, AVRO, "'badValues' is not a property of Kafka's producer"),
        ({"schemaRegistry.user": "u"}, SOURCE, AVRO, "'schemaRegistry.user' needs schemaRegistry"),
        ({"schemaRegistry.ssl.key.password": "p"}, SOURCE, AVRO, "needs schemaRegistry.url beside"),
        ({"schemaRegistry.user": "u"}, None, AVRO, "'schemaRegistry.user' needs schemaRegistry"),
        ({"schemaRegistry.url": "http://a:1"}, None, {}, "needs value_format or key_format avro"),
        ({"schemaRegistry.autoRegister": "true"}, None, AVRO, "needs schemaRegistry.url"),
        (
            {"schemaRegistry.autoRegister": "true"},
            SOURCE,
            {"format": "protobuf"},
            "columns say no numbers of fields",
        ),
        (
            {"schemaRegistry.url": "http://a:1", "avroEncoding": "binary"},
            None,
            AVRO,
            "is for Avro without schemaRegistry.url",
        ),
    ],
)
def test_what_does_not_go_together_is_told(
    options: dict[str, str], registry: Any, values: dict[str, str], said: str
) -> None:
    _, wrong = parsed(options, registry, **values)
    assert len(wrong) == 1, wrong
    assert said in wrong[0]


def test_rows_that_name_their_topics_need_a_subject() -> None:
    _, wrong = parsed({}, SOURCE, topic="", format="avro")
    assert wrong == ["option 'valueSubject' must be given: rows name their topics, and have one "
                     "schema"]  # fmt: skip
    assert parsed({"valueSubject": "s"}, SOURCE, topic="", format="avro")[1] == []
