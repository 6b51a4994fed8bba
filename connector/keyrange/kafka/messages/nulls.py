"""Which fields of an answer may not be null: kafka-python decodes a null in each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

_TEXTS: Final = ("string", "bytes")
# Kafka's schema allows a topic without a name to who asks by ids.
_NAMED: Final = ("MetadataResponseTopic", "name")


_Get = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """What of a struct to look at: the fields that may not be null, lists whose elements may not
    be, and structs and lists of structs within it."""

    required: _Get
    elements: tuple[_Get, ...]
    structs: tuple[tuple[_Get, _Part], ...]
    lists: tuple[tuple[_Get, _Part], ...]

    def has_null(self, value: Any) -> bool:
        # A cluster has many partitions: of these this is all.
        if None in self.required(value):
            return True
        if any(None in (get(value) or ()) for get in self.elements):
            return True
        if any(any(map(part.has_null, get(value) or ())) for get, part in self.lists):
            return True
        within = ((get(value), part) for get, part in self.structs)
        return any(each is not None and part.has_null(each) for each, part in within)


def check(answer: Any, version: int) -> None:
    """Raises ValueError for an answer with a null where Kafka's protocol has none."""
    message: Any = type(answer)
    part = _whole(message, version)
    if part is not None and part.has_null(answer):
        raise ValueError(f"{message.__name__} has a null where Kafka's protocol has none")


@functools.cache
def _whole(message: Any, version: int) -> _Part | None:
    return _part(message._struct, version)


def _part(struct: Any, version: int) -> _Part | None:
    """None where there is nothing to look at, as in partitions that are numbers alone."""
    required: list[str] = []
    elements: list[_Get] = []
    structs: list[tuple[_Get, _Part]] = []
    lists: list[tuple[_Get, _Part]] = []
    for field in struct.untagged_fields(version):
        get = attrgetter(field.name)
        is_named = (struct.type_str, field.name) == _NAMED
        is_list = field.is_array()
        if is_list or field.type_str in _TEXTS:
            if is_named or not field.nullable_for_version_q(version):
                required.append(field.name)
            if is_list and not field.is_struct_array() and field.array_of.type_str in _TEXTS:
                elements.append(get)
        if field.is_struct_array() or field.is_struct():
            inner = _part(field, version)
            if inner is not None:
                (lists if is_list else structs).append((get, inner))
    if not (required or elements or structs or lists):
        return None
    # Of two names or more the getter makes a tuple.
    names = required * 2
    fields = attrgetter(*names) if names else lambda _: ()
    return _Part(fields, tuple(elements), tuple(structs), tuple(lists))
