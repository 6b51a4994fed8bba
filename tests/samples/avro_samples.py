"""Avro's schemas by chance, each with what a later reader may make of it, and fastavro's reading.

Rule of this file: nothing of keyrange's Avro is used. fastavro reads what Avro calls primitive;
what the logical types make of that is written here a second time, by the reader's schema.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, Final

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import fingerprint, to_parsing_canonical_form

from keyrange.model.value_forms import Schema
from samples.value_trials import Refused, Trial, Unsure

_TEXTS: Final = ["", "a", "né", "日本語", "x" * 40, "🙂", "0", "with space"]
_LONGS: Final = [0, -1, 63, 64, -64, 8191, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63)]
_LOGICAL: Final = {
    "int": ["date", "time-millis"],
    "long": [
        "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros",
        "time-micros", "timestamp-nanos",
    ],
    "string": ["uuid", "unknown"],
}  # fmt: skip
_MICROS: Final = {
    "timestamp-millis": 1000, "timestamp-micros": 1,
    "local-timestamp-millis": 1000, "local-timestamp-micros": 1,
}  # fmt: skip
_PROMOTED: Final = {
    "int": ["long", "float", "double"],
    "long": ["double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
_PRIMITIVES: Final = ["boolean", "int", "long", "float", "double", "bytes", "string"]
# Of a union at most one of each: what fastavro read says by its type of which branch it is.
_APART: Final = [["boolean"], ["int", "long", "double"], ["string", "bytes"], ["array"], ["record"]]
# fastavro takes a branch of -1 for the last one, any byte but 0 for true, and skips without a look.
_STRICTER: Final = (
    "a branch or symbol that the writer's schema does not have",
    "longer than 64 bits", "out of the range of", "neither 0 nor 1", "does not end where it says",
    "take no bytes", "not UTF-8", "longer than what is left", "the value ends within it",
)  # fmt: skip


class _Maker:
    """Makes schemas. Every named type has another name."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def schema(self, depth: int) -> Any:
        kinds = [*_PRIMITIVES, "decimal", "fixed", "enum", "logical"]
        if depth:
            kinds += ["record", "array", "map", "union", "nullable", "nullable"]
        return self.of(self.chance.choice(kinds), depth)

    def of(self, kind: str, depth: int) -> Any:
        chance = self.chance
        match kind:
            case "record":
                return self.record(depth - 1)
            case "array":
                return {"type": "array", "items": self.schema(depth - 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth - 1)}
            case "nullable":
                inner = self.schema(0) if chance.random() < 0.7 else self.of("record", depth)
                return chance.choice([["null", inner], [inner, "null"]])
            case "union":
                groups = chance.sample(_APART, chance.randrange(2, 4))
                branches = [self.of(chance.choice(each), depth) for each in groups]
                return ["null", *branches] if chance.random() < 0.5 else branches
            case "logical":
                base = chance.choice(sorted(_LOGICAL))
                return {"type": base, "logicalType": chance.choice(_LOGICAL[base])}
            case "decimal":
                return self.decimal()
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": chance.randrange(1, 20)}
            case "enum":
                symbols = [f"S{at}" for at in range(chance.randrange(1, 6))]
                return {"type": "enum", "name": self.name(), "symbols": symbols}
        return kind

    def decimal(self) -> Any:
        precision = self.chance.choice([1, 4, 9, 18, 19, 30, 38])
        made = {"logicalType": "decimal", "precision": precision}
        if (scale := self.chance.randrange(precision + 1)) > 0:
            made["scale"] = scale
        if self.chance.random() < 0.5:
            return {"type": "bytes", **made}
        size = next(n for n in range(1, 20) if 2 ** (8 * n - 1) > 10**precision)
        return {"type": "fixed", "name": self.name(), "size": size, **made}

    def record(self, depth: int) -> Any:
        fields = [
            {"name": f"f{at}", "type": self.schema(max(depth, 0))}
            for at in range(self.chance.randrange(1, 6))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def later(self, schema: Any, *, in_union: bool = False) -> Any:
        """A reader's schema that everything that this one wrote resolves to."""
        chance = self.chance
        if isinstance(schema, list):
            return self._later_union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {**schema, inner: self.later(schema[inner])}
        if kind == "record":
            return self._later_record(schema)
        if kind == "enum" and chance.random() < 0.4:
            symbols = [*schema["symbols"][1:], "T"]
            return {**schema, "symbols": symbols, "default": "T"}
        if isinstance(schema, str) and not in_union:
            if chance.random() < 0.2 and schema in _PROMOTED and schema != "bytes":
                schema = chance.choice(_PROMOTED[schema])
            if chance.random() < 0.15 and schema != "null":
                return ["null", schema]
        return schema

    def _later_union(self, schema: list[Any]) -> Any:
        branches = [self.later(each, in_union=True) for each in schema]
        self.chance.shuffle(branches)
        if "null" not in branches and self.chance.random() < 0.3:
            branches.append("null")
        return branches

    def _later_record(self, schema: Any) -> Any:
        fields = []
        for each in schema["fields"]:
            if self.chance.random() < 0.25:
                continue
            field = {"name": each["name"], "type": self.later(each["type"])}
            if self.chance.random() < 0.1:
                field = {**field, "name": "z" + field["name"], "aliases": [field["name"]]}
            fields.append(field)
        for at in range(self.chance.randrange(3)):
            kind = self.schema(1)
            fields.append({"name": f"g{at}", "type": kind, "default": self.json(kind)})
        self.chance.shuffle(fields)
        return {**schema, "fields": fields}

    def json(self, schema: Any) -> Any:
        """A default: of a union for its first branch."""
        if isinstance(schema, list):
            return self.json(schema[0])
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "record":
                return {each["name"]: self.json(each["type"]) for each in schema["fields"]}
            case "array":
                return [self.json(schema["items"])] * self.chance.randrange(3)
            case "map":
                return {"k": self.json(schema["values"])}
        value = self.value(schema)
        if isinstance(value, bytes):
            return value.decode("latin-1")
        return 0.5 if isinstance(value, float) else value

    def value(self, schema: Any) -> Any:
        chance = self.chance
        if isinstance(schema, list):
            return self.value(chance.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice(
                    [chance.randrange(-200, 200), chance.randrange(-(2**31), 2**31)]
                )
            case "long":
                limited = isinstance(schema, dict) and "millis" in schema["logicalType"]
                return chance.randrange(-(2**50), 2**50) if limited else chance.choice(_LONGS)
            case "float":
                return struct.unpack("<f", chance.randbytes(4))[0]
            case "double":
                return chance.choice([chance.uniform(-1e9, 1e9), float("inf"), float("nan"), -0.0])
            case "string":
                return chance.choice(_TEXTS)
            case "enum":
                return chance.choice(schema["symbols"])
            case "bytes" | "fixed":
                return self._bytes(schema)
            case "array":
                return [self.value(schema["items"]) for _ in range(chance.randrange(4))]
            case "map":
                keys = chance.sample(_TEXTS, chance.randrange(4))
                return {key: self.value(schema["values"]) for key in keys}
        return {each["name"]: self.value(each["type"]) for each in schema["fields"]}

    def _bytes(self, schema: Any) -> bytes:
        if isinstance(schema, str):
            return self.chance.choice([b"", b"a", b"text"])
        if "precision" not in schema:
            return self.chance.randbytes(schema["size"])
        limit = 10 ** schema["precision"] - 1
        value = self.chance.choice([0, -1, limit, -limit, self.chance.randint(-limit, limit)])
        size = schema.get("size", value.bit_length() // 8 + 1 + self.chance.randrange(2))
        return value.to_bytes(size, "big", signed=True)


class _Payload(io.BytesIO):
    """Says where it ends: fastavro skips as many elements as a damaged count claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if len(found) < (size or 0):
            raise EOFError
        return found


class AvroSamples:
    name = format = "avro"
    names_writers = False

    def __init__(self) -> None:
        self._parsed: dict[str, Any] = {}

    def trial(self, chance: Random, payloads: int) -> Trial:
        maker = _Maker(chance)
        writer = maker.schema(3) if chance.random() < 0.1 else maker.record(3)
        reader = maker.later(writer) if chance.random() < 0.7 else writer
        plain = fastavro.parse_schema(_without_logical(writer))
        written = [_written(plain, maker.value(writer)) for _ in range(payloads)]
        return Trial(Schema(json.dumps(writer)), Schema(json.dumps(reader)), written)

    def read(self, trial: Trial, payload: bytes) -> Any:
        writer, reader = self._plain(trial.writer.text), self._plain(trial.reader.text)
        data = _Payload(payload)
        try:
            raw = fastavro.schemaless_reader(data, writer, reader)
        except UnicodeDecodeError as failure:
            # It reads a text before it leaves it, or takes it for bytes.
            if trial.writer != trial.reader:
                raise Unsure from failure
            raise Refused(str(failure)) from failure
        except (EOFError, IndexError, ValueError, SchemaResolutionError) as failure:
            raise Refused(str(failure)) from failure
        if data.tell() != len(payload):
            raise Refused("bytes behind the value")
        return _typed(raw, json.loads(trial.reader.text))

    def is_stricter(self, error: str) -> bool:
        return any(each in error for each in _STRICTER)

    def _plain(self, text: str) -> Any:
        if text not in self._parsed:
            self._parsed[text] = fastavro.parse_schema(_without_logical(json.loads(text)))
        return self._parsed[text]


class SingleObjectSamples(AvroSamples):
    """Values behind the header that names their schema, and values without one, by the reader's
    schema."""

    name = "avro-single-object"
    names_writers = True

    def trial(self, chance: Random, payloads: int) -> Trial:
        made = super().trial(chance, payloads)
        header = header_of(json.loads(made.writer.text))
        reader = json.loads(made.reader.text)
        plain, maker = fastavro.parse_schema(_without_logical(reader)), _Maker(chance)
        written = [
            header + each if chance.random() < 0.8 else _written(plain, maker.value(reader))
            for each in made.payloads
        ]
        return replace(made, payloads=written)

    def read(self, trial: Trial, payload: bytes) -> Any:
        header = header_of(json.loads(trial.writer.text))
        if payload.startswith(header):
            return super().read(trial, payload[len(header) :])
        return super().read(replace(trial, writer=trial.reader), payload)


def decorated_schema(chance: Random) -> Any:
    """With namespaces, aliases, defaults and words that say nothing to a reader."""
    maker = _Maker(chance)
    return _decorated(maker.later(maker.record(3)), chance)


def _decorated(schema: Any, chance: Random) -> Any:
    if isinstance(schema, list):
        return [_decorated(each, chance) for each in schema]
    if not isinstance(schema, dict):
        return {"type": schema, "more": 1} if chance.random() < 0.1 else schema
    made = {key: _decorated(schema[key], chance) for key in schema.keys() & {"items", "values"}}
    if "fields" in schema:
        fields = schema["fields"]
        made["fields"] = [{**each, "type": _decorated(each["type"], chance)} for each in fields]
    if "name" in schema and chance.random() < 0.5:
        said = [{"namespace": "o.p"}, {"name": "q." + schema["name"]}, {"doc": "é"}]
        made |= {"aliases": ["x"], **chance.choice(said)}
    whole = [*(schema | made).items()]
    chance.shuffle(whole)
    return dict(whole)


def header_of(schema: Any) -> bytes:
    """By which a value names the schema that it was written with."""
    named = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return b"\xc3\x01" + bytes.fromhex(named)


def _written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        dropped = ("logicalType", "precision", "scale")
        return {key: _without_logical(each) for key, each in schema.items() if key not in dropped}
    return [_without_logical(each) for each in schema] if isinstance(schema, list) else schema


def _typed(raw: Any, schema: Any) -> Any:
    """What fastavro read, in the form that Arrow takes for the column of this schema."""
    if isinstance(schema, list):
        return _of_union(raw, schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record":
            return {
                each["name"]: _typed(raw[each["name"]], each["type"]) for each in schema["fields"]
            }
        case "array":
            return [_typed(each, schema["items"]) for each in raw]
        case "map":
            return [(key, _typed(each, schema["values"])) for key, each in raw.items()]
        case "bytes" | "fixed":
            raw = raw.encode("latin-1") if isinstance(raw, str) else raw
            return _decimal(raw, schema) if "precision" in schema else raw
        case "long" if isinstance(schema, dict):
            micros = raw * _MICROS.get(schema["logicalType"], 1)
            if not -(2**63) <= micros < 2**63:
                raise Refused("a time out of the range")
            return micros
    return raw


def _decimal(raw: bytes, schema: Any) -> Decimal:
    value = int.from_bytes(raw, "big", signed=True)
    if not raw or abs(value) >= 10 ** schema["precision"]:
        raise Refused("too many digits")
    digits = tuple(int(each) for each in str(abs(value)))
    return Decimal((int(value < 0), digits, -schema.get("scale", 0)))


_TYPES: Final = {
    bool: ["boolean"],
    int: ["int", "long"],
    float: ["double", "float"],
    str: ["string", "enum"],
    bytes: ["bytes", "fixed"],
    list: ["array"],
    dict: ["record", "map"],
}


def _of_union(raw: Any, schema: list[Any]) -> Any:
    held = [each for each in schema if each != "null"]
    if raw is None:
        return None
    if len(held) == 1:
        return _typed(raw, held[0])
    kinds = [each if isinstance(each, str) else each["type"] for each in held]
    wanted = _TYPES[type(raw)] if type(raw) is not int or "double" not in kinds else ["double"]
    if type(raw) is str and "bytes" in kinds:  # a default
        wanted = ["bytes"]
    at = next(at for at, kind in enumerate(kinds) if kind in wanted)
    return {f"member{at}": _typed(raw, held[at])}
