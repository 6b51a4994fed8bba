"""Columns by chance, JSON values for them, and what Python's own reader makes of these.

Rule of this file: nothing of keyrange's JSON is used. What a value means in a column is written
here a second time; where Spark takes many ways to write one, such as of a time, those that nobody
writes are Unsure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random
from typing import Any, Final

from keyrange.model.value_forms import Schema
from samples.value_trials import Refused, Trial, Unsure

_TEXTS: Final = ["", "a", "né", "日本語", "x" * 40, "🙂", "0", 'a "b" \\ /', "\t\n\x00", "null"]
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_PLAIN: Final = [
    *_BITS, "double", "float", "decimal(9,2)", "decimal(38,0)", "string", "boolean", "binary",
    "date", "timestamp", "timestamp_ntz",
]  # fmt: skip
_NOT_FINITE: Final = {
    "NaN": "nan",
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), "inf"),
    **dict.fromkeys(("-Infinity", "-INF"), "-inf"),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d{6})?)(Z|[+-](?:0\d|1[0-4]):[0-5]\d)?", re.ASCII
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)


class Members(list[Any]):
    """An object: names may come twice."""


class _Float(str):
    """A number with a point or an exponent."""

    __slots__ = ()


class JsonSamples:
    name = format = "json"
    names_writers = False

    def trial(self, chance: Random, payloads: int) -> Trial:
        root = struct_of(chance, 3)
        schema = Schema(json.dumps(root))
        return Trial(schema, schema, [_written(root, chance) for _ in range(payloads)])

    def read(self, trial: Trial, payload: bytes) -> Any:
        whole = document_of(payload)
        return None if whole is None else _of_struct(whole, json.loads(trial.reader.text))

    def is_stricter(self, error: str) -> bool:
        return False


def document_of(payload: bytes) -> Members | None:
    """An object; None where the payload is blank. Raises Refused."""
    try:
        text = payload.decode()
    except UnicodeDecodeError as failure:
        raise Refused(str(failure)) from failure
    if not text.strip(" \t\r\n"):
        return None
    try:
        read = json.loads(
            text, object_pairs_hook=Members, parse_float=_Float, parse_constant=_Float
        )
    except (ValueError, RecursionError) as failure:
        raise Refused(str(failure)) from failure
    if type(read) is not Members:
        raise Refused("no object")
    return read


def struct_of(chance: Random, depth: int) -> dict[str, Any]:
    names = chance.sample(["a", "b", "né", "c d", "e", "F", "g"], chance.randrange(1, 6))
    fields = [
        {"name": each, "type": _kind(chance, depth - 1), "nullable": True, "metadata": {}}
        for each in names
    ]
    return {"type": "struct", "fields": fields}


def _kind(chance: Random, depth: int) -> Any:
    if depth and chance.random() < 0.4:
        made = chance.choice(["struct", "array", "map"])
        if made == "struct":
            return struct_of(chance, depth)
        inner = _kind(chance, depth - 1)
        if made == "array":
            return {"type": "array", "elementType": inner, "containsNull": True}
        return {
            "type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True
        }  # fmt: skip
    return chance.choice(_PLAIN)


def _written(root: Any, chance: Random) -> bytes:
    """As many tools write it: with blanks, fields in any order, other ones and twice the same."""
    blank = chance.choice(["", "", " ", "\n\t"])
    return (blank + text_of(root, chance, blank) + blank).encode()


def text_of(kind: Any, chance: Random, blank: str) -> str:
    if chance.random() < 0.1 and not (isinstance(kind, dict) and kind["type"] == "struct"):
        return "null"
    if isinstance(kind, str):
        return _plain_text(kind, chance)
    if kind["type"] == "array":
        items = [text_of(kind["elementType"], chance, blank) for _ in range(chance.randrange(4))]
        return f"[{f',{blank}'.join(items)}]"
    if kind["type"] == "map":
        names = chance.sample(_TEXTS, chance.randrange(4))
        pairs = [(name, kind["valueType"]) for name in names]
    else:
        pairs = [(each["name"], each["type"]) for each in kind["fields"]]
        pairs = [each for each in pairs if chance.random() < 0.9]
        pairs += [each for each in pairs if chance.random() < 0.05]
        pairs += [("other", chance.choice(_PLAIN))] * (chance.random() < 0.2)
        chance.shuffle(pairs)
    is_ascii = chance.random() < 0.5
    members = [
        f"{json.dumps(name, ensure_ascii=is_ascii)}{blank}:{text_of(inner, chance, blank)}"
        for name, inner in pairs
    ]
    return f"{{{f'{blank},'.join(members)}}}"


def _plain_text(kind: str, chance: Random) -> str:
    if kind in _BITS:
        low = -(1 << (_BITS[kind] - 1))
        return str(chance.choice([0, -1, 7, low, -low - 1, chance.randrange(low, -low)]))
    if kind in ("double", "float"):
        numbers = ["0", "-0.0", "1.5", "2e3", "1E-7", "NaN", '"Infinity"', "-Infinity", "17"]
        return chance.choice([*numbers, str(chance.uniform(-1e6, 1e6))[:8].rstrip(".e-")])
    if kind.startswith("decimal"):
        return chance.choice(
            ['"1.5"', "0.005", "-12", str(chance.randrange(-(10**7), 10**7)), "1e3"]
        )
    if kind == "boolean":
        return chance.choice(["true", "false"])
    return json.dumps(_said(kind, chance), ensure_ascii=chance.random() < 0.5)


def _said(kind: str, chance: Random) -> Any:
    """Of a type that is written as a text; of a text column other things too."""
    if kind == "string":
        return chance.choice([*_TEXTS, 12, True, {"x": [1, None]}, []])
    if kind == "binary":
        return base64.b64encode(chance.randbytes(chance.randrange(8))).decode()
    if kind == "date":
        return str(date(1, 1, 1) + timedelta(days=chance.randrange(3_652_058)))
    micros = chance.choice([0, chance.randrange(1, 1_000_000)])
    at = datetime(1800, 1, 1) + timedelta(seconds=chance.randrange(15_000_000_000))
    text = at.replace(microsecond=micros).isoformat(chance.choice("T "))
    return text + (chance.choice(["", "Z", "+05:30", "-11:00"]) if kind == "timestamp" else "")


def _of_struct(members: Any, kind: Any) -> dict[str, Any]:
    if type(members) is not Members:
        raise Refused("no object")
    kinds = {each["name"]: each["type"] for each in kind["fields"]}
    found = dict.fromkeys(kinds)
    for name, value in members:
        if name in kinds:
            found[name] = typed(value, kinds[name])
    return found


def typed(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, str):
        return _of_plain(value, kind)
    if kind["type"] == "struct":
        return _of_struct(value, kind)
    if kind["type"] == "array":
        if type(value) is not list:
            raise Refused("no array")
        return [typed(each, kind["elementType"]) for each in value]
    if type(value) is not Members:
        raise Refused("no object")
    return [(_without_halves(name), typed(each, kind["valueType"])) for name, each in value]


def _of_plain(value: Any, kind: str) -> Any:
    if kind == "string":
        return _without_halves(value if type(value) is str else _again(value))
    if kind == "boolean":
        if type(value) is not bool:
            raise Refused("no boolean")
        return value
    if kind in _BITS:
        limit = 1 << (_BITS[kind] - 1)
        if type(value) is not int or not -limit <= value < limit:
            raise Refused("no such integer")
        return value
    if kind in ("double", "float"):
        return _of_float(value, kind)
    if kind.startswith("decimal"):
        return decimal_of(value, *map(int, kind[8:-1].split(",")))
    if kind == "timestamp" and type(value) is int:
        if not -(2**63) <= value * 1_000_000 < 2**63:
            raise Refused("a time that no timestamp holds")
        return value * 1_000_000
    if type(value) is not str:
        raise Refused("no text")
    return _of_bytes(value) if kind == "binary" else time_of(value, kind)


def _without_halves(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _again(value: Any) -> str:
    """What is no text, as JSON without blanks."""
    if type(value) is _Float:
        raise Unsure("as the JVM writes it")
    if type(value) is Members:
        return f"{{{','.join(f'{_again(name)}:{_again(each)}' for name, each in value)}}}"
    if type(value) is list:
        return f"[{','.join(map(_again, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _of_float(value: Any, kind: str) -> float:
    if type(value) is str:
        if value not in _NOT_FINITE:
            raise Refused("no number")
        return float(_NOT_FINITE[value])
    if type(value) not in (int, _Float):
        raise Refused("no number")
    text = str(value)
    if kind == "double" or text in _NOT_FINITE:
        return float(text)
    if len(text) > 12 or "e" in text.lower():
        raise Unsure("it may be rounded twice")
    found: float = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    return found


def decimal_of(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) not in (int, _Float, str):
        raise Refused("no number")
    if not _NUMBER.fullmatch(str(value)):
        if type(value) is str and re.fullmatch(r"[0-9+.,eE-]+", value):
            raise Unsure("a text that may be a number")
        raise Refused("no number")
    with localcontext(prec=2_000):
        rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        if abs(rounded) >= Decimal(1).scaleb(precision - scale):
            raise Refused("too many digits")
        return rounded


def _of_bytes(value: str) -> bytes:
    if value != value.rstrip("\r\n"):
        raise Unsure("a line feed at the end")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise Refused(str(failure)) from failure


def time_of(value: str, kind: str) -> int:
    matched = _TIME.fullmatch(value)
    try:
        if kind == "date" and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
            return (date.fromisoformat(value) - date(1970, 1, 1)).days
        if kind != "date" and matched and (kind == "timestamp" or not matched[3]):
            at = datetime.fromisoformat(f"{matched[1]}T{matched[2]}{matched[3] or 'Z'}")
            return (at - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as failure:
        raise Refused(str(failure)) from failure
    if re.match(r"\s*\d{4}", value):
        raise Unsure("written in another way")
    raise Refused("no time")
