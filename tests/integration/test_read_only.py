"""What Spark says where somebody writes with keyrange, or makes a table of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

READING = "OPTIONS ('kafka.bootstrap.servers'='127.0.0.1:1', 'subscribe'='t')"


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as failure:
        call()
    return str(failure.value)


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("cast(id AS string) AS value")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_data_frame_that_is_written(frame: DataFrame, mode: str) -> None:
    text = refusal(lambda: frame.write.format("keyrange").mode(mode).save())
    assert "[READ_ONLY_SOURCE]" in text
    assert "keyrange.topic_writer" in text


def test_a_data_frame_that_is_written_without_a_mode(frame: DataFrame) -> None:
    """Spark refuses it before keyrange is asked; the guide of symptoms names it."""
    text = refusal(lambda: frame.write.format("keyrange").save())
    assert "[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]" in text


def test_a_stream_that_is_written(spark: SparkSession, tmp_path: Path) -> None:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rates.writeStream.format("keyrange").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert "[READ_ONLY_SOURCE]" in refusal(query.awaitTermination)


@pytest.mark.parametrize("options", ["", READING])
def test_a_table_without_columns(spark: SparkSession, options: str) -> None:
    text = refusal(lambda: spark.sql(f"CREATE TABLE no_table USING keyrange {options}"))
    assert "[READ_ONLY_SOURCE] a table of a catalog cannot be USING keyrange" in text
    assert "CREATE TEMPORARY VIEW" in text
