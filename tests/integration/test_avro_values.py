"""Avro's schemas and values beside Spark's own `from_avro`."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.types import from_arrow_type

from keyrange.embedded import jars
from keyrange.errors import KeyrangeError
from keyrange.formats.avro.fingerprints import fingerprint
from keyrange.formats.avro.schemas import parse
from keyrange.formats.format import format_of
from keyrange.formats.payloads import Payloads
from keyrange.model.value_forms import ReadSettings, Schema
from project.forms import by_form
from samples.avro_samples import AvroSamples, decorated_schema
from samples.value_trials import Trial, comparable
from unit.formats.test_avro_schemas import COLUMNS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def avro(spark: SparkSession) -> SparkSession:
    try:
        jars.resolve(jars.spark_avro())
    except KeyrangeError as failure:
        pytest.skip(f"Spark's Avro cannot be had: {failure.condition}")
    return spark


def unordered(value: Any) -> Any:
    """Java's maps have an order of their own."""
    if isinstance(value, list):
        read = [unordered(each) for each in value]
        keyed = all(isinstance(each, tuple) and len(each) == 2 for each in read)
        return sorted(read, key=repr) if keyed else read
    return tuple(map(unordered, value)) if isinstance(value, tuple) else value


def without_times_of_day(schema: Schema) -> str:
    """For these alone Spark has a type, TIME, that tables have not."""
    return schema.text.replace('"time-micros"', '"left aside"')


def has_array_for_union(said: Any) -> bool:
    """Java's Avro 1.12 says of such a default that it is no array."""
    if isinstance(said, list):
        return any(map(has_array_for_union, said))
    if not isinstance(said, dict):
        return False
    union = isinstance(said.get("type"), list)
    return (union and "default" in said and "[" in str(said["default"])) or any(
        map(has_array_for_union, said.values())
    )


def by_spark(spark: SparkSession, trial: Trial) -> tuple[str, list[Any]]:
    rows = spark.createDataFrame(list(enumerate(trial.payloads)), "n int, v binary")
    options = {
        "mode": "PERMISSIVE",
        "avroSchema": without_times_of_day(trial.reader),
        "datetimeRebaseMode": "CORRECTED",
    }
    read = rows.select("n", from_avro("v", without_times_of_day(trial.writer), options).alias("r"))
    found = read.toArrow().sort_by("n").column("r").combine_chunks()
    return read.schema["r"].dataType.simpleString(), comparable(found)


def test_spark_reads_the_same_of_schemas_by_chance(avro: SparkSession) -> None:
    samples, chance = AvroSamples(), Random(5)
    for _ in range(by_form(5, 25, 400)):
        trial = samples.trial(chance, 12)
        reader = json.loads(trial.reader.text)
        # Spark makes a 0 of a null that is in no record.
        if isinstance(reader, list) or has_array_for_union(reader):
            continue
        decoder = format_of("avro").decoder(trial.reader, trial.writer, ReadSettings())
        found = decoder.read(Payloads.of(pa.array(trial.payloads, pa.binary())))
        kind, values = by_spark(avro, trial)
        assert from_arrow_type(decoder.type).simpleString() == kind, trial
        assert unordered(comparable(found.column)) == unordered(values), trial


def test_spark_gives_these_schemas_the_same_columns(avro: SparkSession) -> None:
    schemas = [each for each in COLUMNS if "record" not in each and each != '"null"']
    fields = [{"name": f"c{at}", "type": json.loads(each)} for at, each in enumerate(schemas)]
    for at, each in enumerate(fields):
        if isinstance(each["type"], dict) and "name" in each["type"]:
            each["type"]["name"] = f"N{at}"
    schema = Schema(json.dumps({"type": "record", "name": "R", "fields": fields}))
    rows = avro.createDataFrame([(b"",)], "v binary")
    wanted = rows.select(from_avro("v", schema.text).alias("r")).schema["r"].dataType
    ours = from_arrow_type(format_of("avro").type_of(schema, ReadSettings()))
    differing = [
        (said, ours[at].dataType.simpleString(), wanted[at].dataType.simpleString())
        for at, said in enumerate(schemas)
        if ours[at].dataType.simpleString() != wanted[at].dataType.simpleString()
    ]
    assert [each[1:] for each in differing] == [("bigint", "time(6)")]


def test_what_avros_own_encoder_wrote_is_read_by_the_schema_that_it_names(
    spark: SparkSession,
) -> None:
    """Java's Avro, which Spark brings, writes the header and makes the fingerprint."""
    java: Any = spark._jvm
    fields = [{"name": "id", "type": "long"}]
    old: Any = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    note = {"name": "note", "type": "string", "default": "-", "doc": "of the seller"}
    new = {**old, "fields": [*fields, note]}

    def encoded(schema: Any, **values: Any) -> bytes:
        parsed = java.org.apache.avro.Schema.Parser().parse(json.dumps(schema))
        record = getattr(java.org.apache.avro.generic, "GenericData$Record")(parsed)
        for name, value in values.items():
            record.put(name, value)
        generic = java.org.apache.avro.generic.GenericData.get()
        encoder = java.org.apache.avro.message.BinaryMessageEncoder(generic, parsed)
        return bytes(encoder.encode(record).array())

    reader, writer = (Schema(json.dumps(each)) for each in (new, old))
    decoder = format_of("avro").unframed_decoder(reader, [writer], ReadSettings())
    payloads = [encoded(old, id=1), encoded(new, id=2, note="a")]
    found = decoder.read(Payloads.of(pa.array(payloads, pa.binary())))
    assert found.bad == {}
    assert found.column.to_pylist() == [{"id": 1, "note": "-"}, {"id": 2, "note": "a"}]
    chance = Random(9)
    for _ in range(by_form(30, 100, 1_000)):
        schema = decorated_schema(chance)
        parsed = java.org.apache.avro.Schema.Parser().parse(json.dumps(schema))
        named = java.org.apache.avro.SchemaNormalization.parsingFingerprint64(parsed)
        ours = fingerprint(parse(Schema(json.dumps(schema))))
        assert named % (1 << 64) == ours, schema
