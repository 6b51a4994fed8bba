"""Messages as confluent-kafka's own serializers make them, for a registry at a URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

Header = tuple[str, bytes]


@dataclass(frozen=True)
class Messages:
    """Payloads, and the headers of each."""

    payloads: Sequence[bytes]
    headers: Sequence[Sequence[Header]]


def avro(
    url: str, topic: str, schema: str, values: Sequence[Any], in_header: bool = False
) -> Messages:
    return _made(AvroSerializer(_client(url), schema, conf=_conf(in_header)), topic, values)


def json_schema(url: str, topic: str, schema: str, values: Sequence[Any]) -> Messages:
    return _made(JSONSerializer(schema, _client(url)), topic, values)


def protobuf(url: str, topic: str, values: Sequence[Any], in_header: bool = False) -> Messages:
    """Of one class of messages."""
    serializer = ProtobufSerializer(type(values[0]), _client(url), _conf(in_header))
    return _made(serializer, topic, values)


def _client(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


def _conf(in_header: bool) -> dict[str, Any]:
    return {"schema.id.serializer": header_schema_id_serializer} if in_header else {}


def _made(serializer: Any, topic: str, values: Sequence[Any]) -> Messages:
    payloads, headers = [], []
    for value in values:
        told: list[Header] = []
        context = SerializationContext(topic, MessageField.VALUE, told)
        payloads.append(serializer(value, context))
        headers.append(told)
    return Messages(payloads, headers)
