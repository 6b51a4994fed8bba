"""`format("keyrange")`: what Spark constructs, pickles and asks for readers.

Spark imports this module in a short-lived process for every lookup of data sources, and one failing
import there hides all Python sources: only the standard library, pyspark and pure modules are
imported at the top.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from keyrange.errors import error, invalid_options
from keyrange.model.columns import COLUMNS, RECORD
from keyrange.model.value_forms import RAW, ValueForms
from keyrange.options import Mode, SourceOptions, parse_options
from keyrange.source.schema import check_schema, frame_schema
from keyrange.values.forms import value_forms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# What Spark adds to the options of a table of a catalog.
_OF_TABLES: Final = "provider"
# Options that are right, so that the lookup ends in a schema. Nobody connects for it.
_ANY: Final = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "none"}
_NOT_FOUND: Final = "[DATA_SOURCE_NOT_FOUND]"


class KeyRangeDataSource(DataSource):
    """Reads Kafka topics as a batch or a stream; `keyrange options` lists what it takes."""

    _forms: ValueForms = RAW

    @classmethod
    def name(cls) -> str:
        return "keyrange"

    def schema(self) -> StructType:
        # The first call of every load(): what is wrong with the options is said here, because an
        # error in a reader's constructor reaches the user without its text.
        options = parse_options(self._given())
        # Spark pickles the source behind this call: what a query reads by stays the same.
        self._forms = value_forms(options)
        return frame_schema(_readable(options, self._forms))

    def reader(self, schema: StructType) -> DataSourceReader:
        from keyrange.source.batch import KeyRangeBatchReader
        from keyrange.source.pushdown import KeyRangePushdownReader, takes_filters

        options = self._parsed(schema, "batch")
        if options.filter_pushdown and takes_filters():
            return KeyRangePushdownReader(options)
        if options.filter_pushdown:
            _log.warning(
                "option 'filterPushdown' restricts nothing here: Spark hands on no filter of the "
                "query, or spark.sql.python.filterPushdown.enabled is not true"
            )
        return KeyRangeBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from keyrange.source.stream import KeyRangeStreamReader

        return KeyRangeStreamReader(self._parsed(schema, "stream"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        raise error("READ_ONLY_SOURCE", "a DataFrame was to be written with keyrange, which reads")

    def streamWriter(
        self,
        schema: StructType,  # noqa: ARG002
        overwrite: bool,  # noqa: ARG002
    ) -> DataSourceStreamWriter:
        raise error("READ_ONLY_SOURCE", "a stream was to be written with keyrange, which reads")

    def _parsed(self, schema: StructType, mode: Mode) -> SourceOptions:
        options = _readable(parse_options(self._given(), mode), self._forms)
        check_schema(schema, frame_schema(options))
        return options

    def _given(self) -> Mapping[str, str]:
        if self.options.get(_OF_TABLES, "").lower() == self.name():
            raise error("READ_ONLY_SOURCE", "a table of a catalog cannot be USING keyrange")
        return dict(self.options)


def _readable(options: SourceOptions, forms: ValueForms) -> SourceOptions:
    """Options of a DataFrame with the forms of its keys and values. Raises INVALID_OPTIONS."""
    individual = options.commits.individual
    if options.values.bad == "deadLetter":
        how = "has no place that says which dead letters are a batch's"
        if individual:
            how = "leaves it to foreachBatch which records are given up"
        raise invalid_options(
            f"option 'badValues' is deadLetter, and a DataFrame {how}: badValues=column keeps "
            "such records as rows that say why; or let keyrange.job write the table"
        )
    columns = options.columns
    if individual and columns is not None:
        # Dead letters hold records as Kafka has them, and are replayed by their keys.
        columns = tuple(name for name in COLUMNS if name in columns or name in RECORD)
    forms = replace(forms, keeps_bytes=individual and forms != RAW)
    return replace(options, columns=columns, forms=forms)


def register(spark: SparkSession | None = None) -> None:
    """Register the source in a session that does not find it: where keyrange was installed after
    Spark's JVM began, or another `pyspark_*` package fails to import. Elsewhere it does nothing:
    Spark would warn, at each start of a query, that the source replaced one that it had found.
    """
    from pyspark.sql import SparkSession

    session = spark or SparkSession.active()
    name = KeyRangeDataSource.name()
    try:
        session.read.format(name).options(**_ANY).load().schema  # noqa: B018 it is looked up
    except Exception as failure:
        # By its text: a classic session has no type of its own for this error.
        if _NOT_FOUND not in str(failure):
            raise
        session.dataSource.register(KeyRangeDataSource)
