"""What recipes.md takes for granted: topics, a registry of schemas; and what it has to end with."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from deltalake import DeltaTable

from brokers.real_broker import Record, Topics

# The registry's address in the page.
REGISTRY = "http://registry:8081"
SCHEMA_ID = 7
REGISTERED, CUSTOMERS, COPIED = "orders_registered", "customers", "orders_copied"
ORDERS = 40


class _Registry(BaseHTTPRequestHandler):
    """Answers as a registry does, with the one schema that it has."""

    def do_GET(self) -> None:  # the base class's name
        found = self.path == f"/schemas/ids/{SCHEMA_ID}"
        schema = json.dumps({"title": "order", "type": "object"})
        answer = json.dumps({"schema": schema} if found else {"error_code": 40403}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def registered_orders() -> list[Record]:
    """Orders behind the header of a registry's serializer."""
    header = struct.pack(">bI", 0, SCHEMA_ID)
    return [
        Record(header + json.dumps({"id": n, "price": n / 4}).encode(), b"%d" % n)
        for n in range(ORDERS)
    ]


def changes() -> list[Record]:
    """Debezium's records of a table: one row is renamed, one deleted, one deleted and back."""

    def change(op: str, key: str, before: str | None, after: str | None) -> Record:
        row = lambda name: None if name is None else {"id": key, "name": name}  # noqa: E731
        value = {"op": op, "before": row(before), "after": row(after), "ts_ms": 0}
        return Record(json.dumps(value).encode(), json.dumps({"id": key}).encode())

    gone = Record(None, json.dumps({"id": "customer 2"}).encode())
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
    for topic in (REGISTERED, CUSTOMERS, COPIED):
        topics.create_named(topic, 2)
    topics.produce(REGISTERED, registered_orders())
    topics.produce(CUSTOMERS, changes())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        for topic in (REGISTERED, CUSTOMERS, COPIED):
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
