"""The cases of JSON values beside Spark's own `from_json` with the same schemas."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from unit.wire.json_cases import BAD, CASES

pytestmark = pytest.mark.spark

# `byte` is left out: Spark wraps what is out of its range around.


@pytest.mark.parametrize("ddl", CASES)
def test_spark_reads_the_cases_so(spark: SparkSession, ddl: str) -> None:
    values = [value for value, _ in CASES[ddl]]
    rows = spark.createDataFrame(
        [(row, value) for row, value in enumerate(values)], "n int, v binary"
    )
    schema = f"a {ddl}, bad string"
    read = F.from_json(F.col("v").cast("string"), schema, {"columnNameOfCorruptRecord": "bad"})
    # As Arrow hands it over: a timestamp with its zone, whatever the zone of this process is.
    found = rows.select("n", read.alias("r")).select("n", "r.a", "r.bad").toArrow().sort_by("n")
    spark_reads: list[Any] = found.column("a").to_pylist()
    spark_bad = [each is not None for each in found.column("bad").to_pylist()]
    assert spark_bad == [wanted is BAD for _, wanted in CASES[ddl]]
    for (value, wanted), each in zip(CASES[ddl], spark_reads, strict=True):
        if wanted is not BAD:
            assert str(each) == str(wanted) or each == wanted, value
