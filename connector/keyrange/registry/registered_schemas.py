"""Schemas as a registry knows them, and its answers as such."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from keyrange.model.value_forms import Schema

# What schemas of which formats of keys and values are called there.
SCHEMA_TYPES: Final = {
    "avro": "AVRO",
    "protobuf": "PROTOBUF",
    "json": "JSON",
    "connect": "AVRO",
    "debezium": "AVRO",
}

# Of all that a schema refers to, at any distance.
_REFERENCES_MAX: Final = 1_000
_REFERENCED_BYTES_MAX: Final = 16 << 20
# What a reference takes beside its texts, at least.
_REFERENCE_BYTES: Final = 100

# A schema's number, or where serializers write that its GUID, as text.
SchemaId = int | str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """`type` is AVRO, PROTOBUF, JSON or what else a registry may have. `id` is None for a schema
    that is from no registry."""

    id: SchemaId | None
    type: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema under the name by which a schema uses it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaDocument:
    """What a registry answers with: one schema, and what it refers to. `id` is None where the
    answer has none."""

    id: int | None
    type: str
    text: str
    references: tuple[Reference, ...]

    @property
    def size_bytes(self) -> int:
        texts = [self.text, *(each.name + each.subject for each in self.references)]
        own = sum(len(each.encode()) for each in texts)
        return own + _REFERENCE_BYTES * len(self.references)


def read_document(answer: Mapping[str, Any]) -> SchemaDocument:
    """ValueError, which says what is not as it should be, for another document."""
    text, kind, number = answer.get("schema"), answer.get("schemaType") or "AVRO", answer.get("id")
    if not isinstance(text, str) or not isinstance(kind, str):
        raise ValueError("it has no text of a schema")
    if not _is_unicode(text):
        raise ValueError("the schema's text is not Unicode")
    if number is not None and (type(number) is not int or number < 0):
        raise ValueError("its id is no number")
    named = answer.get("references") or []
    if not isinstance(named, list):
        raise ValueError("its references are no list")
    return SchemaDocument(number, kind, text, tuple(map(_reference, named)))


def read_id(answer: Mapping[str, Any]) -> int:
    """The number of a schema that was sent. ValueError where there is none."""
    number = answer.get("id")
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise ValueError("its id is no number")
    return number


def _reference(named: Any) -> Reference:
    try:
        found = Reference(named["name"], named["subject"], named["version"])
    except (KeyError, TypeError):
        raise ValueError("a reference has no name, subject or version") from None
    if (type(found.name), type(found.subject), type(found.version)) != (str, str, int):
        raise ValueError("a reference has no name, subject or version")
    if not _is_unicode(found.name + found.subject):
        raise ValueError("a reference's name or subject is not Unicode")
    return found


def _is_unicode(text: str) -> bool:
    """JSON may have halves of characters, which are in no file and no address."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def with_references(
    document: SchemaDocument, fetch: Callable[[Reference], SchemaDocument]
) -> Schema:
    """The schema with all that it refers to, at any distance: each text once and behind those that
    it uses itself. Where one name stands for several texts the first one that is met counts, as
    with Confluent's own clients. ValueError for more schemas, or larger ones, than one refers to.
    """
    size_bytes = 0
    texts: dict[str, str] = {}
    met: set[str] = set()
    # A stack of its own: how deep they nest is for others to say.
    left = [iter(document.references)]
    found: list[tuple[str, str]] = []
    while left:
        each = next(left[-1], None)
        if each is None:
            left.pop()
            if found:
                name, text = found.pop()
                texts[name] = text
        elif each.name not in met:
            met.add(each.name)
            if len(met) > _REFERENCES_MAX:
                raise ValueError(f"it refers to more than {_REFERENCES_MAX} schemas")
            fetched = fetch(each)
            size_bytes += fetched.size_bytes
            if size_bytes > _REFERENCED_BYTES_MAX:
                raise ValueError(
                    f"the schemas that it refers to have more than {_REFERENCED_BYTES_MAX} bytes"
                )
            found.append((each.name, fetched.text))
            left.append(iter(fetched.references))
    return Schema(document.text, references=tuple(texts.items()))
