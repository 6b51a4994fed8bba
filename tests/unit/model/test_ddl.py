"""Spark's DDL of columns, as far as it is read without a JVM; Spark's own reading of it is compared
in tests/integration/test_map_in_arrow.py."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from keyrange.formats.schema_document import struct_type
from keyrange.model.ddl import ddl_of, parse_ddl

READ = [
    ("key binary, count long", "struct<key:binary,count:bigint>"),
    ("key: BINARY ,count:Bigint", "struct<key:binary,count:bigint>"),
    (
        "a boolean, b tinyint, c byte, d smallint, e short, f int, g integer, h bigint",
        "struct<a:boolean,b:tinyint,c:tinyint,d:smallint,e:smallint,f:int,g:int,h:bigint>",
    ),
    ("a float, b real, c double", "struct<a:float,b:float,c:double>"),
    (
        "a string, b date, c timestamp, d timestamp_ltz, e timestamp_ntz",
        "struct<a:string,b:date,c:timestamp,d:timestamp,e:timestamp_ntz>",
    ),
    (
        "a decimal, b dec(5), c numeric ( 38 , 38 )",
        "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(38,38)>",
    ),
    (
        "a array<array<int>>, b map<string,struct<x: int, `y z` binary>>",
        "struct<a:array<array<int>>,b:map<string,struct<x:int,y z:binary>>>",
    ),
    ("`a ``b`` ,` int, int int, array string", "struct<a `b` ,:int,int:int,array:string>"),
]


@pytest.mark.parametrize(("ddl", "expected"), READ)
def test_columns_that_may_be_null(ddl: str, expected: str) -> None:
    schema = StructType.fromJson(parse_ddl(ddl))
    assert schema.simpleString() == expected
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("ddl", [ddl for ddl, _ in READ])
def test_a_document_is_arrow_s_types_as_pyspark_has_them_and_ddl_again(ddl: str) -> None:
    document = parse_ddl(ddl)
    expected = to_arrow_schema(StructType.fromJson(document), timezone="UTC")
    made = struct_type(document)
    assert pa.schema(list(made)).equals(expected)
    assert str(made) == str(pa.struct(list(expected)))
    assert parse_ddl(ddl_of(document)) == document


def test_many_nested_types_beside_each_other() -> None:
    columns = parse_ddl(", ".join(f"c{n} array<int>" for n in range(60)))
    assert len(columns["fields"]) == 60


REFUSED = [
    ("", "a column's name, in backquotes where it is no plain word, is expected, not the end"),
    ("a", "struct<> is expected, not the end"),
    ("a int,", "is expected, not the end"),
    ("a foo", "struct<> is expected, not 'foo' at character 3"),
    ("a int b int", "a comma is expected, not 'b' at character 7"),
    ("a int; b int", "a comma is expected, not ';' at character 6"),
    ("a int COMMENT 'x'", "a comma is expected, not 'COMMENT' at character 7"),
    ("1a int", "is expected, not '1a' at character 1"),
    ("`a int", "is expected, not '`' at character 1"),
    ("a array<int", "'>' is expected, not the end"),
    ("a array int", "'<' is expected, not 'int' at character 9"),
    ("a map<int>", "',' is expected, not '>' at character 10"),
    ("a decimal(x)", "a number of digits is expected, not 'x' at character 11"),
    ("a decimal(39)", "must have decimals of 1 to 38 digits"),
    ("a decimal(0)", "must have decimals of 1 to 38 digits"),
    ("a decimal(5,6)", "and no more behind the point"),
    ("a int NOT NULL", "must have columns that may be null, and 'a' is not"),
    ("a int, A int", "must name every column once, but 'A' is there twice"),
    ("a " + "array<" * 100_000, "must not hold types in more than 50 others"),
]


@pytest.mark.parametrize(("ddl", "message"), REFUSED, ids=[ddl[:20] for ddl, _ in REFUSED])
def test_what_is_wrong_is_named(ddl: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        parse_ddl(ddl)
    assert message in str(caught.value)
