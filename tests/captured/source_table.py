"""A table of a database that is changed, and the records that Debezium writes of it: in its own
shapes for MySQL and Postgres, by Kafka Connect's JSON converter with schemas or without, or by
Confluent's Avro converter."""

from __future__ import annotations

import base64
import copy
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

UNAVAILABLE = "__debezium_unavailable_value"
DDL = (
    "id bigint, name string, day date, at timestamp_ntz, seen timestamp, price decimal(9,2), "
    "note string, blob binary, tags array<string>, counts array<int>"
)
# What Postgres does not tell of rows that were changed elsewhere: large values.
LARGE = ("note", "blob", "tags", "counts")
EPOCH = datetime(1970, 1, 1)

Row = dict[str, Any]
Written = tuple[bytes | None, bytes | None]


def connect_type(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    named = {"name": name, "version": 1} if name else {}
    return {"type": kind, "optional": True, **named, **more}


def fields_of(database: str) -> dict[str, dict[str, Any]]:
    """The columns as Kafka Connect's converter describes them."""
    decimal = {"parameters": {"scale": "2", "connect.decimal.precision": "9"}}
    time = "Timestamp" if database == "mysql" else "MicroTimestamp"
    return {
        "id": connect_type("int64") | {"optional": False},
        "name": connect_type("string"),
        "day": connect_type("int32", "io.debezium.time.Date"),
        "at": connect_type("int64", f"io.debezium.time.{time}"),
        "seen": connect_type("string", "io.debezium.time.ZonedTimestamp"),
        "price": connect_type("bytes", "org.apache.kafka.connect.data.Decimal", **decimal),
        "note": connect_type("string"),
        "blob": connect_type("bytes"),
        "tags": connect_type("array", items={"type": "string", "optional": True}),
        "counts": connect_type("array", items={"type": "int32", "optional": True}),
    }


def plain(column: str, value: Any, database: str) -> Any:
    """A value as Kafka Connect has it: bytes where it has bytes."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if column == "seen":
            return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return (value - EPOCH) // timedelta(microseconds=1000 if database == "mysql" else 1)
    if isinstance(value, date):
        return (value - EPOCH.date()).days
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(2))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return value


def clear(column: str, value: Any, database: str) -> Any:
    if isinstance(value, datetime) and column == "at":
        return f"{value.isoformat(timespec='microseconds')}Z"
    if isinstance(value, date) and column == "day":
        return f"{value}Z"
    return str(value) if isinstance(value, Decimal) else plain(column, value, database)


def placeholder(column: str) -> Any:
    data = UNAVAILABLE.encode()
    return {"note": UNAVAILABLE, "blob": data, "tags": [UNAVAILABLE], "counts": [*data]}[column]


@dataclass
class Source:
    """`rows` are what the table has. Each change answers with the records of it, in order.

    `whole`: the database's log has whole rows before a change (MySQL, REPLICA IDENTITY FULL), and
    not the key alone. `tells_keys`: whether a deletion has a row before it at all. `clear`: times
    and decimals are texts (time.precision.mode=isostring, decimal.handling.mode=string).
    """

    database: str
    write: Callable[[Source, Row | None, Row | None], Written]
    whole: bool = True
    tells_keys: bool = True
    clear: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    at_ms: int = 0

    def snapshot(self) -> list[Written]:
        return [self._record("r", row["id"], None, row) for row in self.rows.values()]

    def insert(self, row: Row) -> list[Written]:
        self.rows[row["id"]] = row
        return [self._record("c", row["id"], None, row)]

    def update(self, id: int, changed: Row) -> list[Written]:
        """A change of the key is a deletion, its tombstone and an insert."""
        before = self.rows[id]
        after = before | changed
        if after["id"] != id:
            return [*self.delete(id), *self.insert(after)]
        self.rows[id] = after
        told = copy.copy(after)
        if self.database == "postgres" and not self.whole:
            for name in LARGE:
                if name not in changed and after[name] is not None:
                    told[name] = placeholder(name)
        return [self._record("u", id, before if self.whole else None, told)]

    def delete(self, id: int) -> list[Written]:
        before = self.rows.pop(id)
        if not self.whole:
            before = dict.fromkeys(before) | {"id": id}
        key, _ = self.write(self, {"id": id}, None)
        return [self._record("d", id, before if self.tells_keys else None, None), (key, None)]

    def _record(self, op: str, id: int, before: Row | None, after: Row | None) -> Written:
        self.at_ms += 1
        envelope = {"before": self._side(before), "after": self._side(after)}
        source = {"version": "3.3.0.Final", "connector": self.database, "name": "shop"}
        source |= {"ts_ms": self.at_ms, "snapshot": "true" if op == "r" else "false", "db": "shop"}
        envelope |= {"source": source, "op": op, "ts_ms": self.at_ms, "transaction": None}
        return self.write(self, {"id": id}, envelope)

    def _side(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        own = clear if self.clear else plain
        return {name: own(name, value, self.database) for name, value in row.items()}


def json_without_schemas(source: Source, key: Row | None, value: Row | None) -> Written:
    return json_of(key), json_of(value)


def json_with_schemas(source: Source, key: Row | None, value: Row | None) -> Written:
    fields = fields_of(source.database)
    columns = [each | {"field": name} for name, each in fields.items()]
    row = {"type": "struct", "optional": True, "name": "shop.orders.Value", "fields": columns}
    plain_fields = {"op": "string", "ts_ms": "int64"}
    sides = [row | {"field": side} for side in ("before", "after")]
    others = [connect_type(kind) | {"field": name} for name, kind in plain_fields.items()]
    envelope = {"type": "struct", "name": "shop.orders.Envelope", "fields": [*sides, *others]}
    id = {"type": "struct", "name": "shop.orders.Key", "fields": columns[:1]}
    return (
        json_of({"schema": id, "payload": key}),
        json_of({"schema": envelope, "payload": value}) if value else None,
    )


def json_of(document: Any) -> bytes | None:
    if document is None:
        return None
    return json.dumps(document, default=lambda data: base64.b64encode(data).decode()).encode()


def avro_schemas(database: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of keys and values, as Confluent's converter makes them of Kafka Connect's."""
    fields = [_avro_field(name, each) for name, each in fields_of(database).items()]
    row = {"type": "record", "name": "Value", "fields": fields, "connect.name": "shop.orders.Value"}
    source_fields = ("version", "connector", "name", "snapshot", "db")
    source = {
        "type": "record",
        "name": "Source",
        "namespace": f"io.debezium.connector.{database}",
        "fields": [
            *({"name": name, "type": "string"} for name in source_fields),
            {"name": "ts_ms", "type": "long"},
        ],
    }
    optional = {"type": ["null", "long"], "default": None}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", **optional},
            {"name": "transaction", "type": ["null", "string"], "default": None},
        ],
        "connect.version": 1,
        "connect.name": "shop.orders.Envelope",
    }
    key = {"type": "record", "name": "Key", "namespace": "shop.orders", "fields": fields[:1]}
    return key, envelope


def _avro_field(name: str, connect: dict[str, Any]) -> dict[str, Any]:
    kinds = {"int32": "int", "int64": "long"}
    said: Any = kinds.get(connect["type"], connect["type"])
    if said == "array":
        said = {"type": "array", "items": ["null", kinds.get(connect["items"]["type"], "string")]}
    if "name" in connect:
        said = {"type": said, "connect.version": 1, "connect.name": connect["name"]}
    if parameters := connect.get("parameters"):
        said |= {
            "logicalType": "decimal",
            "precision": int(parameters["connect.decimal.precision"]),
            "scale": int(parameters["scale"]),
            "connect.parameters": parameters,
        }
    if not connect["optional"]:
        return {"name": name, "type": said}
    return {"name": name, "type": ["null", said], "default": None}


def avro_with_ids(
    key_id: int, value_id: int
) -> Callable[[Source, Row | None, Row | None], Written]:
    """Behind the ids of a registry's schemas."""
    parsed: dict[str, Any] = {}

    def written(source: Source, key: Row | None, value: Row | None) -> Written:
        if source.database not in parsed:
            # fastavro would write decimals itself.
            texts = (json.dumps(each) for each in avro_schemas(source.database))
            plain_ = (json.loads(text.replace('"logicalType"', '"was"')) for text in texts)
            parsed[source.database] = [*map(fastavro.parse_schema, plain_)]
        schemas = parsed[source.database]
        found = []
        for id, schema, datum in zip((key_id, value_id), schemas, (key, value), strict=True):
            body = io.BytesIO()
            if datum is not None:
                fastavro.schemaless_writer(body, schema, datum)
            found.append(struct.pack(">bI", 0, id) + body.getvalue() if datum else None)
        return found[0], found[1]

    return written
