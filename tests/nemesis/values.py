"""How the values of a run's records are written, by a serializer that is not the one under test.

Those of Avro have a schema registry. The schema gets a field now and then, and two writers write at
any time: one knows the latest schema, the other one that before it.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final, Protocol

import fastavro

from nemesis import work
from nemesis.windows import weight
from nemesis.work import ADDED_DEFAULT, Content, added
from registries.server import Registry, served

_HEADER_BYTES: Final = 5


class Values(Protocol):
    """`options` are the source's; `fields` is how many were added so far."""

    fields: int
    options: Mapping[str, str]

    def written(self, said: Content, at_ms: int, padding: int, chance: random.Random) -> bytes:
        """A value; `padding` is how many bytes it has beside what it says. `at_ms`: its event time,
        in ms since 1970."""

    def content(self, value: bytes) -> Content: ...

    def close(self) -> None: ...


class RawValues:
    fields = 0
    options: Mapping[str, str] = {}

    def written(self, said: Content, at_ms: int, padding: int, chance: random.Random) -> bytes:
        return work.written(said, padding)

    def content(self, value: bytes) -> Content:
        return work.content(value)

    def close(self) -> None:
        pass


class JsonValues:
    """With a time, and a number of which there is no sum where a record is to fail."""

    fields = 0
    options: Mapping[str, str] = {
        "valueSchema": "run string, n bigint, mark string, at bigint, weight bigint",
        "badValues": "deadLetter",
    }

    def written(self, said: Content, at_ms: int, padding: int, chance: random.Random) -> bytes:
        value = {**said._asdict(), "at": at_ms, "weight": weight(said.mark), "_": "x" * padding}
        return json.dumps(value).encode()

    def content(self, value: bytes) -> Content:
        found = json.loads(value)
        return Content(found["run"], found["n"], found["mark"])

    def close(self) -> None:
        pass


class AvroValues:
    """Of a topic, in Confluent's wire format. The registry's address is the run's alone."""

    def __init__(self, run: str, topic: str) -> None:
        self.registry = Registry(base=f"/{run}")
        self._subject = f"{topic}-value"
        self._serving = ExitStack()
        self.answers = False
        self._schemas: dict[int, Any] = {}
        self._ids: list[int] = []
        self.restart()
        self.grow()

    @property
    def options(self) -> Mapping[str, str]:
        return {"schemaRegistry.url": self.registry.url}

    @property
    def fields(self) -> int:
        return len(self._ids) - 1

    def grow(self) -> None:
        """From now on there are values with one field more."""
        document = schema_of(len(self._ids))
        id = self.registry.register(self._subject, json.dumps(document))
        self._schemas[id] = fastavro.parse_schema(document)
        self._ids.append(id)

    def kill(self) -> None:
        """Nobody answers at the registry's address."""
        self._serving.close()
        self.answers = False

    def restart(self) -> None:
        """At the address that it had before, with all that it knew."""
        self._serving.enter_context(served(self.registry))
        self.answers = True

    def written(self, said: Content, at_ms: int, padding: int, chance: random.Random) -> bytes:
        writer = max(self.fields - chance.randrange(2), 0)
        value = {**said._asdict(), "writer": writer, "padding": bytes(padding)}
        value |= {f"f{at}": added(said.n, at) for at in range(1, writer + 1)}
        id = self._ids[writer]
        payload = io.BytesIO()
        fastavro.schemaless_writer(payload, self._schemas[id], value)
        return bytes(1) + id.to_bytes(4, "big") + payload.getvalue()

    def content(self, value: bytes) -> Content:
        schema = self._schemas[int.from_bytes(value[1:_HEADER_BYTES], "big")]
        read: Any = fastavro.schemaless_reader(io.BytesIO(value[_HEADER_BYTES:]), schema, None)
        return Content(read["run"], read["n"], read["mark"])

    def close(self) -> None:
        self._serving.close()


def values_of(kind: str, run: str, topic: str) -> Values:
    if kind == "avro":
        return AvroValues(run, topic)
    return JsonValues() if kind == "json" else RawValues()


def schema_of(fields: int) -> dict[str, Any]:
    """With so many added fields."""
    own = {"run": "string", "n": "long", "mark": "string", "writer": "int", "padding": "bytes"}
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            *({"name": name, "type": kind} for name, kind in own.items()),
            *(
                {"name": f"f{at}", "type": ["long", "null"], "default": ADDED_DEFAULT}
                for at in range(1, fields + 1)
            ),
        ],
    }
