"""Schemas in files say the same as those in options."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from keyrange.errors import InvalidError
from keyrange.formats.protobuf.descriptors import serialized
from keyrange.model.value_forms import Schema, ValueForms
from keyrange.options import parse_options
from keyrange.values.forms import value_forms

ORDER = """
syntax = "proto3";
package shop;
message Line { string item = 1; }
message Order { int64 id = 1; repeated Line lines = 2; }
"""
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
DDL = "id bigint,\n  place struct<city string>\n"


def forms(**given: str) -> ValueForms:
    options = {"kafka.bootstrap.servers": "h:9", "subscribe": "t"}
    return value_forms(parse_options(options | given))


def descriptor_set() -> bytes:
    return base64.b64decode(serialized(Schema(ORDER)).text)


@pytest.mark.parametrize("side", ["value", "key"])
@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ("json", DDL),
        ("connect", DDL),
        ("avro", AVRO),
        ("protobuf", ORDER),
        ("protobuf", base64.b64encode(descriptor_set()).decode()),
    ],
)
def test_a_file_says_what_an_option_says(tmp_path: Path, side: str, form: str, schema: str) -> None:
    file = tmp_path / "schema"
    said = forms(**{f"{side}Format": form, f"{side}Schema": schema})
    for data in (schema.encode(), b"\xef\xbb\xbf" + schema.encode(), b"\n" + schema.encode()):
        file.write_bytes(data)
        for location in (str(file), file.as_uri()):
            found = forms(**{f"{side}Format": form, f"{side}Schema.location": location})
            assert found == said


def test_a_descriptor_set_is_as_protoc_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptor_set())
    given = {"valueFormat": "protobuf", "valueMessage": "shop.Order"}
    (form,) = forms(**given, **{"valueSchema.location": str(file)}).columns
    read = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(form.schema.text))
    assert [each.name for each in read.file[0].message_type] == ["Line", "Order"]
    assert form.schema.message == "shop.Order"


def test_avro_may_have_files_of_writers(tmp_path: Path) -> None:
    """The driver says it where what they write cannot be read into the columns."""
    new, old, wrong = (tmp_path / name for name in ("new.avsc", "old.avsc", "wrong.avsc"))
    new.write_text(AVRO)
    old.write_text(AVRO.replace("long", "int"))
    wrong.write_text(AVRO.replace("long", "string"))
    (form,) = forms(valueFormat="avro", **{"valueSchema.location": f"{new}, {old}"}).columns
    assert (form.schema, form.writers) == (Schema(AVRO), (Schema(AVRO.replace("long", "int")),))
    said = r"valueSchema.*schema 3 in its location.*string"
    with pytest.raises(InvalidError, match=said):
        forms(valueFormat="avro", **{"valueSchema.location": f"{new},{old},{wrong}"})


@pytest.mark.parametrize(
    ("form", "data", "said"),
    [
        ("json", None, "cannot be read: there is no such file"),
        ("json", b"id what", "the schema in .* what"),
        ("json", b" \n", "is empty"),
        ("avro", b"\xff{}", "is not UTF-8"),
        ("avro", b'{"type": "no"}', "valueSchema"),
        ("protobuf", b"\x0a\xff\x00", "valueSchema"),
        ("json", b" " * (5 << 20), "5,242,880 bytes, and a schema at most"),
    ],
)
def test_what_is_no_schema_is_named(
    tmp_path: Path, form: str, data: bytes | None, said: str
) -> None:
    file = tmp_path / "schema"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(InvalidError, match=said):
        forms(**{"valueFormat": form, "valueSchema.location": str(file)})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"valueFormat": "json", "valueSchema": "id int"}, "give one of them"),
        ({"valueFormat": "string"}, "needs valueFormat=json"),
        (
            {"valueFormat": "json", "valueSchema.location": "here/schema"},
            "must be an absolute path",
        ),
        ({"valueFormat": "avro", "valueSchema.location": "/a, b"}, "must be an absolute path"),
        (
            {
                "valueFormat": "avro",
                "valueSchema.location": "/a,/b",
                "schemaRegistry.url": "http://h:1",
            },
            "names one file",
        ),
    ],
)
def test_what_does_not_go_together(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        forms(**({"valueSchema.location": "/schema"} | given))
