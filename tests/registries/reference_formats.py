"""Formats by their reference libraries, whose column is the value as JSON text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import ReadSettings, Schema, UnfitSchema


class ByJson:
    type = pa.string()

    def __init__(self, read: Callable[[bytes], Any]) -> None:
        self._read = read

    def read(self, payloads: Payloads) -> ReadValues:
        values = [payloads.row(at) for at in range(len(payloads))]
        texts = [None if each is None else json.dumps(self._read(each)) for each in values]
        return ReadValues(pa.array(texts, pa.string()), {})


class _Format:
    def type_of(self, schema: Schema, settings: ReadSettings) -> pa.DataType:
        return pa.string()


class JsonByJson(_Format):
    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> ByJson:
        return ByJson(json.loads)


class ProtobufByProtobuf(_Format):
    """Of a file's descriptor in base64, as confluent-kafka registers it; without references."""

    def decoder(self, reader: Schema, writer: Schema, settings: ReadSettings) -> ByJson:
        pool = DescriptorPool()
        pool.Add(_file(writer))
        made = GetMessageClass(pool.FindMessageTypeByName(writer.message))
        return ByJson(lambda data: json_format.MessageToDict(made.FromString(data)))

    def message_at(self, schema: Schema, indexes: tuple[int, ...]) -> str:
        file = _file(schema)
        name, inner = file.package, file.message_type
        try:
            for index in indexes:
                name, inner = f"{name}.{inner[index].name}", inner[index].nested_type
        except IndexError:
            raise UnfitSchema("it has no such message") from None
        return name


def _file(schema: Schema) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
