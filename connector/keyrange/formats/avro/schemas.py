"""Avro's schemas as their JSON says them, with each name replaced by what it names.

The rules are those of the specification 1.12. A logical type that the specification does not know,
or that is on another type than its own, is left aside, as there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.value_forms import Schema, UnfitSchema

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
NAMED: Final = frozenset(("record", "enum", "fixed"))
MISSING: Final = object()
FIXED_BYTES_MAX: Final = 1 << 24
DEPTH_MAX: Final = 100
# Of Kafka Connect's names those that stand for no logical type of Avro's: its format reads them
# further.
CONNECT_NANOS: Final = "io.debezium.time.NanoTimestamp"
CONNECT_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_INSTANTS = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")
# What each logical type may be on.
_LOGICAL: Final[dict[str, tuple[str, ...]]] = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **dict.fromkeys((*_INSTANTS, *(f"local-{each}" for each in _INSTANTS)), ("long",)),
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    CONNECT_NANOS: ("long",),
    CONNECT_ZONED: ("string",),
}


@dataclass(slots=True, eq=False)
class AvroType:
    """A schema. A record may be in itself: its fields are there once it was read wholly."""

    kind: str  # Avro's own word, or union
    name: str = ""  # the full one of a record, an enum or a fixed
    aliases: frozenset[str] = frozenset()  # full names
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0  # the bytes of a fixed
    symbols: tuple[str, ...] = ()
    default: str | None = None  # of an enum: what a symbol that it does not have is read as
    items: AvroType | None = None  # the elements of an array, the values of a map
    branches: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()

    @property
    def element(self) -> AvroType:
        """What is in an array or a map."""
        if self.items is None:
            raise TypeError(self.kind)
        return self.items

    def __str__(self) -> str:
        """For errors: what people call it."""
        said = self.logical or self.kind
        return f"{said} {self.name}" if self.name else said


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """A field of a record. `default` is JSON, or MISSING."""

    name: str
    type: AvroType
    aliases: frozenset[str]
    default: Any


def parse(schema: Schema) -> AvroType:
    """What the text says, with what its references define. Raises UnfitSchema."""
    parser = _Parser()
    try:
        for _, text in schema.references:
            parser.read(json.loads(text), "")
        found = parser.read(json.loads(schema.text), "")
    except json.JSONDecodeError as failure:
        raise UnfitSchema(f"the schema is not JSON: {failure}") from None
    except RecursionError:
        raise UnfitSchema("the schema is nested too deeply") from None
    if not schema.message:
        return found
    if schema.message not in parser.names:
        raise UnfitSchema(f"the schema defines no {schema.message[:200]}")
    return parser.names[schema.message]


def full_name(said: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """The name of a type with its namespace, and that of what is in it (Avro's specification,
    "Names")."""
    name: str = said["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    if isinstance(said.get("namespace"), str):
        namespace = said["namespace"]
    return f"{namespace}.{name}" if namespace else name, namespace


def unqualified(name: str) -> str:
    return name.rpartition(".")[2]


class _Parser:
    def __init__(self) -> None:
        self.names: dict[str, AvroType] = {}
        self._depth = 0

    def read(self, said: Any, namespace: str) -> AvroType:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise RecursionError
        made = self._read(said, namespace)
        self._depth -= 1
        return made

    def _read(self, said: Any, namespace: str) -> AvroType:
        if isinstance(said, str):
            return AvroType(said) if said in PRIMITIVES else self._named(said, namespace)
        if isinstance(said, list):
            return self._union(said, namespace)
        if not isinstance(said, dict):
            raise UnfitSchema(f"a type is neither a name nor an object nor a list: {_short(said)}")
        kind = said.get("type")
        if not isinstance(kind, str):
            return self.read(kind, namespace)
        if kind in ("record", "error"):
            return self._record(said, namespace)
        if kind == "enum":
            return self._enum(said, namespace)
        if kind == "fixed":
            return self._fixed(said, namespace)
        if kind == "array":
            return AvroType(kind, items=self.read(said.get("items"), namespace))
        if kind == "map":
            return AvroType(kind, items=self.read(said.get("values"), namespace))
        if kind in PRIMITIVES:
            return _with_logical(AvroType(kind), said)
        return self._named(kind, namespace)

    def _named(self, name: str, namespace: str) -> AvroType:
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            raise UnfitSchema(f"the schema uses {name[:200]}, which it does not define")
        return found

    def _defined(self, kind: str, said: dict[str, Any], namespace: str) -> tuple[AvroType, str]:
        """A named type without what is in it, and the namespace of what is."""
        name = said.get("name")
        if not isinstance(name, str) or not unqualified(name):
            raise UnfitSchema(f"a type {kind} has no name")
        full, namespace = full_name(said, namespace)
        prefix = f"{namespace}." if namespace else ""
        if full in self.names or full in PRIMITIVES:
            raise UnfitSchema(f"the schema defines {full[:200]} twice")
        aliases = frozenset(
            each if "." in each else prefix + each for each in _texts(said.get("aliases"))
        )
        self.names[full] = AvroType(kind, full, aliases)
        return self.names[full], namespace

    def _record(self, said: dict[str, Any], namespace: str) -> AvroType:
        made, namespace = self._defined("record", said, namespace)
        fields: dict[str, AvroField] = {}
        for each in said.get("fields") or ():
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not name or name in fields:
                raise UnfitSchema(f"{made}: a field has no name, or one that another has")
            if "type" not in each:
                raise UnfitSchema(f"{made}: field {name[:200]} has no type")
            fields[name] = AvroField(
                name,
                self.read(each["type"], namespace),
                frozenset(_texts(each.get("aliases"))),
                each.get("default", MISSING),
            )
        made.fields = tuple(fields.values())
        return made

    def _enum(self, said: dict[str, Any], namespace: str) -> AvroType:
        made, _ = self._defined("enum", said, namespace)
        made.symbols = tuple(_texts(said.get("symbols")))
        made.default = said.get("default")
        if not made.symbols or len(set(made.symbols)) < len(made.symbols):
            raise UnfitSchema(f"{made} has no symbols, or one of them twice")
        if made.default is not None and made.default not in made.symbols:
            raise UnfitSchema(f"{made}: its default is none of its symbols")
        return made

    def _fixed(self, said: dict[str, Any], namespace: str) -> AvroType:
        made, _ = self._defined("fixed", said, namespace)
        size = said.get("size")
        if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
            raise UnfitSchema(f"{made}: its size is no number from 0 to {FIXED_BYTES_MAX}")
        made.size = size
        return _with_logical(made, said)

    def _union(self, said: list[Any], namespace: str) -> AvroType:
        branches = tuple(self.read(each, namespace) for each in said)
        kinds = [each.name or each.kind for each in branches]
        if "union" in kinds or len(set(kinds)) < len(kinds):
            raise UnfitSchema("a union is in a union, or has two branches of one type")
        return AvroType("union", branches=branches)


def _with_logical(made: AvroType, said: dict[str, Any]) -> AvroType:
    logical = said.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "decimal":
        precision, scale = said.get("precision"), said.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:
            return made
        if not 0 <= scale <= precision or precision < 1:
            return made
        if made.kind == "fixed" and precision > math.log10(2) * (8 * made.size - 1):
            return made
        made.precision, made.scale = precision, scale
    if made.kind == "fixed" and made.size != {"uuid": 16, "duration": 12}.get(logical, made.size):
        return made
    made.logical = logical
    return made


def _texts(said: Any) -> list[str]:
    if said is None:
        return []
    if not isinstance(said, list) or not all(isinstance(each, str) for each in said):
        raise UnfitSchema(f"a list of names is none: {_short(said)}")
    return said


def _short(said: Any) -> str:
    return json.dumps(said)[:60]
