"""Lets Spark find `format("keyrange")`: it looks for `DefaultSource` in `pyspark_*` packages."""

from keyrange.source.data_source import KeyRangeDataSource as DefaultSource

__all__ = ["DefaultSource"]
