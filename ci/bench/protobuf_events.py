"""The events of `topics` as messages of Protobuf: the schema, and both ways between columns and
messages with the upb of Google's library, as `mapInArrow` calls them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

_TYPES: Final = {"string": pa.string(), "int32": pa.int32()}
_TIME: Final = pa.timestamp("us", tz="UTC")
# As `topics.OBJECT` has them.
_FIELDS: Final = {
    "carrier": "string",
    "flight": "int32",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "time": "google.protobuf.Timestamp",
    "delay": "int32",
    "distance": "int32",
    "trace": "string",
    "note": "string",
}
SOURCE: Final = "\n".join(
    [
        'syntax = "proto3";',
        'import "google/protobuf/timestamp.proto";',
        "message Event {",
        *(f"  {kind} {name} = {at};" for at, (name, kind) in enumerate(_FIELDS.items(), 1)),
        "}",
    ]
)
ID: Final = 8
# Behind the id the indexes of the message: that of the first one is written as one byte.
HEADER: Final = bytes(1) + ID.to_bytes(4, "big") + bytes(1)


def _event() -> Any:
    """The class that protoc makes of the source."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto", syntax="proto3", dependency=[timestamp_pb2.DESCRIPTOR.name]
    )
    message = file.message_type.add(name="Event")
    for at, (name, kind) in enumerate(_FIELDS.items(), 1):
        field = message.field.add(name=name, number=at, label=kinds.LABEL_OPTIONAL)
        if kind in _TYPES:
            field.type = getattr(kinds, f"TYPE_{kind.upper()}")
        else:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Event"))


Event: Final = _event()


def encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages behind their header, of columns that are called as their fields are."""
    for batch in batches:
        values = []
        for row in batch.select(list(_FIELDS)).to_pylist():
            seconds = int(row.pop("time").timestamp())
            event = Event(**row, time={"seconds": seconds})
            values.append(HEADER + event.SerializeToString())
        value = pa.array(values, pa.binary())
        columns = [batch.column("key"), value, batch.column("partition")]
        yield pa.RecordBatch.from_arrays(columns, ["key", "value", "partition"])


def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The fields of messages in the place of column `value`."""
    start = len(HEADER)
    for batch in batches:
        messages = [Event.FromString(value[start:]) for value in batch.column("value").to_pylist()]
        columns = {}
        for name in batch.schema.names:
            if name == "value":
                columns |= {each: _column(messages, each) for each in _FIELDS}
            else:
                columns[name] = batch.column(name)
        yield pa.RecordBatch.from_pydict(columns)


def _column(messages: list[Any], name: str) -> pa.Array:
    if name == "time":
        times = [each.time for each in messages]
        return pa.array([at.seconds * 1_000_000 + at.nanos // 1_000 for at in times], _TIME)
    return pa.array(list(map(attrgetter(name), messages)), _TYPES[_FIELDS[name]])
