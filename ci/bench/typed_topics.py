"""Records whose values have types: nested JSON, Avro and Protobuf as the serializers of a schema
registry write them, and changes of keys. All but the nested ones are the events of `topics`."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import protobuf_events
from bench.topics import EVENT_BYTES, OBJECT, objects, records

# What such an event has in Avro and in Protobuf besides its note, and a document of `nested`.
_AVRO_BYTES = 55
_PROTOBUF_BYTES = 58
_NESTED_BYTES = 555
_PARTS = ("origin", "dest", "carrier", "weather")
# What the values of `nested` hold: twenty fields with values.
NESTED = (
    "id bigint, at timestamp, "
    + ", ".join(
        f"{name} struct<{name[0]}code string, {name[0]}count int, {name[0]}share double, "
        f"{name[0]}ok boolean>"
        for name in _PARTS
    )
    + ", tags array<string>, note string"
)
_AVRO_TYPES = {
    "string": "string",
    "int": "int",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
}
# The schema's id in the registry.
ID = 7
HEADER = bytes(1) + ID.to_bytes(4, "big")
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": name, "type": ["null", _AVRO_TYPES[kind]], "default": None}
            for name, kind in (each.split() for each in OBJECT.split(", "))
        ],
    }
)


def nested(spark: SparkSession, rows: int, value_bytes: int, partitions: int) -> DataFrame:
    """Values that are JSON of twenty fields, some within others (`NESTED`)."""
    part = "named_struct('{0}code', hex(xxhash64(id, {1})), '{0}count', pmod(hash(id, {1}), 9999), "
    part += "'{0}share', pmod(hash(id, {1}), 1000) / 7.0, '{0}ok', id % 2 = 0)"
    parts = ", ".join(f"'{name}', {part.format(name[0], at)}" for at, name in enumerate(_PARTS))
    pad = f"rpad('', {value_bytes - _NESTED_BYTES}, 'late aircraft, ')"
    at = "timestamp_seconds(1372636800 + id % 2678400)"
    others = f"'tags', array('a', 'b', 'c'), 'note', {pad}"
    value = f"to_json(named_struct('id', id, 'at', {at}, {parts}, {others}))"
    frame = records(spark, rows, value_bytes, partitions)
    return frame.selectExpr("id", "key", f"{value} AS value", "partition")


def avro(spark: SparkSession, rows: int, value_bytes: int, partitions: int) -> DataFrame:
    """Events as Avro behind the header of Confluent's serializers, of the schema `AVRO`."""
    from pyspark.sql.avro.functions import to_avro

    frame = _events(spark, rows, value_bytes, partitions, _AVRO_BYTES)
    value = F.concat(F.lit(HEADER), to_avro(F.from_json("value", OBJECT), AVRO))
    return frame.withColumn("value", value)


def protobuf(spark: SparkSession, rows: int, value_bytes: int, partitions: int) -> DataFrame:
    """Events as Protobuf behind the header of Confluent's serializers, of the first message of the
    schema `protobuf_events.SOURCE`."""
    frame = _events(spark, rows, value_bytes, partitions, _PROTOBUF_BYTES)
    typed = frame.select("key", "partition", F.from_json("value", OBJECT).alias("e"))
    typed = typed.select("key", "partition", "e.*")
    return typed.mapInArrow(protobuf_events.encoded, "key string, value binary, partition int")


def _events(
    spark: SparkSession, rows: int, value_bytes: int, partitions: int, bytes_: int
) -> DataFrame:
    """Events as JSON, with notes as long as those of another form in which an event has `bytes_`:
    of the JSON only the note's text is as long there."""
    return objects(spark, rows, value_bytes + EVENT_BYTES - bytes_, partitions)


def changes(
    spark: SparkSession, batches: int, keys: int, value_bytes: int, partitions: int
) -> DataFrame:
    """Batches of changes: each has `keys` keys, a quarter of them twice, and a tenth of them are
    none of the batch before. A key is in one partition; `keys` is a multiple of 40."""
    of_batch = keys + keys // 4
    number = f"(id % {of_batch} % {keys} + id DIV {of_batch} * {keys // 10})"
    frame = objects(spark, batches * of_batch, value_bytes, partitions)
    key = f"concat('key-', lpad({number}, 8, '0'))"
    return frame.selectExpr("id", f"{key} AS key", "value", "partition")
