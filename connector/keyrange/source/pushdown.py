"""Filters of a batch query as seeks: what cannot match is not planned, so no task reads it.

Spark asks for this in a worker of its own, and only where spark.sql.python.filterPushdown.enabled
is true; it fails every read of a reader that takes filters while that is off. So such a reader is
made only where that worker asks for it.

Spark 4.2 keeps the plan that this worker made in the source that one load() made, and uses it for
every later query of the same load() that has no filters of its own, and for all scans of one query
(PythonDataSourceV2.setReadInfo; mended by SPARK-58551). Rows would be missing there, and nothing
here can notice it. That is why option filterPushdown has to say that a load() is used once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from pyspark.sql import datasource as spark

from keyrange.options import SourceOptions
from keyrange.source.batch import KeyRangeBatchReader
from keyrange.source.model.filters import Condition, Constraints, Operator, among, constrain

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
_OPERATORS: Final[dict[type[spark.Filter], Operator]] = {
    spark.EqualTo: eq,
    spark.EqualNullSafe: eq,
    spark.In: among,
    spark.GreaterThan: gt,
    spark.GreaterThanOrEqual: ge,
    spark.LessThan: lt,
    spark.LessThanOrEqual: le,
    spark.StringStartsWith: str.startswith,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def takes_filters() -> bool:
    """Whether this process is Spark's worker for filters; without a daemon it is the program."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _WORKER in sys.modules or getattr(main, "name", "") == _WORKER


class KeyRangePushdownReader(KeyRangeBatchReader):
    """A batch reader that is told the query's filters before it plans."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._constraints = Constraints()

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:
        """Takes what helps, and gives all back: Spark applies every filter to the rows again."""
        self._constraints = constrain(conditions(filters))
        return filters


def conditions(filters: Iterable[spark.Filter]) -> list[Condition]:
    """Spark's filters as conditions; those that say nothing of where to read are left out."""
    return [found for each in filters if (found := _condition(each)) is not None]


def _condition(given: Any, negated: bool = False) -> Condition | None:
    if isinstance(given, spark.Not):
        return _condition(given.child, not negated)
    operator = _OPERATORS.get(type(given))
    if operator is None or len(given.attribute) != 1:
        return None
    value = given.value
    values = tuple(map(_plain, value)) if operator is among else _plain(value)
    return Condition(given.attribute[0], operator, values, negated)


def _plain(value: object) -> object:
    """An instant as microseconds since 1970; a time without a zone is none and stays what it is."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value
