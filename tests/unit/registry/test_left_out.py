"""Fields that came into a subject since a query began are dropped, and not without a word."""

from __future__ import annotations

import pyarrow as pa
import pytest

from keyrange.formats.format import format_of
from keyrange.formats.left_out import _tell_once
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings, Schema
from keyrange.registry.framed_decoder import FramedDecoder
from keyrange.registry.registered_schemas import RegisteredSchema
from registries.framed import Known, prefix

_AVRO = '{"type":"record","name":"O","fields":[{"name":"id","type":"long"%s}%s]}'
_NOTE = ',{"name":"note","type":"string"}'
_PROTO = 'syntax = "proto3"; message O { int64 id = 1; %s }'
# An order of id 7, with the note "x".
_WRITTEN = {"AVRO": b"\x0e\x02x", "PROTOBUF": b"\x08\x07\x12\x01x"}


@pytest.mark.parametrize(
    ("kind", "first", "later", "told"),
    [
        ("AVRO", _AVRO % ("", ""), _AVRO % ("", _NOTE), True),
        # It has another name in the columns.
        ("AVRO", _AVRO % (',"aliases":["note"]', ""), _AVRO % ("", _NOTE), False),
        ("AVRO", _AVRO % ("", _NOTE), _AVRO % ("", _NOTE), False),
        ("PROTOBUF", _PROTO % "", _PROTO % "string note = 2;", True),
    ],
)
@pytest.mark.parametrize("rescues", [False, True])
@pytest.mark.parametrize("is_given", [False, True])
def test_fields_of_a_later_schema_are_named_once(
    caplog: pytest.LogCaptureFixture,
    kind: str,
    first: str,
    later: str,
    told: bool,
    rescues: bool,
    is_given: bool,
) -> None:
    _tell_once.cache_clear()
    message = "O" if kind == "PROTOBUF" else ""
    reader = RegisteredSchema(None if is_given else 1, kind, Schema(first, message))
    schemas = Known({2: RegisteredSchema(2, kind, Schema(later, message))})
    settings, form = ReadSettings(rescues=rescues), format_of(kind.lower())
    payload = prefix(2, (0,) if kind == "PROTOBUF" else ()) + _WRITTEN[kind]
    for _ in range(2):
        read = FramedDecoder(schemas, reader, form, settings).read(Payloads.of(pa.array([payload])))
        assert read.bad == {}
    said = [each for each in caplog.messages if "no column takes" in each]
    wanted = told and not rescues and not is_given
    assert len(said) == wanted
    assert not said or "schema 2 of the registry has fields" in said[0]
    assert not said or "'note'" in said[0]
