"""Columns by chance, rows of Kafka Connect's JSON converter for them, by themselves and in
Debezium's envelopes, and what is meant by these.

Rule of this file: nothing of keyrange's reading is used. What a number or a text means by the name
that its field's schema has is written here a second time; what is plain JSON is read as
`json_samples` does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

from keyrange.model.value_forms import Schema
from samples import json_samples as plain
from samples.avro_samples import AvroSamples
from samples.json_samples import document_of
from samples.value_trials import Refused, Trial, Unsure

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_DATES: Final = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
# Of a microsecond so many, or so many microseconds.
_UNITS: Final = {
    "io.debezium.time.Timestamp": (1000, 1),
    "org.apache.kafka.connect.data.Timestamp": (1000, 1),
    "io.debezium.time.MicroTimestamp": (1, 1),
    "io.debezium.time.NanoTimestamp": (1, 1000),
}
_ZONED: Final = "io.debezium.time.ZonedTimestamp"
_ISO: Final = ("io.debezium.time.IsoDate", "io.debezium.time.IsoTimestamp")
_FIRST: Final = datetime(1800, 1, 1)
_DAY_US: Final = 86_400_000_000
Field = dict[str, Any]


class ConnectSamples:
    name = format = "connect"
    names_writers = False

    def trial(self, chance: Random, payloads: int) -> Trial:
        root = plain.struct_of(chance, 3)
        schema = Schema(json.dumps(root))
        found = Trial(schema, schema, [])
        while len(found.payloads) < payloads:
            payload = self._payload(root, chance)
            (found.payloads if self._is_read(found, payload) else found.doubtful).append(payload)
        return found

    def read(self, trial: Trial, payload: bytes) -> Any:
        return _read(json.loads(trial.reader.text), payload)

    def _is_read(self, trial: Trial, payload: bytes) -> bool:
        try:
            self.read(trial, payload)
        except (Refused, Unsure):
            return False
        return True

    def is_stricter(self, error: str) -> bool:
        return False

    def _payload(self, root: Any, chance: Random) -> bytes:
        return _document(*_row(root, chance), chance)


class DebeziumSamples(ConnectSamples):
    name = format = "debezium"

    def read(self, trial: Trial, payload: bytes) -> Any:
        row = json.loads(trial.reader.text)
        kinds = {"before": row, "after": row, "op": "string", "ts_ms": "long"}
        fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
        found = _read({"type": "struct", "fields": fields}, payload)
        if found is None or found["op"] is None:
            raise Refused("no envelope")
        return found

    def _payload(self, root: Any, chance: Random) -> bytes:
        sides, fields = [], []
        for side in ("before", "after"):
            row, schema = _row(root, chance)
            sides.append(f'"{side}": {row if chance.random() < 0.8 else "null"}')
            fields.append(schema | {"field": side})
        op = chance.choice(["c", "u", "d", "r", "t"])
        sides += [f'"op": "{op}"', f'"ts_ms": {chance.randrange(10**12)}']
        sides += ['"source": {"db": "shop", "lsn": 7}', '"transaction": null']
        fields += [{"type": "string", "field": "op"}, {"type": "int64", "field": "ts_ms"}]
        return _document(f"{{{', '.join(sides)}}}", {"type": "struct", "fields": fields}, chance)


def _document(row: str, schema: Field, chance: Random) -> bytes:
    """As the converter writes it with schemas and without."""
    if chance.random() < 0.3:
        return row.encode()
    return f'{{"schema": {json.dumps(schema)}, "payload": {row}}}'.encode()


def _row(root: Any, chance: Random) -> tuple[str, Field]:
    """A row as JSON, and the schema of its converter."""
    members, fields = [], []
    for each in root["fields"]:
        name, kind = each["name"], each["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            text, schema = _row(kind, chance)
        elif _is_named(kind):
            text, schema = _named(kind, chance)
        else:
            text, schema = plain.text_of(kind, chance, ""), {"type": "string"}
        text = "null" if chance.random() < 0.1 else text
        fields.append(schema | {"field": name})
        if chance.random() < 0.9:
            members.append(f"{json.dumps(name)}: {text}")
    chance.shuffle(members)
    return f"{{{', '.join(members)}}}", {"type": "struct", "fields": fields}


def _is_named(kind: Any) -> bool:
    """Whether it depends on the schema's name what a value means."""
    is_time = kind in ("date", "timestamp", "timestamp_ntz")
    return is_time or (isinstance(kind, str) and kind.startswith("decimal"))


def _named(kind: str, chance: Random) -> tuple[str, Field]:
    """A value, and its field; now and then one of another name, or of none."""
    if kind.startswith("decimal"):
        return _decimal(kind, chance)
    days = chance.randrange(-700_000, 2_000_000)
    micros = chance.randrange(-(2**50), 2**50)
    if kind == "date":
        name = chance.choice([*_DATES, *_DATES, _ISO[0], *_UNITS])
        at = date(1, 1, 1) + timedelta(days=days + 700_000)
        value: Any = f"{at}{chance.choice(['', 'Z'])}" if name == _ISO[0] else days
    else:
        name = chance.choice([*_UNITS, *_DATES, _ZONED if kind == "timestamp" else _ISO[1]])
        value = chance.choice([micros, micros // 10**6, 0, 2**62])
        if name in _DATES:
            value = days
        elif name not in _UNITS:
            at_ = (_FIRST + timedelta(microseconds=micros + 2**50)).isoformat(
                timespec="microseconds"
            )
            value = at_ + chance.choice(["Z", "Z", "+02:00"] if kind == "timestamp" else ["", "Z"])
    name = chance.choice([name] * 20 + ["other", ""])
    return json.dumps(value), {"type": "int64"} | ({"name": name} if name else {})


def _decimal(kind: str, chance: Random) -> tuple[str, Field]:
    number = chance.randrange(-(10**9), 10**9)
    scale = chance.choice([0, 1, 2, 2, 2, 5])
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    text = base64.b64encode(data).decode()
    match chance.randrange(4):
        case 0:
            value = {"scale": scale, "value": text}
            return json.dumps(value), {"type": "struct", "name": _VARIABLE}
        case 1:
            return plain.text_of(kind, chance, ""), {"type": "string"}
        case _:
            parameters = {"scale": str(scale)} if chance.random() < 0.95 else {}
            field = {"type": "bytes", "name": _DECIMAL, "parameters": parameters}
            return json.dumps(text), field


def _read(kind: Any, payload: bytes) -> Any:
    """Null for a null that has its schema."""
    whole = document_of(payload)
    if whole is None:
        return None
    schema = row = None
    for name, value in whole:
        if name == "schema":
            schema = value
        elif name == "payload":
            row = None if value is None else _walked(value, kind)
    if row is None and type(schema) is plain.Members:
        # No column of a trial has one of these names.
        return None
    if row is None:
        row = _walked(whole, kind)
    return _meant(row, kind, _plain_json(schema))


def _walked(members: Any, kind: Any) -> dict[str, Any]:
    """The fields of a row, those that depend on names as they are written."""
    if type(members) is not plain.Members:
        raise Refused("no object")
    kinds = {each["name"]: each["type"] for each in kind["fields"]}
    found: dict[str, Any] = dict.fromkeys(kinds)
    for name, value in members:
        if name not in kinds:
            continue
        own = kinds[name]
        if value is None or _is_named(own):
            found[name] = value
        elif isinstance(own, dict) and own["type"] == "struct":
            found[name] = _walked(value, own)
        else:
            found[name] = plain.typed(value, own)
    return found


def _plain_json(value: Any) -> Any:
    if type(value) is plain.Members:
        return {name: _plain_json(each) for name, each in value}
    return [*map(_plain_json, value)] if type(value) is list else value


def _meant(row: dict[str, Any], kind: Any, schema: Any) -> dict[str, Any]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    told = {
        each["field"]: each
        for each in (fields if isinstance(fields, list) else ())
        if isinstance(each, dict) and isinstance(each.get("field"), str)
    }
    found = {}
    for each in kind["fields"]:
        name, own = each["name"], each["type"]
        value, field = row[name], told.get(name, {})
        if value is not None and _is_named(own):
            value = _value(value, own, field)
        elif value is not None and isinstance(own, dict) and own["type"] == "struct":
            value = _meant(value, own, field)
        found[name] = value
    return found


def _value(value: Any, kind: str, field: Field) -> Any:
    name = field.get("name")
    if kind.startswith("decimal"):
        return _exact(value, kind, field)
    if type(value) is str:
        if kind == "date":
            value = re.sub(r"(?<=\d\d-\d\d)(Z|[+-]\d\d:\d\d)$", "", value)
        elif kind == "timestamp_ntz":
            value = value.removesuffix("Z")
        return plain.time_of(value, kind)
    if type(value) is not int:
        raise Refused("no number and no text")
    if kind == "date" and name in _ISO:
        raise Refused("a number of another form")
    if name in _UNITS:
        times, parts = _UNITS[name]
        micros = value * times // parts
    elif name in _DATES or kind == "date":
        micros = value * _DAY_US
    else:
        raise Refused("a number of what")
    if kind == "date":
        if not -(2**31) <= micros // _DAY_US < 2**31:
            raise Refused("no day")
        return micros // _DAY_US
    if not -(2**63) <= micros < 2**63:
        raise Refused("out of range")
    return micros


def _exact(value: Any, kind: str, field: Field) -> Decimal:
    precision, digits = map(int, kind[8:-1].split(","))
    parameters = field.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if field.get("name") == _VARIABLE:
        if type(value) is not plain.Members:
            raise Refused("no parts")
        parts = _plain_json(value)
        value, scale = parts.get("value"), parts.get("scale")
        if type(scale) is not int:
            raise Refused("no scale")
    elif field.get("name") != _DECIMAL:
        return plain.decimal_of(value, precision, digits)
    if type(value) is not str or not re.fullmatch(r"-?\d{1,12}", str(scale), re.ASCII):
        raise Refused("no bytes, or no scale")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise Refused(str(failure)) from failure
    scale = int(str(scale))
    if not data or abs(scale) > 16_383:
        raise Refused("no byte, or no scale of a database")
    number = int.from_bytes(data, "big", signed=True)
    # In units of the column's last digit.
    units, rest = number, 0
    if scale > digits:
        units, rest = divmod(number, 10 ** (scale - digits))
    elif number:
        units = number * 10 ** (digits - scale)
    if rest or abs(units) >= 10**precision:
        raise Refused("digits are lost")
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -digits))


class ConnectAvroSamples(AvroSamples):
    """By the schema that wrote them: of another reader's defaults Kafka Connect's columns know
    nothing."""

    name, format = "connect-avro", "connect"

    def trial(self, chance: Random, payloads: int) -> Trial:
        made = super().trial(chance, payloads)
        return replace(made, reader=made.writer)


class TextSamples:
    name = format = "string"
    names_writers = False

    def trial(self, chance: Random, payloads: int) -> Trial:
        letters = "a0 \n\x00é\u0800日\uffff🙂\U0010ffff"
        texts = ["".join(chance.choices(letters, k=chance.randrange(9))) for _ in range(payloads)]
        return Trial(Schema(""), Schema(""), [each.encode() for each in texts])

    def read(self, trial: Trial, payload: bytes) -> Any:
        del trial
        try:
            return payload.decode()
        except UnicodeDecodeError as failure:
            raise Refused(str(failure)) from failure

    def is_stricter(self, error: str) -> bool:
        return False
