"""Messages of confluent-kafka's serializers are read through a registry: run on the tests' own
registry and on a real one."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings
from keyrange.options.registry import RegistrySettings
from keyrange.ranges.sharing import shared_directory
from keyrange.registry.framed_decoder import FramedDecoder
from keyrange.registry.schema_lookup import schemas_of
from keyrange.registry.subjects import reader_schema
from registries.confluent import Messages, avro, json_schema, protobuf
from registries.contract import CITY, PLACE, VISIT, refers, register
from registries.framed import HEADER, prefix

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
NOTED = (
    '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
JSON = '{"title":"Order","type":"object","properties":{"id":{"type":"integer"}}}'


def message_classes() -> dict[str, Any]:
    """By their names: the file's first and second message, and three within the first."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    outer = file.message_type.add(name="Order")
    file.message_type.add(name="Item")
    deeper = outer
    for name in ("Line", "Part", "Lot"):
        deeper = deeper.nested_type.add(name=name)
    made = [*file.message_type]
    for each in made:
        each.field.add(name="id", number=1, type=3, label=1)
        made.extend(each.nested_type)
    pool = DescriptorPool()
    pool.Add(file)
    names = ("Order", "Item", "Order.Line", "Order.Line.Part", "Order.Line.Part.Lot")
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


def read(
    url: str, topic: str, name: str, *messages: Messages, message: str = "", others: int = 0
) -> list[Any]:
    """The values of messages, one batch for all of them. Of Protobuf those of one message are read,
    and `others` are bad."""
    settings, format_ = RegistrySettings(urls=(url,)), format_of(name)
    said = reader_schema(settings, f"{topic}-value", name)
    reader = replace(said, schema=format_.told(replace(said.schema, message=message)))
    payloads = [each for some in messages for each in some.payloads]
    headers = [
        [{"key": key, "value": value} for key, value in each]
        for some in messages
        for each in some.headers
    ]
    decoder = FramedDecoder(schemas_of(settings, said), reader, format_, ReadSettings())
    found = decoder.read(Payloads.of(pa.array(payloads, pa.binary())), pa.array(headers, HEADER))
    assert len(found.bad) == others, found.bad
    return found.column.drop_null().to_pylist()  # type: ignore[no-any-return]


class SerializerCases:
    """`url` is a fixture, `has_guids` says whether the registry knows schemas by GUIDs."""

    has_guids = True

    @pytest.fixture(autouse=True)
    def _memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No registry of another run, at the same address, has left anything."""
        monkeypatch.setattr(shared_directory, "_SHARED_MEMORY", tmp_path)

    @pytest.fixture
    def topic(self) -> str:
        return uuid.uuid4().hex

    def test_avro_of_two_schemas(self, url: str, topic: str) -> None:
        old = avro(url, topic, ORDER, [{"id": 1}, {"id": 2**40}])
        new = avro(url, topic, NOTED, [{"id": 3, "note": "a"}, {"id": 4, "note": None}])
        assert read(url, topic, "avro", old, new, old) == [
            {"id": 1, "note": None},
            {"id": 2**40, "note": None},
            {"id": 3, "note": "a"},
            {"id": 4, "note": None},
            {"id": 1, "note": None},
            {"id": 2**40, "note": None},
        ]

    def test_avro_with_references(self, url: str, topic: str) -> None:
        register(url, f"{topic}.city", CITY)
        city = refers("geo.City", f"{topic}.city")
        register(url, f"{topic}.place", PLACE, "AVRO", city)
        place = refers("geo.Place", f"{topic}.place")
        id = register(url, f"{topic}-value", VISIT, "AVRO", place, city)
        named: dict[str, Any] = {}
        for text in (CITY, PLACE, VISIT):
            schema = fastavro.parse_schema(json.loads(text), named)
        value = {"from": {"city": {"n": "Bern"}}, "in": {"n": "Basel"}}
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, value)
        messages = Messages([prefix(id) + written.getvalue()], [[]])
        assert read(url, topic, "avro", messages) == [value]

    def test_json(self, url: str, topic: str) -> None:
        values = [{"id": 1}, {"id": 2}]
        messages = json_schema(url, topic, JSON, values)
        assert read(url, topic, "json", messages) == values

    @pytest.mark.parametrize("name", message_classes())
    def test_messages_of_protobuf(self, url: str, topic: str, name: str) -> None:
        made = message_classes()[name]
        messages = protobuf(url, topic, [made(id=1), made(id=2)])
        found = read(url, topic, "protobuf", messages, message=f"shop.{name}")
        assert found == [{"id": 1}, {"id": 2}]

    def test_several_messages_of_protobuf(self, url: str, topic: str) -> None:
        some = [protobuf(url, topic, [made(id=7)]) for made in message_classes().values()]
        found = read(url, topic, "protobuf", *some, message="Line", others=4)
        assert found == [{"id": 7}]

    def test_protobuf_that_imports_other_files(self, url: str, topic: str) -> None:
        """The serializer registers each, under a subject of its own."""
        money = descriptor_pb2.FileDescriptorProto(name=f"{topic}/money.proto", syntax="proto3")
        money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
        order = descriptor_pb2.FileDescriptorProto(name=f"{topic}/order.proto", syntax="proto3")
        order.dependency.append(money.name)
        price = order.message_type.add(name="Order").field.add(name="price", number=1, label=1)
        price.type, price.type_name = price.TYPE_MESSAGE, ".Money"
        pool = DescriptorPool()
        pool.Add(money)
        pool.Add(order)
        made = GetMessageClass(pool.FindMessageTypeByName("Order"))()
        made.price.cents = 5
        found = read(url, topic, "protobuf", protobuf(url, topic, [made]))
        assert found == [{"price": {"cents": 5}}]

    def test_schemas_in_headers(self, url: str, topic: str) -> None:
        if not self.has_guids:
            pytest.skip("this registry has no GUIDs")
        told = avro(url, topic, ORDER, [{"id": 1}], in_header=True)
        assert told.headers[0][0][0] == "__value_schema_id"
        before = avro(url, topic, NOTED, [{"id": 2, "note": "a"}])
        found = read(url, topic, "avro", before, told)
        assert found == [{"id": 2, "note": "a"}, {"id": 1, "note": None}]
        made = message_classes()["Order.Line"]
        told = protobuf(url, f"{topic}2", [made(id=3)], in_header=True)
        assert read(url, f"{topic}2", "protobuf", told, message="Line") == [{"id": 3}]
