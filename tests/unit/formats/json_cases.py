"""JSON values beside what Spark's `from_json` makes of them: the integration test asks Spark."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from keyrange.formats.json.decoder import JsonDecoder
from keyrange.formats.payloads import BadRows, Payloads

BAD = object()

TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "double": pa.float64(),
    "float": pa.float32(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,0)": pa.decimal128(38, 0),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "struct<b:long,c:string>": pa.struct([("b", pa.int64()), ("c", pa.string())]),
    "array<long>": pa.list_(pa.int64()),
    "map<string,long>": pa.map_(pa.string(), pa.int64()),
}


def _time(micros: int = 0, hour: int = 3, minute: int = 4, second: int = 5) -> datetime:
    return datetime(2020, 1, 2, hour, minute, second, micros, ZoneInfo("UTC"))


def _fields(*cases: tuple[str, Any]) -> list[tuple[bytes, Any]]:
    return [(b'{"a":%s}' % text.encode(), wanted) for text, wanted in cases]


CASES: dict[str, list[tuple[bytes, Any]]] = {
    "long": [
        (b"", None),
        (b" ", None),
        (b"{}", None),
        (b'{"a":1}', 1),
        (b'{\n"a"\r\n:\t1}\n', 1),
        (b'\n{"a":1}', 1),
        (b'{"\\u0061":1}', 1),
        (b'{"A":1}', None),
        (b'{"a":1,"a":2}', 2),
        (b'{"a":1,"a":null}', None),
        (b'{"a":1,"b":NaN}', 1),
        (b'{"a":1,"b":"\\ud800"}', 1),
        (b'{"a":1,"b":{"a":2,"x":[{"a":3}]}}', 1),
        (b'{"b":[],"c":{},"d":[[],{}],"a":1}', 1),
        *[
            (each, BAD)
            for each in (
                b'\xef\xbb\xbf{"a":1}', b'[{"a":1}]', b"[]", b"null", b"1", b'"x"', b'{"a":1',
                b'{"a":1,}', b"{a:1}", b'{"a":1,"b":"x\ny"}', b'{"a":1,"b":"\\x"}', b"{,}",
                b'{"a":1,"b":tru}', b'{"a":1,"b":[1,]}', b'{"a":1,"b":[1}', b'\x0c{"a":1}',
                b'\x00{"a":1}', b'{"a":1 "b":2}', b'{"a" 1}', b'{"a":1,"b":"\\u12g4"}', b"{",
                b'{"a":1,"b":' + b"9" * 1500 + b"}", b'{"a":' + b"9" * 1500 + b"}", b'{"a"', b'{"',
            )
        ],
        *_fields(
            ("9223372036854775807", 2**63 - 1), ("9223372036854775808", BAD),
            ("-9223372036854775808", -(2**63)), ("-9223372036854775809", BAD),
            ("9999999999999999999", BAD), ("-0", 0), ("null", None), ('"1"', BAD), ("1.0", BAD),
            ("1e3", BAD), ("true", BAD), ("{}", BAD), ("[]", BAD), ('""', BAD), ("01", BAD),
            ("+1", BAD), (".5", BAD), ("1.", BAD), ("-", BAD),
        ),
    ],
    "int": _fields(
        ("2147483647", 2**31 - 1), ("2147483648", BAD), ("-2147483648", -(2**31)),
        ("-2147483649", BAD),
    ),
    "smallint": _fields(("32767", 32767), ("32768", BAD), ("-32769", BAD)),
    "double": _fields(
        ("1", 1.0), ("0.1", 0.1), ("1e400", float("inf")), ("1e-400", 0.0), ("NaN", float("nan")),
        ("Infinity", float("inf")), ("-Infinity", float("-inf")), ('"NaN"', float("nan")),
        ('"Infinity"', float("inf")), ('"+Infinity"', float("inf")), ('"-INF"', float("-inf")),
        ("12345678901234567890123", 1.2345678901234568e22), ("-0", 0.0), ("-0.0", -0.0),
        ('"1"', BAD), ('"INF"', BAD), ('"nan"', BAD), ('""', BAD), ("true", BAD),
    ),
    "float": _fields(
        ("0.5", 0.5), ("16777217", 16777216.0), ("1e39", float("inf")),
        ("1.00000005960464477540", 1.0000001192092896), ('"NaN"', float("nan")),
    ),
    "decimal(10,2)": _fields(
        ("1.005", Decimal("1.01")), ("-1.005", Decimal("-1.01")), ("1.015", Decimal("1.02")),
        ("1e3", Decimal("1000.00")), ("1e-40", Decimal("0.00")), ('"1.5"', Decimal("1.50")),
        ('"1e3"', Decimal("1000.00")), ('"1,000.5"', Decimal("1000.50")), ("123456789.5", BAD),
        ("99999999.995", BAD), ("1e50", BAD), ('""', BAD), ('" 1"', BAD), ('"x"', BAD),
        ("true", BAD), ("NaN", BAD), ('"NaN"', BAD),
    ),
    "decimal(38,0)": _fields(
        ("9" * 38, Decimal("9" * 38)), ("9" * 39, BAD), ("0.5", Decimal(1)), ("1.5", Decimal(2)),
    ),
    "string": _fields(
        ("1", "1"), ("1.0", "1.0"), ("1e3", "1000.0"), ("1.50", "1.5"), ("1E+3", "1000.0"),
        ("-0", "0"), ("1e10", "1.0E10"), ("12345678901234567890", "12345678901234567890"),
        ("0.0001", "1.0E-4"), ("true", "true"), ("false", "false"), ("null", None), ('""', ""),
        ('{"b": [1, 2.0,null, "\\u00e9 \\/ \\n"]}', '{"b":[1,2.0,null,"é / \\n"]}'),
        ("[]", "[]"), ('{"b":NaN}', '{"b":"NaN"}'), ("NaN", '"NaN"'), ('"\\ud800"', "?"),
        ('"\\ud83d\\ude00"', "😀"), ('"x\\ud83dy"', "x?y"), ('"\\u0000"', "\0"),
        ('"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\u20ac"', '"\\/\b\f\n\r\té€'), ('"é€😀"', "é€😀"),
        ('{"x":1.0,"x":2E5,"y":-0.0}', '{"x":1.0,"x":200000.0,"y":-0.0}'),
    ),
    "boolean": _fields(
        ("true", True), ("false", False), ('"true"', BAD), ("1", BAD), ("null", None)
    ),
    "binary": _fields(
        ('"aGk="', b"hi"), ('"aGk=\\n"', b"hi"), ('""', b""), ('"aGk"', BAD), ('"!!"', BAD),
        ("1", BAD), ('"aG k="', BAD), ('"a-_="', BAD),
    ),
    "date": _fields(
        ('"2020-01-02"', date(2020, 1, 2)), ('"2020-1-2"', date(2020, 1, 2)),
        ('"2020"', date(2020, 1, 1)), ('"2020-02"', date(2020, 2, 1)),
        ('"2020-01-02T03:04:05Z"', date(2020, 1, 2)), ('"2020-01-02 x"', date(2020, 1, 2)),
        ('" 2020-01-02 "', date(2020, 1, 2)), ('"0001-01-01"', date(1, 1, 1)),
        ('"1600-02-29"', date(1600, 2, 29)), ('"2020-02-30"', BAD), ('"1900-02-29"', BAD),
        ('"2020-13-01"', BAD), ('"20XX-01-02"', BAD), ('"XX20-01-02"', BAD),
        ("5", BAD), ('"x"', BAD), ('""', BAD),
    ),
    "timestamp": _fields(
        ('"2020-01-02T03:04:05Z"', _time()), ('"2020-01-02T03:04:05"', _time()),
        ('"2020-01-02 03:04:05"', _time()), ('"2020-01-02T03:04:05.1234567Z"', _time(123456)),
        ('"2020-01-02T03:04:05.12+02:00"', _time(120000, 1)),
        ('"2020-01-02T03:04:05+0200"', _time(0, 1)), ('"2020-01-02T03:04:05+02"', _time(0, 1)),
        ('"2020-01-02T03:04:05+2:00"', _time(0, 1)), ('"2020-01-02T03:04:05 UTC"', _time()),
        ('"2020-01-02"', _time(0, 0, 0, 0)), ('"2020-01-02T03:04"', _time(0, 3, 4, 0)),
        ('"2020-01-02T03"', _time(0, 3, 0, 0)), ('" 2020-01-02T03:04:05Z "', _time()),
        ('"2020-1-2T3:4:5Z"', _time()), ('"2020-01-02T03:04:05.Z"', _time()),
        ('"2020-01-02T03:04:05GMT+2"', _time(0, 1)),
        ('"2020-01-02T03:04:05-18:00"', _time(0, 21)), ('"2020-01-02T03:04:05-18:01"', BAD),
        ('"2020-01-02T24:00:00Z"', BAD), ('"2020-01-02T23:59:60Z"', BAD),
        ('"2020-02-30T00:00:00Z"', BAD), ('"20XX-01-02T03:04:05Z"', BAD),
        ('"2020-01-02T03:04:05z"', BAD),
        ('"2020-01-02t03:04:05Z"', BAD), ('"2020-01-02T03:04:05,5Z"', BAD), ('""', BAD),
        ('"x"', BAD), ("5", datetime(1970, 1, 1, 0, 0, 5, 0, ZoneInfo("UTC"))), ("5.5", BAD),
    ),
    "timestamp_ntz": _fields(
        ('"2020-01-02T03:04:05"', datetime(2020, 1, 2, 3, 4, 5)),
        ('"2020-01-02"', datetime(2020, 1, 2)),
        ('"2020-01-02 03:04:05.1234567"', datetime(2020, 1, 2, 3, 4, 5, 123456)),
        ('"2020-01-02T03:04"', datetime(2020, 1, 2, 3, 4)), ("5", BAD), ('""', BAD),
        ('"2020-01-02T03:04:05+02:00"', BAD), ('"2020-01-02T03:04:05Z"', BAD),
        ('"20XX-01-02T03:04:05"', BAD),
    ),
    "struct<b:long,c:string>": [
        *_fields(
        ('{"b":1}', {"b": 1, "c": None}), ("null", None), ("{}", {"b": None, "c": None}),
        ("1", BAD), ('"x"', BAD), ('""', BAD), ("[]", BAD), ('[{"b":1}]', BAD),
        ('{"b":"x","c":"y"}', BAD),
        ),
        (b'{"a":{"b":1},"a":{"c":"y"}}', {"b": None, "c": "y"}),
    ],
    "array<long>": _fields(
        ("[1,null,2]", [1, None, 2]), ("[]", []), ("null", None), ("1", BAD), ('["x"]', BAD),
        ("{}", BAD), ('""', BAD),
    ),
    "map<string,long>": _fields(
        ('{"x":1,"y":null}', [("x", 1), ("y", None)]), ("{}", []), ("[]", BAD), ('{"x":"y"}', BAD),
    ),
}  # fmt: skip

# Spark reads these.
OURS_ARE_BAD = [
    b'{"a":1}{"a":2}', b'{"a":1} x', b'{"a":1}]', b'{"a":1}\x00', b"{'a':1}",
    b'{"a":1,"b":"\xff"}', b'{"a":1,"b":+INF}',
]  # fmt: skip


def identity(value: Any) -> str | None:
    return repr(value[:40]) if isinstance(value, bytes) else None


# Of a zone whose clocks go forward and back, and whose offset had seconds once.
ZONES = (
    "Europe/Berlin",
    "America/Los_Angeles",
    "Australia/Lord_Howe",
    "+05:30",
    "GMT-3",
    "Etc/UTC",
)
LOCAL_TIMES = (
    "2024-01-01T12:00:00",
    "2024-07-01 12:00:00.123456",
    "2024-03-31T02:30:00",
    "2024-03-10T02:00:00.5",
    "2024-10-27T02:59:59",
    "2024-11-03T01:30:00",
    "2024-04-07T01:45:00",
    "2024-10-06T02:15:00",
    "1880-01-01T00:00:00",
    "2024-07-01",
    "2024-07",
    "2024-7-1 5:6",
    "2024-07-01T12:00:00Z",
    "2024-07-01T12:00:00+02:00",
    "2024-07-01T12:00:00.5-0800",
    "0001-01-02T00:00:00",
    "9999-12-30T23:59:59",
)


def read_json(schema: pa.Schema, values: pa.BinaryArray) -> tuple[pa.RecordBatch, BadRows]:
    """The fields of these values as columns."""
    read = JsonDecoder(pa.struct(list(schema))).read(Payloads.of(values))
    read.column.validate(full=True)
    return pa.RecordBatch.from_arrays(read.column.flatten(), schema=schema), read.bad
