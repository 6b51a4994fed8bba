"""Spark's DDL for columns, such as `key binary, count bigint`, to Spark's schema JSON and back.

Spark reads DDL in the JVM alone, and a source is asked for its schema in a process without one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_TOKENS: Final = re.compile(r"\s*(?:([A-Za-z0-9_]+)|`((?:[^`]|``)+)`|([<>(),:])|(\S))")
_BARE, _QUOTED, _SIGN = 1, 2, 3  # groups of _TOKENS
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Final = {
    "boolean": "boolean",
    "tinyint": "byte",
    "byte": "byte",
    "smallint": "short",
    "short": "short",
    "int": "integer",
    "integer": "integer",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
}
_DECIMAL: Final = ("decimal", "dec", "numeric")
DIGITS_MAX: Final = 38
# Of types within types.
DEPTH_MAX: Final = 50


def parse_ddl(text: str) -> dict[str, Any]:
    """The columns of `text`, all nullable, as the document that Spark writes of a schema.

    Raises ValueError with a message that begins with "must".
    """
    return _Reader(text).whole()


def column_of(name: str, kind: Any, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A column that may be null, as Spark's JSON has it; `kind` is its type there."""
    return {"name": name, "type": kind, "nullable": True, "metadata": dict(metadata or {})}


def array_of(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def decimal_of(precision: int, scale: int) -> str | None:
    """The type of decimals; None where no column holds so many digits."""
    fits = 0 <= scale <= precision <= DIGITS_MAX and precision
    return f"decimal({precision},{scale})" if fits else None


def ddl_of(document: Mapping[str, Any], between: str = " ") -> str:
    """The columns of such a document in DDL."""
    columns = []
    for each in document["fields"]:
        name = each["name"]
        quoted = name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"
        columns.append(f"{quoted}{between}{_ddl_type(each['type'])}")
    return ", ".join(columns)


def _ddl_type(kind: str | Mapping[str, Any]) -> str:
    if isinstance(kind, str):
        # The first of the words that stand for it; decimals are written as they are read.
        return next((word for word, name in _PLAIN.items() if name == kind), kind)
    if kind["type"] == "struct":
        return f"struct<{ddl_of(kind, ': ')}>"
    if kind["type"] == "array":
        return f"array<{_ddl_type(kind['elementType'])}>"
    return f"map<{_ddl_type(kind['keyType'])}, {_ddl_type(kind['valueType'])}>"


class _Reader:
    """Recursive descent over the tokens: (text, which group of _TOKENS, where it begins)."""

    def __init__(self, text: str) -> None:
        self._tokens = [
            (each[each.lastindex or 0], each.lastindex or 0, each.start(each.lastindex or 0))
            for each in _TOKENS.finditer(text)
        ]
        self._at = 0
        self._depth = 0

    def whole(self) -> dict[str, Any]:
        columns = self._columns()
        if self._at < len(self._tokens):
            raise self._unexpected("a comma")
        return columns

    def _columns(self) -> dict[str, Any]:
        fields: list[dict[str, Any]] = []
        seen: set[str] = set()
        while not fields or self._take(","):
            name = self._name()
            if name.lower() in seen:
                raise ValueError(f"must name every column once, but '{name[:40]}' is there twice")
            seen.add(name.lower())
            self._take(":")
            fields.append(column_of(name, self._type()))
            if self._word() == "not":
                raise ValueError(f"must have columns that may be null, and '{name[:40]}' is not")
        return {"type": "struct", "fields": fields}

    def _name(self) -> str:
        text, kind, _ = self._next()
        if kind == _QUOTED:
            self._at += 1
            return text.replace("``", "`")
        if kind != _BARE or not _WORD.fullmatch(text):
            raise self._unexpected("a column's name, in backquotes where it is no plain word,")
        self._at += 1
        return text

    def _type(self) -> Any:
        word = self._word()
        if word in _PLAIN:
            self._at += 1
            return _PLAIN[word]
        if word in _DECIMAL:
            self._at += 1
            return self._decimal()
        if word not in ("array", "map", "struct"):
            types = ", ".join((*_PLAIN, _DECIMAL[0], "array<>", "map<>", "struct<>"))
            raise self._unexpected(f"a type of {types}")
        return self._nested(word)

    def _nested(self, word: str) -> Any:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ValueError(f"must not hold types in more than {DEPTH_MAX} others")
        self._expect("<")
        made: Any
        if word == "struct":
            made = self._columns()
        elif word == "array":
            made = array_of(self._type())
        else:
            key = self._type()
            self._expect(",")
            made = map_of(key, self._type())
        self._expect(">")
        self._depth -= 1
        return made

    def _decimal(self) -> str:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            if self._take(","):
                scale = self._number()
            self._expect(")")
        if (made := decimal_of(precision, scale)) is None:
            raise ValueError(
                f"must have decimals of 1 to {DIGITS_MAX} digits, and no more behind the point"
            )
        return made

    def _number(self) -> int:
        text, kind, _ = self._next()
        if kind != _BARE or not text.isdigit() or len(text) > 2:
            raise self._unexpected("a number of digits")
        self._at += 1
        return int(text)

    def _next(self) -> tuple[str, int, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", 0, -1)

    def _word(self) -> str:
        text, kind, _ = self._next()
        return text.lower() if kind == _BARE else ""

    def _take(self, sign: str) -> bool:
        text, kind, _ = self._next()
        taken = kind == _SIGN and text == sign
        self._at += taken
        return taken

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(f"'{sign}'")

    def _unexpected(self, wanted: str) -> ValueError:
        text, _, start = self._next()
        found = f"'{text[:40]}' at character {start + 1}" if start >= 0 else "the end"
        form = 'columns and their types, such as "key binary, count bigint"'
        return ValueError(f"must be {form}: {wanted} is expected, not {found}")
