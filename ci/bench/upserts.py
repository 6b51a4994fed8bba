"""The last row of each key in a Delta table: keyrange's job, and what users of the JVM connector
write, a MERGE of each batch's last rows in foreachBatch. Values are JSON that is read into columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

import keyrange
from bench import topics

COLUMNS: Final = ("key", "value", "partition", "offset")
_MERGE: Final = (
    "MERGE INTO delta.`{}` AS held USING last ON held.key = last.key"
    " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def by_job(spark: SparkSession, given: Mapping[str, str], home: Path) -> DataStreamWriter:
    typed = {"valueFormat": "json", "valueSchema": topics.OBJECT, "columns": ",".join(COLUMNS)}
    job = keyrange.job({**given, **typed})
    return job.into(str(home / "table"), str(home / "checkpoint"), keys="key", spark=spark)


def by_foreach_batch(spark: SparkSession, given: Mapping[str, str], home: Path) -> DataStreamWriter:
    table = str(home / "table")
    read = spark.readStream.format("kafka").options(**given).load().select(*COLUMNS)
    spark.createDataFrame([], _typed(read).schema).write.format("delta").save(table)

    def merge(batch: DataFrame, _: int) -> None:
        """What is not the last row of its key is left out before it is parsed."""
        _typed(_last(batch)).createOrReplaceTempView("last")
        batch.sparkSession.sql(_MERGE.format(table))

    checkpoint = str(home / "checkpoint")
    return read.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint)


def _last(batch: DataFrame) -> DataFrame:
    """A key is in one partition, whose offsets say which of its records is the last one."""
    newest = Window.partitionBy("key").orderBy(F.col("offset").desc())
    return batch.withColumn("at", F.row_number().over(newest)).where("at = 1").drop("at")


def _typed(records: DataFrame) -> DataFrame:
    read = F.from_json(records["value"].cast("string"), topics.OBJECT).alias("read")
    return records.select("key", read, "partition", "offset").select(
        "key", "read.*", "partition", "offset"
    )


def held(table: Path) -> tuple[int, int]:
    """How many rows a table has, and the sum of their offsets: older rows have another sum."""
    offsets = DeltaTable(table).to_pyarrow_table(columns=["offset"]).column("offset")
    return len(offsets), pc.sum(offsets).as_py()
