"""Schemas that are no columns are refused by name, before a query starts."""

from __future__ import annotations

import pytest
from pyspark.errors import ParseException
from pyspark.sql.types import LongType, StructField, StructType

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.reported_outcomes import schema_of

ORDERS = StructType([StructField("id", LongType())])


def test_a_schema_is_taken_as_it_is_or_in_ddl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StructType, "fromDDL", lambda _: ORDERS)
    assert schema_of(ORDERS) is ORDERS
    assert schema_of("id long") == ORDERS


def test_what_is_no_ddl_of_columns_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_type(_: str) -> StructType:
        raise ParseException(
            '\n[UNSUPPORTED_DATATYPE] Unsupported data type "DBL".\n\n== SQL ==\nprice dbl\n'
        )

    monkeypatch.setattr(StructType, "fromDDL", no_type)
    with pytest.raises(KeyrangeError) as raised:
        schema_of("price dbl")
    assert raised.value.condition.name == "INVALID_OPTIONS"
    assert raised.value.message == (
        "schema 'price dbl' is no DDL of columns: [UNSUPPORTED_DATATYPE] Unsupported data type "
        '"DBL"'
    )
    # A type alone is DDL too, and no columns.
    monkeypatch.setattr(StructType, "fromDDL", lambda _: LongType())
    with pytest.raises(KeyrangeError, match="is no DDL of columns"):
        schema_of("long")
