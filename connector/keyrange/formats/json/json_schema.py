"""Columns of a JSON Schema, as generators of it and a registry's JSON serializers write them.

What a column cannot say is the text of its JSON: alternatives, objects without properties, what
contains itself. Names of Kafka Connect (`connect.type`, `connect.index`) say more than the schema
where they stand (io.confluent.connect.json.JsonSchemaData). Drafts 4 to 2020-12 are alike here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from keyrange.model.ddl import DEPTH_MAX, DIGITS_MAX, array_of, column_of, decimal_of, map_of
from keyrange.model.value_forms import COLUMNS_MAX, Schema, UnfitSchema

_TEXT: Final = "string"
_INTEGERS: Final = {"int8": "byte", "int16": "short", "int32": "integer", "int64": "long"}
_FORMATS: Final = {"date": "date", "date-time": "timestamp"}
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
# Words that say of which type a value is; others only narrow it down (`required`, `if`, `minimum`).
_SAY_TYPE: Final = frozenset(
    (
        *("type", "properties", "additionalProperties", "items", "enum", "const"),
        *("$ref", "oneOf", "anyOf", "allOf"),
    )
)
# A column may be a reference to alternatives of which one is a reference.
_SCHEMAS_MAX: Final = 4 * COLUMNS_MAX


def columns_of(schema: Schema) -> str:
    """Spark's JSON of the columns of a schema whose text is a JSON Schema. Raises UnfitSchema."""
    try:
        documents = {name: json.loads(text) for name, text in schema.references}
        root = json.loads(schema.text)
        found = _Reader({**documents, "": root}).type_of(root, "", ("#",))
    except UnfitSchema:
        raise
    except (ValueError, RecursionError) as failure:
        why = "it is nested too deeply" if isinstance(failure, RecursionError) else str(failure)
        raise UnfitSchema(f"the JSON Schema cannot be read: {why}") from None
    if not isinstance(found, dict) or found["type"] != "struct":
        raise UnfitSchema("the JSON Schema describes no object with properties, which has columns")
    return json.dumps(found)


class _Reader:
    """Reads schemas of some documents by their names, the root of which is ""."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._read = 0
        self._depth = 0

    def type_of(self, schema: Any, base: str, within: tuple[str, ...]) -> Any:
        """Spark's JSON of a type. `base` names the document that the schema is in, `within` are the
        references that have led to it."""
        self._read += 1
        if self._read > _SCHEMAS_MAX:
            raise UnfitSchema(
                f"the JSON Schema has more than {_SCHEMAS_MAX} schemas in it, each as often as it "
                "is referred to"
            )
        if not isinstance(schema, dict):
            return _TEXT
        parts = [*self._parts(schema, base, within)]
        if "properties" in schema or not parts:
            parts.append(self._own_type(schema, base, within))
        return _all_of(parts)

    def _parts(
        self, schema: Mapping[str, Any], base: str, within: tuple[str, ...]
    ) -> Iterator[Any]:
        """What holds beside a schema's own words, as types: parts that say nothing of them, such as
        which properties are required, have none."""
        if "$ref" in schema:
            yield self._referred(str(schema["$ref"]), base, within)
        for word in ("oneOf", "anyOf"):
            others = [each for each in _schemas(schema, word) if not _is_null(each)]
            if len(others) > 1 and any(map(_says_type, others)):
                yield _TEXT
            elif len(others) == 1 and _says_type(others[0]):
                yield self.type_of(others[0], base, within)
        for each in _schemas(schema, "allOf"):
            if _says_type(each):
                yield self.type_of(each, base, within)

    def _own_type(self, schema: Mapping[str, Any], base: str, within: tuple[str, ...]) -> Any:
        kinds = _kinds(schema)
        if len(kinds) != 1:
            return _TEXT
        if kinds[0] == "object":
            return self._object(schema, base, within)
        if kinds[0] == "array":
            return array_of(self._inner(schema.get("items"), base, within))
        return _plain(kinds[0], schema)

    def _inner(self, schema: Any, base: str, within: tuple[str, ...]) -> Any:
        """Of what is in a column."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UnfitSchema(f"the JSON Schema nests more than {DEPTH_MAX} types")
        found = self.type_of(schema, base, within)
        self._depth -= 1
        return found

    def _referred(self, reference: str, base: str, within: tuple[str, ...]) -> Any:
        name, _, pointer = reference.partition("#")
        base = name or base
        if f"{base}#{pointer}" in within:
            return _TEXT
        steps = filter(None, pointer.split("/"))
        members = (step.replace("~1", "/").replace("~0", "~") for step in steps)
        found: Any = self._documents
        for member in (base, *members):
            if not isinstance(found, dict) or member not in found:
                message = f"the JSON Schema refers to {reference[:80]!r}, which is not there"
                raise UnfitSchema(message)
            found = found[member]
        return self.type_of(found, base, (*within, f"{base}#{pointer}"))

    def _object(self, schema: Mapping[str, Any], base: str, within: tuple[str, ...]) -> Any:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties and schema.get("connect.type") != "map":
            fields = [
                column_of(name, self._inner(each, base, within))
                for name, each in sorted(properties.items(), key=_place)
            ]
            return {"type": "struct", "fields": fields}
        values = schema.get("additionalProperties")
        if not isinstance(values, dict):
            return _TEXT
        return map_of("string", self._inner(values, base, within))


def _all_of(types: Sequence[Any]) -> Any:
    """All of them hold at once: an object has the properties of each."""
    if all(each == types[0] for each in types):
        return types[0]
    if not all(isinstance(each, dict) and each["type"] == "struct" for each in types):
        return _TEXT
    fields = {field["name"]: field for each in types for field in each["fields"]}
    return {"type": "struct", "fields": [*fields.values()]}


def _schemas(schema: Mapping[str, Any], word: str) -> Sequence[Any]:
    found: object = schema.get(word)
    return found if isinstance(found, list) else ()


def _says_type(schema: Any) -> bool:
    """Whether a part says more of what a value is than that it is an object."""
    said = _SAY_TYPE & schema.keys() if isinstance(schema, dict) else set()
    return bool(said) and not (said == {"type"} and _kinds(schema) == ["object"])


def _place(member: tuple[str, Any]) -> int:
    """As Kafka Connect numbers its fields; sorting leaves the others in their order."""
    index = member[1].get("connect.index") if isinstance(member[1], dict) else None
    return index if isinstance(index, int) else 0


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The types that a value may have, without null."""
    said = schema.get("type")
    if said is None:
        said = _implied(schema)
    kinds = said if isinstance(said, list) else [said]
    return [each for each in kinds if each != "null"]


def _implied(schema: Mapping[str, Any]) -> Any:
    if isinstance(schema.get("properties"), dict):
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    is_text = isinstance(values, list) and all(isinstance(each, str | None) for each in values)
    return "string" if is_text else []


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") in ("null", ["null"])


def _plain(kind: str, schema: Mapping[str, Any]) -> str:
    said = schema.get("connect.type")
    if kind == "boolean":
        return "boolean"
    if kind == "integer":
        return _INTEGERS.get(str(said), "long")
    if kind == "number":
        if schema.get("title") == _DECIMAL:
            return _decimal(schema.get("connect.parameters"))
        return "float" if said == "float32" else "double"
    if kind != "string":
        return _TEXT
    if said == "bytes" or schema.get("contentEncoding") == "base64":
        return "binary"
    return _FORMATS.get(str(schema.get("format")), _TEXT)


def _decimal(parameters: Any) -> str:
    said = parameters if isinstance(parameters, dict) else {}
    try:
        precision = int(said.get("connect.decimal.precision", DIGITS_MAX))
        scale = int(said.get("scale", 0))
    except (TypeError, ValueError):
        return _TEXT
    # A number has its digits as text too.
    return decimal_of(precision, scale) or _TEXT
