"""Changes in the shapes that Debezium itself shows: which fields there are, how schemas describe
them, and numbers and bytes that connectors have written.

What is here are facts from, with texts of our own:

- debezium/debezium at aad5519902: documentation/modules/ROOT/pages/connectors/postgresql.adoc,
  sqlserver.adoc and oracle.adoc, partials/modules/all-connectors/shared-mariadb-mysql.adoc, and
  debezium-connector-common/src/test/resources/json/serde-with-schema.json
- debezium/debezium pull request 4400 (arrays of bytes)
- memiiso/debezium-server-iceberg at 0352d56a: serde-with-schema_geom.json (a row that
  ExtractNewRecordState took out of an event of Postgres)
- risingwavelabs/risingwave pull request 19792 (a numeric(4,4)), artie-labs/reader pull request 302
  (money, a numeric without a scale)
- vdesabou/kafka-docker-playground issues 7146, 7232 and 7123 (Avro schemas that Confluent's
  converter has registered)
"""

from __future__ import annotations

import base64
import io
import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from keyrange.formats.format import change_format_of, format_of
from keyrange.formats.payloads import Payloads, ReadValues
from keyrange.model.value_forms import DELETED, ReadSettings, Schema

SETTINGS = ReadSettings()
ROW = {"id": 1004, "first_name": "a", "last_name": "b", "email": "a@b.example"}
OTHER = ROW | {"email": "c@b.example"}
TS_MS = 1465491411815
# By connector the fields of `source` beside those that all have, with values of theirs. What the
# documents say is not always what their schema says: event_serial_no is a number there.
SOURCES: dict[str, dict[str, tuple[str, Any]]] = {
    "mysql": {
        "snapshot": ("boolean", False),
        "server_id": ("int64", 223344),
        "gtid": ("string", None),
        "file": ("string", "mysql-bin.000003"),
        "pos": ("int64", 484),
        "row": ("int32", 0),
        "thread": ("int64", 7),
        "query": ("string", None),
    },
    "postgresql": {
        "snapshot": ("boolean", True),
        "sequence": ("string", '["24023119","24023128"]'),
        "schema": ("string", "public"),
        "txId": ("int64", 555),
        "lsn": ("int64", 24023128),
        "xmin": ("int64", None),
    },
    "sqlserver": {
        "snapshot": ("boolean", "last"),
        "schema": ("string", "dbo"),
        "change_lsn": ("string", "00000027:00000758:0003"),
        "commit_lsn": ("string", "00000027:00000758:0005"),
        "event_serial_no": ("int64", "1"),
    },
    "oracle": {
        "snapshot": ("boolean", "false"),
        "txId": ("string", "6.28.807"),
        "scn": ("string", "2122185"),
        "rs_id": ("string", "001234.00012345.0124"),
        "ssn": ("int64", 1),
        "row_id": ("string", "AAASgjAAMAAAACnAAA"),
        "commit_ts_ms": ("int64", 1520085154000),
    },
}


def connect(kind: str, field: str, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": field, **more}


CUSTOMERS = [connect("int32", "id"), *(connect("string", each) for each in [*ROW][1:])]


def envelope(columns: list[dict[str, Any]], connector: str) -> dict[str, Any]:
    """The schema that Kafka Connect's JSON converter writes of an event."""
    row = {"fields": columns, "name": "server.inventory.customers.Value"}
    source = [connect(kind, name, True) for name, (kind, _) in SOURCES[connector].items()]
    source += [connect("string", "version"), connect("int64", "ts_ms")]
    times = [connect("int64", name, True) for name in ("ts_ms", "ts_us", "ts_ns")]
    order = [connect("int64", name) for name in ("total_order", "data_collection_order")]
    fields = [
        *(connect("struct", side, True, **row) for side in ("before", "after")),
        connect(
            "struct", "source", fields=source, name=f"io.debezium.connector.{connector}.Source"
        ),
        connect("struct", "transaction", True, fields=[connect("string", "id"), *order]),
        connect("string", "op"),
        *times,
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": "server.Envelope"}


def event(connector: str, op: str, **sides: Any) -> dict[str, Any]:
    source = {name: value for name, (_, value) in SOURCES[connector].items()}
    times = {"ts_ms": TS_MS, "ts_us": TS_MS * 1000, "ts_ns": TS_MS * 1000_000}
    return {**sides, "source": source | {"version": "3.3.0.Final", "ts_ms": 0}, "op": op, **times}


def read(payloads: list[bytes | None], schema: Schema, form: str = "debezium") -> ReadValues:
    decoder = format_of(form).decoder(schema, schema, SETTINGS)
    found = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
    found.column.validate(full=True)
    assert found.bad == {}
    return found


def change(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": TS_MS}


@pytest.mark.parametrize("connector", SOURCES)
@pytest.mark.parametrize("has_schemas", [True, False])
def test_changes_of_each_connector(connector: str, has_schemas: bool) -> None:
    """Postgres tells of the row before no more than its key, and leaves the other fields out."""
    before = {"id": 1004} if connector == "postgresql" else ROW
    events = [
        event(connector, "r", before=None, after=ROW),
        event(connector, "c", before=None, after=ROW) | {"transaction": None},
        event(connector, "u", before=before, after=OTHER),
        event(connector, "d", before=before, after=None),
        event(connector, "t"),
    ]
    schema = envelope(CUSTOMERS, connector)
    documents = [{"schema": schema, "payload": each} for each in events]
    said = change_format_of("debezium").said_by(json.dumps(documents[0]).encode())
    assert said is not None
    written = [json.dumps(each).encode() for each in (documents if has_schemas else events)]
    found = read([*written, None], said)
    told = dict.fromkeys(ROW) | before
    assert found.column.to_pylist() == [
        change("r", None, ROW),
        change("c", None, ROW),
        change("u", told, OTHER),
        change("d", told),
        change("t"),
        None,
    ]


def test_a_message_to_the_log() -> None:
    payload = event("postgresql", "m") | {"message": {"prefix": "foo", "content": "Ymfy"}}
    document = {"schema": envelope(CUSTOMERS, "postgresql"), "payload": payload}
    written = json.dumps(document).encode()
    said = change_format_of("debezium").said_by(written)
    assert said is not None
    assert read([written], said).column.to_pylist() == [change("m")]


def test_the_rows_after_changes_of_postgres() -> None:
    """A deletion says its key in `before`, and the tombstone behind it in its own alone."""
    format_ = change_format_of("debezium")
    documents = [
        {"schema": envelope(CUSTOMERS, "postgresql"), "payload": each}
        for each in (
            event("postgresql", "c", before=None, after=ROW),
            event("postgresql", "d", before={"id": 1004}, after=None),
        )
    ]
    written = [json.dumps(each).encode() for each in documents]
    said = format_.said_by(written[0])
    assert said is not None
    changes = read([*written, None], said)
    key = {"schema": {"type": "struct", "fields": CUSTOMERS[:1]}, "payload": {"id": 1004}}
    keys = [json.dumps(key).encode()]

    def read_keys(rows: Any) -> ReadValues:
        return read(keys * len(rows), format_.key_schema(said, ["id"]), "connect")

    present = changes.column.is_valid().to_numpy(zero_copy_only=False)
    rows = format_.rows(changes, present, ["id"], read_keys)
    assert rows.bad == {}
    assert [(row["id"], row["email"], row[DELETED]) for row in rows.column.to_pylist()] == [
        (1004, "a@b.example", False),
        (1004, None, True),
        (1004, None, True),
    ]


DECIMAL = "org.apache.kafka.connect.data.Decimal"
COLUMNS: list[tuple[dict[str, Any], Any, Any]] = [
    (
        connect(
            "bytes",
            "d",
            name=DECIMAL,
            version=1,
            parameters={"scale": "4", "connect.decimal.precision": "4"},
        ),
        "CSo=",
        Decimal("0.2346"),
    ),
    (
        connect("bytes", "money", name=DECIMAL, version=1, parameters={"scale": "2"}),
        "T30t",
        Decimal("52093.89"),
    ),
    (
        connect(
            "struct",
            "variable",
            True,
            name="io.debezium.data.VariableScaleDecimal",
            version=1,
            fields=[connect("int32", "scale"), connect("bytes", "value")],
        ),
        {"scale": 5, "value": "AYHN"},
        "0.98765",
    ),
    (
        connect("array", "metadata", True, items={"type": "bytes", "optional": True}),
        ["RGViZXppdW0K", "Um9ja3MK"],
        [base64.b64decode("RGViZXppdW0K"), base64.b64decode("Um9ja3MK")],
    ),
    (
        connect(
            "struct",
            "box",
            True,
            name="io.debezium.data.geometry.Geometry",
            fields=[
                connect("bytes", "wkb"),
                connect("int32", "srid", True),
                connect(
                    "map",
                    "extensions",
                    True,
                    keys={"type": "string"},
                    values={"type": "string", "optional": True},
                ),
            ],
        ),
        {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAPA/", "srid": None, "extensions": {"type": "box"}},
        {
            "wkb": base64.b64decode("AQEAAAAAAAAAAADwPwAAAAAAAPA/"),
            "srid": None,
            "extensions": [("type", "box")],
        },
    ),
]


def test_values_that_connectors_wrote() -> None:
    columns = [column for column, _, _ in COLUMNS]
    after = {column["field"]: written for column, written, _ in COLUMNS}
    payload = event("postgresql", "c", before=None, after=after)
    document = {"schema": envelope(columns, "postgresql"), "payload": payload}
    written = json.dumps(document).encode()
    said = change_format_of("debezium").said_by(written)
    assert said is not None
    [found] = read([written], said).column.to_pylist()
    assert found["after"] == {column["field"]: wanted for column, _, wanted in COLUMNS}


def test_a_row_that_was_taken_out_of_its_event() -> None:
    point = [connect("string", "wkb"), connect("int32", "srid", True)]
    geometry = {"name": "io.debezium.data.geometry.Geometry", "version": 1, "fields": point}
    columns = [
        connect("int32", "id", default=0),
        *(connect("struct", name, True, doc="Geometry", **geometry) for name in ("g", "h")),
        *(connect("string", name, True) for name in ("__op", "__table", "__deleted")),
        connect("int64", "__source_ts_ms", True),
    ]
    row = {"id": 1, "g": {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAPA/", "srid": 123}, "h": None}
    row |= {"__op": "r", "__table": "geom", "__source_ts_ms": 1634844424986, "__deleted": "false"}
    document = {"schema": {"type": "struct", "fields": columns}, "payload": row}
    written = json.dumps(document).encode()
    said = format_of("connect").said_by(written)
    assert said is not None
    assert read([written], said, "connect").column.to_pylist() == [row]


def avro_envelope() -> dict[str, Any]:
    """A null stands last where a column has a default, times are unions with names of Connect."""
    time = {"type": "long", "connect.version": 1, "connect.default": 0}
    time["connect.name"] = "io.debezium.time.MicroTimestamp"
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "email", "type": ["null", "string"], "default": None},
            {"name": "create_ts", "type": [time, "null"], "default": 0},
        ],
        "connect.name": "asgard.public.customers.Value",
    }
    allowed = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
    snapshot = {
        "type": "string",
        "connect.version": 1,
        "connect.parameters": {"allowed": allowed},
        "connect.default": "false",
        "connect.name": "io.debezium.data.Enum",
    }
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.v2.postgresql",
        "fields": [
            {"name": "version", "type": "string"},
            {"name": "ts_ms", "type": "long"},
            {"name": "snapshot", "type": [snapshot, "null"], "default": "false"},
        ],
        "connect.name": "io.debezium.connector.v2.postgresql.Source",
    }
    numbers = ("total_order", "data_collection_order")
    block = {
        "type": "record",
        "name": "block",
        "namespace": "event",
        "fields": [
            {"name": "id", "type": "string"},
            *({"name": name, "type": "long"} for name in numbers),
        ],
        "connect.version": 1,
        "connect.name": "event.block",
    }
    optional = {"type": ["null", "long"], "default": None}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "asgard.public.customers",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "transaction", "type": ["null", block], "default": None},
            {"name": "op", "type": "string"},
            *({"name": name, **optional} for name in ("ts_ms", "ts_us", "ts_ns")),
        ],
        "connect.version": 2,
        "connect.name": "asgard.public.customers.Envelope",
    }


def test_changes_in_avro_as_confluents_converter_registers_them() -> None:
    schema = avro_envelope()
    row = {"id": 1, "email": None, "create_ts": 1_720_000_000_123_456}
    block = {"id": "571:53195832", "total_order": 1, "data_collection_order": 1}
    source = {"version": "3.3.0.Final", "ts_ms": 0, "snapshot": "last"}
    rest = {"source": source, "ts_ms": TS_MS, "ts_us": None, "ts_ns": TS_MS * 1000_000}
    events = [
        {"before": None, "after": row, "op": "r", "transaction": None, **rest},
        {
            "before": row,
            "after": row | {"create_ts": None},
            "op": "u",
            "transaction": block,
            **rest,
        },
    ]
    payloads = []
    for each in events:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), each)
        payloads.append(out.getvalue())
    found = read([*payloads], Schema(json.dumps(schema)))
    shown = row | {"create_ts": datetime(2024, 7, 3, 9, 46, 40, 123_456)}
    assert found.column.to_pylist() == [
        change("r", None, shown),
        change("u", shown, row | {"create_ts": None}),
    ]
