"""The cases of JSON values beside Spark's own `from_json` with the same schemas."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings, Schema
from project.forms import by_form
from project.snippets import ROOT
from samples.json_samples import JsonSamples
from samples.value_trials import comparable, damaged
from unit.formats.json_cases import BAD, CASES, LOCAL_TIMES, ZONES, read_json

pytestmark = pytest.mark.spark

INTEGERS = pa.int64(), pa.list_(pa.int64())
STRICTER = re.findall(
    r"^\| `(\{.*?)`[^|]*? \| (bigint|timestamp|date|binary) \| (.*?) \| bad",
    (ROOT / "connector/guides/values.md").read_text(),
    re.MULTILINE,
)


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


@pytest.mark.parametrize("zone", ZONES)
def test_spark_reads_times_without_a_zone_in_that_of_its_session_so(
    spark: SparkSession, zone: str
) -> None:
    values = [f'{{"a": "{each}", "b": ["{each}"]}}' for each in LOCAL_TIMES]
    rows = spark.createDataFrame(list(enumerate(values)), "n int, v string")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        read = F.from_json("v", "a timestamp, b array<timestamp>")
        # Instants: Arrow has no zone of its own for each name that Spark knows.
        micros = F.unix_micros("r.a"), F.transform("r.b", F.unix_micros)
        found = rows.select("n", read.alias("r")).select("n", *micros).orderBy("n").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    kind = pa.timestamp("us", zone)
    schema = pa.schema([("a", kind), ("b", pa.list_(kind))])
    batch, bad = read_json(schema, pa.array([each.encode() for each in values]))
    assert not bad
    ours = [column.cast(each).to_pylist() for column, each in zip(batch, INTEGERS, strict=True)]
    assert [(row[1], row[2]) for row in found] == list(zip(*ours, strict=True))


def test_spark_reads_the_same_of_columns_by_chance(spark: SparkSession) -> None:
    samples, chance = JsonSamples(), Random(5)
    for _ in range(by_form(5, 25, 400)):
        trial = samples.trial(chance, 12)
        whole = list(trial.payloads)
        payloads = [*whole, *(damaged(each, chance) for each in whole)]
        decoder = format_of("json").decoder(trial.reader, trial.reader, ReadSettings())
        ours = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
        values, bad = by_spark(spark, trial.reader, payloads)
        assert not set(range(len(whole))).intersection(bad), trial
        # Where keyrange is stricter the guide says.
        assert set(bad) <= {*ours.bad}, trial
        pairs = zip(comparable(ours.column), values, strict=True)
        for row, (own, theirs) in enumerate(pairs):
            assert row in ours.bad or own == theirs, (payloads[row], trial)


def by_spark(
    spark: SparkSession, schema: Schema, payloads: list[bytes]
) -> tuple[list[Any], list[int]]:
    """The rows, and the numbers of bad ones."""
    columns = StructType.fromJson(json.loads(schema.text))
    rows = spark.createDataFrame(list(enumerate(payloads)), "n int, v binary")
    told = StructType([*columns, StructField("bad", StringType())])
    options = {"columnNameOfCorruptRecord": "bad"}
    read = F.from_json(F.col("v").cast("string"), told, options)
    found = rows.select("n", read.alias("r")).toArrow().sort_by("n").column("r").combine_chunks()
    bad = np.flatnonzero(found.field("bad").is_valid()).tolist()
    sides = [found.field(at) for at in range(len(columns))]
    whole = pa.StructArray.from_arrays(
        sides, fields=list(found.type)[: len(columns)], mask=found.is_null()
    )
    return comparable(whole), bad


def test_the_guide_names_where_spark_reads_more(spark: SparkSession) -> None:
    assert len(STRICTER) == 12
    for text, ddl, wanted in STRICTER:
        value = text.encode().replace(b"\\xff", b"\xff")
        (row,) = (
            spark.createDataFrame([(value,)], "v binary")
            .select(F.from_json(F.col("v").cast("string"), f"a {ddl}, b bigint").a.cast("string"))
            .collect()
        )
        if ddl == "timestamp" and wanted.startswith("12:00"):
            assert str(row[0]).endswith(" 12:00:00"), text
        else:
            assert row[0] == wanted, text
        kinds = {
            "bigint": pa.int64(),
            "timestamp": pa.timestamp("us", "UTC"),
            "date": pa.date32(),
            "binary": pa.binary(),
        }
        schema = pa.schema([("a", kinds[ddl]), ("b", pa.int64())])
        _, bad = read_json(schema, pa.array([value], pa.binary()))
        assert [*bad] == [0], text
