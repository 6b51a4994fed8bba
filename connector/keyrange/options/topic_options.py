"""The options of a topic that rows are written to: properties of Kafka's producer, and how keys and
values are written. Of these the names are the source's, and mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from keyrange.model.value_forms import Side
from keyrange.options.commits import path_mistake
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.option import GivenOptions, by_name, option, rows_of
from keyrange.options.producer_properties import (
    PREFIX,
    ProducerSettings,
    parse_producer_options,
)
from keyrange.options.registry import (
    REGISTRY_TLS_PREFIX,
    SHOWN_PREFIX,
    RegistrySettings,
    choose_registry,
)
from keyrange.options.value_format import ValueOptions
from keyrange.options.value_parsers import Violations, boolean, one_of

# What a topic's arguments say stands in no option.
_OF_VALUES: Final = ("valueSchema.location", "valueMessage", "keySchema.location", "keyMessage")
_BY_SCHEMA: Final = ("avro", "protobuf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenOptions:
    encoding: Literal["", "singleObject", "binary"] = option(
        "avroEncoding",
        one_of("singleObject", "binary"),
        "How Avro says its schema without a registry: by the schema's fingerprint, or not at all. "
        "Given, no registry is asked.",
        unset="",
    )
    registers: bool = option(
        "schemaRegistry.autoRegister",
        boolean,
        "Whether a schema that its subject lacks is registered.",
        default="false",
    )


TOPIC_OPTIONS: Final = (
    *rows_of(_WrittenOptions),
    *(each for each in rows_of(ValueOptions) if each.name in _OF_VALUES),
    *rows_of(RegistrySettings),
)
_BY_NAME: Final = by_name(TOPIC_OPTIONS)


@dataclass(frozen=True, slots=True)
class TopicValues:
    """How keys and values are written, as its arguments and options say it. `registry` has no URLs
    where none is asked."""

    values: ValueOptions
    registry: RegistrySettings
    encoding: str = ""
    registers: bool = False

    def subject(self, side: Side, topic: str) -> str:
        """ "" where rows of several topics have none."""
        given = self.registry.key_subject if side == "key" else self.registry.value_subject
        return given or (topic and f"{topic}-{side}")


def parse_topic_options(
    options: Mapping[str, str],
    topic: str,
    values: ValueOptions,
    client: ClientSettings,
    registry: RegistrySettings,
    violations: Violations,
) -> tuple[ProducerSettings, ClientSettings, TopicValues]:
    """What the options of a topic say, "" of one that rows name; what is wrong with them goes to
    `violations`. `values` has what the topic's arguments say of formats and schemas. What the
    options do not say of connections is as `client` and `registry` are, those of the source."""
    given = GivenOptions(_BY_NAME, violations)
    tls: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(REGISTRY_TLS_PREFIX):
            tls[name[len(REGISTRY_TLS_PREFIX) :].lower()] = value
        elif name.startswith(PREFIX) or not given.take(name, value):
            others[name] = value
    producer, reached = parse_producer_options(others, client, violations)
    own = given.settings(_WrittenOptions)
    files = given.settings(ValueOptions)
    written = TopicValues(
        replace(
            values,
            location=files.location,
            message=files.message,
            key_location=files.key_location,
            key_message=files.key_message,
        ),
        _registry(given, tls, registry, own.encoding, violations),
        own.encoding,
        own.registers,
    )
    for side in ("value", "key"):
        _check(written, side, topic, violations)
    _check_used(written, given, violations)
    return producer, reached, written


def _registry(
    given: GivenOptions,
    tls: Mapping[str, str],
    source: RegistrySettings,
    encoding: str,
    violations: Violations,
) -> RegistrySettings:
    if given.names("schemaRegistry.url") or not source.urls:
        return choose_registry(given, tls, violations)
    subjects = given.settings(RegistrySettings)
    asked = replace(source, urls=() if encoding else source.urls)
    said = [each.name for each in rows_of(RegistrySettings) if given.names(each.name)]
    said += [f"{SHOWN_PREFIX}ssl.{each}" for each in tls]
    for name in said:
        if not name.endswith("Subject"):
            violations.add(name, "needs schemaRegistry.url beside it")
    return replace(asked, value_subject=subjects.value_subject, key_subject=subjects.key_subject)


def _check(written: TopicValues, side: Side, topic: str, violations: Violations) -> None:
    form, text, location, message = written.values.form(side)
    by_schema = form in _BY_SCHEMA
    for name, value in ((f"{side}_schema", text), (f"{side}Schema.location", location)):
        if value and not by_schema:
            violations.add(name, f"needs {side}_format avro or protobuf")
    if message and form != "protobuf":
        violations.add(f"{side}Message", f"needs {side}_format protobuf")
    if text and location:
        violations.add(f"{side}Schema.location", f"is given beside {side}_schema: give one of them")
    if location and (mistake := path_mistake(location)) is not None:
        violations.add(f"{side}Schema.location", mistake)
    if not by_schema:
        return
    has_schema = bool(text or location)
    if not written.registry.urls:
        if not has_schema:
            what = f"is {form}, and needs {side}_schema, {side}Schema.location or a registry"
            violations.add(f"{side}_format", what)
        return
    if form == "protobuf" and written.registers and not has_schema:
        what = "needs a schema of Protobuf: columns say no numbers of fields"
        violations.add("schemaRegistry.autoRegister", what)
    if not written.subject(side, topic):
        what = "must be given: rows name their topics, and have one schema"
        violations.add(f"{side}Subject", what)


def _check_used(written: TopicValues, given: GivenOptions, violations: Violations) -> None:
    """Options that say something of nothing."""
    forms = [written.values.form(side)[0] for side in ("value", "key")]
    if written.encoding and "avro" not in forms:
        violations.add("avroEncoding", "needs value_format or key_format avro")
    if given.names("schemaRegistry.url"):
        if written.encoding:
            violations.add("avroEncoding", "is for Avro without schemaRegistry.url")
        if not any(each in _BY_SCHEMA for each in forms):
            what = "needs value_format or key_format avro or protobuf"
            violations.add("schemaRegistry.url", what)
    if written.registers and not written.registry.urls:
        violations.add("schemaRegistry.autoRegister", "needs schemaRegistry.url")
