"""What the calls of a query raise that has failed."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import keyrange
from keyrange.errors import CATALOGUE, UnavailableError, error, invalid_options
from keyrange.observing.model.failure_causes import error_in
from unit.observing.test_failure_causes import FAILED

GONE = error("CHECKPOINT_UNREADABLE", "it is gone. To mend it: hm", path="/c")


class Query:
    """As Spark's, of which this test has no session."""

    def __init__(self, text: str) -> None:
        self._text = text

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if not self._text:
            return timeout is not None
        raise StreamingQueryException(self._text)

    processAllAvailable = awaitTermination


@pytest.mark.parametrize("call", ["awaitTermination", "processAllAvailable"])
def test_a_failure_of_keyrange_is_its_own_error(call: str) -> None:
    text = f"{FAILED}keyrange.errors.UnavailableError: {GONE}\n SQLSTATE: 39000"
    query = keyrange.short_errors(Query(text))
    with pytest.raises(UnavailableError) as raised:
        getattr(query, call)()
    assert str(raised.value) == str(GONE)
    assert raised.value.retriable
    shown = "".join(traceback.format_exception(raised.value))
    assert "Python Proxy" not in shown
    assert "query.exception()" in shown.splitlines()[-1]


def test_a_failure_of_others_is_as_spark_raises_it() -> None:
    with pytest.raises(StreamingQueryException, match="KeyError"):
        keyrange.short_errors(Query(f"{FAILED}KeyError: 'x'\n")).awaitTermination(3)


def test_a_query_that_does_not_fail_answers_as_before() -> None:
    query = keyrange.short_errors(Query(""))
    assert query.awaitTermination(timeout=3)
    assert not query.awaitTermination()


def test_each_error_is_read_back_from_what_spark_tells_of_it() -> None:
    for name in CATALOGUE:
        raised: Any = error(name, "it failed", offset=3)
        text = f"{FAILED}{type(raised).__module__}.{type(raised).__name__}: {raised}\n"
        again = error_in(text)
        assert (type(again), str(again)) == (type(raised), str(raised))
        assert again is not None
        assert again.condition == raised.condition
    assert error_in(str(invalid_options("no option 'x'"))) is None
