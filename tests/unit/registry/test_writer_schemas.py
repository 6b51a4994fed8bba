"""What a registry is asked before rows are written, and the bytes that stand before each."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.formats.format import written_format_of
from keyrange.model.value_forms import Schema, UnfitSchema, WrittenForm
from keyrange.options.registry import RegistrySettings
from keyrange.options.topic_options import TopicValues
from keyrange.options.value_format import ValueOptions
from keyrange.registry.prefixes import prefix_of, read_prefix
from keyrange.registry.subjects import schema_id
from keyrange.values.written_forms import written_form
from registries.confluent import avro
from registries.framed import prefix
from registries.server import Registry, schema_registry

KIND = pa.struct([("id", pa.int64())])
DERIVED = written_format_of("avro").schema_of(KIND).text
OLD = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'
NEW = (
    '{"type":"record","name":"O","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":"string","default":""}]}'
)
PROTO = 'syntax = "proto3"; message A { int64 x = 1; } message B { int64 id = 1; }'


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry(base=f"/{uuid.uuid4().hex}") as made:
        yield made


def settings(registry: Registry, **more: Any) -> RegistrySettings:
    return RegistrySettings(urls=(registry.url,), tries=2, **more)


def form(registry: Registry, registers: bool = False, **values: str) -> WrittenForm:
    told = TopicValues(ValueOptions(**values), settings(registry), registers=registers)
    return written_form("value", KIND, told, "orders", {})


@example(1, [0])
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_a_prefix_is_what_serializers_write(id: int, indexes: list[int]) -> None:
    assert prefix_of(id, indexes) == prefix(id, indexes)
    if indexes:
        read = read_prefix(prefix_of(id, indexes) + b"\xff", True)
        assert (read.id, read.indexes) == (id, tuple(indexes))


def test_the_latest_schema_of_the_subject(registry: Registry) -> None:
    registry.register("orders-value", OLD)
    id = registry.register("orders-value", NEW)
    assert form(registry, format="avro") == WrittenForm("value", "avro", Schema(NEW), prefix(id))
    assert {path.rpartition("/")[2] for path in registry.requests} == {"latest"}


def test_a_schema_that_is_given_has_to_be_in_the_subject(registry: Registry) -> None:
    id = registry.register("orders-value", OLD)
    registry.register("orders-value", NEW)
    assert form(registry, format="avro", schema=OLD).prefix == prefix(id)
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SCHEMA_UNKNOWN.*subject=orders-value"):
        form(registry, format="avro", schema=OLD.replace("O", "P"))
    assert len(registry.subjects["orders-value"]) == 2


def test_a_schema_is_registered_if_the_user_says_so(registry: Registry) -> None:
    assert form(registry, registers=True, format="avro", schema=OLD).schema == Schema(OLD)
    made = form(registry, registers=True, format="avro")
    assert made == WrittenForm("value", "avro", Schema(DERIVED), prefix(2))
    assert form(registry, registers=True, format="avro") == made
    assert [each.document for each in registry.subjects["orders-value"]] == [
        {"schema": OLD},
        {"schema": DERIVED},
    ]
    # Confluent's own client finds the same number.
    assert avro(registry.url, "orders", DERIVED, [{"id": 1}]).payloads[0][:5] == made.prefix


def test_columns_that_do_not_fit_register_nothing(registry: Registry) -> None:
    empty = json.dumps({"type": "record", "name": "O", "fields": []})
    with pytest.raises(UnfitSchema, match="column id is no field of record O"):
        form(registry, registers=True, format="avro", schema=empty)
    assert registry.requests == []


def test_which_message_of_protobuf(registry: Registry) -> None:
    id = registry.register("orders-value", PROTO, "PROTOBUF")
    assert form(registry, format="protobuf", message="B").prefix == prefix(id, [1])
    named = form(registry, format="protobuf", schema=PROTO, message="B")
    assert named.prefix == prefix(id, [1])
    # Tasks need no compiler.
    assert "message" not in named.schema.text
    with pytest.raises(UnfitSchema, match="column id is no field of message A"):
        form(registry, format="protobuf", schema=PROTO)


def test_a_subject_of_another_type_is_told(registry: Registry) -> None:
    registry.register("orders-value", PROTO, "PROTOBUF")
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SCHEMA_UNFIT.*of type PROTOBUF"):
        form(registry, format="avro")
    told = TopicValues(ValueOptions(key_format="avro"), settings(registry))
    with pytest.raises(KeyrangeError, match=r"REGISTRY_SUBJECT_UNKNOWN.*subject=orders-key"):
        written_form("key", pa.int64(), told, "orders", {})


@pytest.mark.parametrize("status", [409, 422])
def test_a_registry_that_refuses_a_schema_is_quoted(registry: Registry, status: int) -> None:
    registry.faults = [status]
    with pytest.raises(KeyrangeError, match=rf"REGISTRY_SCHEMA_REFUSED.*{status}.*said by"):
        schema_id(settings(registry), "s", "avro", OLD, registers=True)
    assert len(registry.requests) == 1


def test_what_passes_is_asked_again_and_registered_once(registry: Registry) -> None:
    registry.faults = [503]
    assert schema_id(settings(registry), "a/b", "avro", OLD, registers=True) == 1
    assert list(registry.subjects) == ["a/b"]
    registry.faults = [401]
    with pytest.raises(KeyrangeError, match="REGISTRY_DENIED"):
        schema_id(settings(registry), "s", "avro", OLD, registers=True)
    registry.answer = lambda *_: {"id": "1"}  # type: ignore[method-assign]
    with pytest.raises(KeyrangeError, match="REGISTRY_ANSWER_UNFIT"):
        schema_id(settings(registry), "s", "avro", OLD, registers=True)
