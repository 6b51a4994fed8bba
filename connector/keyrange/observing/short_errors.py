"""A query's failure as keyrange's own error, in the place of Spark's, which has it at its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from pyspark.errors import PySparkException

from keyrange.observing.model.failure_causes import error_in

_Query = TypeVar("_Query")
# The calls of a query that raise what it failed with.
_RAISING: Final = ("awaitTermination", "processAllAvailable")
_NOTE: Final = "Spark's own error, with the frames of driver and tasks: query.exception()"


def short_errors(query: _Query) -> _Query:
    """`query = keyrange.short_errors(frame.writeStream.start())`

    The query itself, whose `awaitTermination` and `processAllAvailable` raise the `KeyrangeError`
    that it failed with, one paragraph with condition and remedy. Spark's own error, at whose end
    the paragraph stands, is what `query.exception()` returns, and the driver's log has it. A
    failure in which keyrange has no part is raised as Spark does it.
    """
    for name in _RAISING:
        setattr(query, name, _shortened(getattr(query, name)))
    return query


def _shortened(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def shortened(*given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except PySparkException as failure:
            own = error_in(str(failure))
            if own is None:
                raise
            own.add_note(_NOTE)
            raise own from None

    return shortened
