"""What recipes.md takes for granted: topics, a registry of schemas; and what it has to end with."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fastavro
from deltalake import DeltaTable

from brokers.committed_records import committed_records
from brokers.real_broker import Record, Topics
from registries.server import schema_registry

# The registry's address in the page.
REGISTRY = "http://registry:8081"
REGISTERED, CUSTOMERS = "orders_registered", "shop.customers"
MIRRORED, COPIED = "orders_mirrored", "orders_copied"
ORDERS = 40


ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "price", "type": "double"},
            {"name": "type", "type": "string"},
        ],
    }
)


def registered_orders(schema_id: int) -> list[Record]:
    """Orders behind the header of a registry's serializer."""
    header = struct.pack(">bI", 0, schema_id)
    schema = fastavro.parse_schema(json.loads(ORDER))

    def written(n: int) -> bytes:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, {"id": n, "price": n / 4, "type": "order"})
        return header + body.getvalue()

    return [Record(written(n), b"%d" % n) for n in range(ORDERS)]


def changes() -> list[Record]:
    """Debezium's records of a table: one row is renamed, one deleted, one deleted and back."""
    text = {"type": "string", "optional": True}
    row_fields = [{"field": name, **text} for name in ("id", "name")]
    sides = [
        {"field": side, "type": "struct", "optional": True, "fields": row_fields}
        for side in ("before", "after")
    ]
    fields = [*sides, {"field": "op", **text}, {"field": "ts_ms", "type": "int64"}]
    schemas = [{"type": "struct", "fields": each} for each in (row_fields[:1], fields)]

    def written(schema: object, payload: object) -> bytes:
        return json.dumps({"schema": schema, "payload": payload}).encode()

    def change(op: str, key: str, before: str | None, after: str | None) -> Record:
        row = lambda name: None if name is None else {"id": key, "name": name}  # noqa: E731
        value = {"op": op, "before": row(before), "after": row(after), "ts_ms": 0}
        return Record(written(schemas[1], value), written(schemas[0], {"id": key}))

    gone = Record(None, written(schemas[0], {"id": "customer 2"}))
    return [
        change("r", "customer 1", None, "Ann"),
        change("c", "customer 2", None, "Bo"),
        change("c", "customer 3", None, "Cy"),
        change("u", "customer 1", "Ann", "Anna"),
        change("d", "customer 2", "Bo", None),
        gone,
        change("d", "customer 3", "Cy", None),
        change("c", "customer 3", None, "Cyd"),
    ]


@contextmanager
def recipe_stage(topics: Topics) -> Iterator[str]:
    """The topics of the page, filled; the address of its registry."""
    for topic in (REGISTERED, CUSTOMERS, MIRRORED, COPIED):
        topics.create_named(topic, 2)
    topics.produce(CUSTOMERS, changes())
    try:
        with schema_registry() as registry:
            schema_id = registry.register(f"{REGISTERED}-value", ORDER)
            topics.produce(REGISTERED, registered_orders(schema_id))
            yield registry.url
    finally:
        for topic in (REGISTERED, CUSTOMERS, MIRRORED, COPIED):
            topics.delete_topic(topic)


def check_recipes(topics: Topics, lake: Path, topic: str, ahead: int) -> None:
    """The page's tables have what its text says; `ahead` orders are younger than all others, and in
    front of them."""

    def table(name: str, *columns: str) -> list[tuple[object, ...]]:
        rows = DeltaTable(f"{lake}/{name}").to_pyarrow_table(columns=list(columns))
        return list(zip(*rows.to_pydict().values(), strict=True))

    def count(name: str) -> int:
        return DeltaTable(f"{lake}/{name}").to_pyarrow_table().num_rows

    orders = sum(end - first for first, end in topics.offsets(topic).values())
    assert sorted(table("customers", "id", "name")) == [
        ("customer 1", "Anna"),
        ("customer 3", "Cyd"),
    ]
    registered = table("recipe_registry", "id", "price", "type")
    assert sorted(registered) == [(n, n / 4, "order") for n in range(ORDERS)]
    unpriced = count("recipe_unpriced")
    assert 0 < unpriced < orders
    assert count("recipe_priced") + unpriced == orders
    assert count("recipe_back_fill") == orders - ahead
    for name in ("json", "named", "copied", "blue", "green"):
        assert (name, count(f"recipe_{name}")) == (name, orders)
    assert set(table("recipe_named", "name")) == {("Anna",), ("Cyd",), (None,)}
    assert sum(end - first for first, end in topics.offsets(COPIED).values()) == orders
    mirrored = committed_records(topics, MIRRORED, len(topics.offsets(MIRRORED)))
    assert sum(map(len, mirrored)) == orders
