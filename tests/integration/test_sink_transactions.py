"""What delta-spark remembers of the transactions by which a batch is appended once."""

from __future__ import annotations

import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from keyrange.delta.data_files import DataFileWriter
from keyrange.delta.sink import SinkTable

SCHEMA = pa.schema([("a", pa.int64())])
RETENTION = "delta.setTransactionRetentionDuration"


@pytest.mark.parametrize("forgets", [True, False])
def test_a_checkpoint_of_sparks_forgets_what_delta_rs_wrote_where_the_table_says_so(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """delta-rs does not say when a transaction was written. So such tables are refused."""
    table = str(tmp_path / "t")
    settings = {RETENTION: "interval 1 hours"} if forgets else {}
    deltalake.DeltaTable.create(
        table, SCHEMA, configuration=settings, raise_if_key_not_exists=False
    )
    monkeypatch.setattr(SinkTable, "_check", lambda *_: None)
    writer = DataFileWriter(table, SCHEMA)
    writer.add(pa.record_batch([pa.array([1])], schema=SCHEMA))
    SinkTable(table, SCHEMA, {}).append(writer.finish(), "app", 7, check_files=False)
    time.sleep(0.01)
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval'='1')")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (2)")
    assert list(Path(table).glob("_delta_log/*.checkpoint*.parquet"))
    found = deltalake.DeltaTable(table).transaction_version("app")
    assert found == (None if forgets else 7)
