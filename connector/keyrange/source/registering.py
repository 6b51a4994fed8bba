"""Lets a session find `format("keyrange")` where Spark's own lookup has not."""

from __future__ import annotations

from typing import Final

from pyspark.sql import SparkSession

from keyrange.source.data_source import KeyRangeDataSource

# Options that are right, so that the lookup ends in a schema. Nobody connects for it.
_ANY: Final = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "none"}
_NOT_FOUND: Final = "[DATA_SOURCE_NOT_FOUND]"


def register(spark: SparkSession | None = None) -> None:
    """Register the source in a session that does not find it: where keyrange was installed after
    Spark's JVM began, or another `pyspark_*` package fails to import. Elsewhere it does nothing:
    Spark would warn, at each start of a query, that the source replaced one that it had found.
    """
    session = spark or SparkSession.active()
    name = KeyRangeDataSource.name()
    try:
        session.read.format(name).options(**_ANY).load().schema  # noqa: B018 it is looked up
    except Exception as failure:
        # By its text: a classic session has no type of its own for this error.
        if _NOT_FOUND not in str(failure):
            raise
        session.dataSource.register(KeyRangeDataSource)
