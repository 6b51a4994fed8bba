"""Option mapInArrow: a function of the user's, in the process that reads the rows.

It gets what DataFrame.mapInArrow would get, and may do with it what it may do there. What differs
is that the rows come from Kafka while it runs: what goes wrong with them is no failure of the
function, and stays what it is.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from keyrange.errors import KeyrangeError, error
from keyrange.options import MapInArrow
from keyrange.options.allowlist import NotAllowed, check_found, check_module, not_allowed
from keyrange.source.schema import mapped_schema

T = TypeVar("T")
_END: Final = object()


def map_in_arrow(
    mapping: MapInArrow, rows: Generator[pa.RecordBatch, None, None]
) -> Iterator[pa.RecordBatch]:
    """What the function yields for the rows of one task, for which it is called once, also where
    there are none.

    Every batch is checked, since Spark checks the first alone and reads the bytes of all others as
    it reads those. Both the function's generator and `rows` are closed with this one.
    """
    with closing(rows):
        expected = to_arrow_schema(mapped_schema(mapping), timezone="UTC")
        function = _imported(mapping)
        source = _Rows(rows)
        results = _guarded(mapping, source, lambda: function(source))
        if not isinstance(results, Iterator):
            raise error(
                "MAP_FUNCTION_UNFIT",
                f"option mapInArrow: {mapping} returned {_type(results)} and no iterator",
            )
        try:
            while True:
                batch = _guarded(mapping, source, lambda: next(results, _END))
                if batch is _END:
                    return
                _check(mapping, batch, expected)
                yield batch
        finally:
            # An iterator need not be a generator.
            close = getattr(results, "close", None)
            if close is not None:
                close()


class _Rows:
    """The rows as the function gets them, and what reading them has failed with."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._rows)
        except StopIteration:
            raise
        except Exception as failure:
            self.failure = failure
            raise


def _imported(mapping: MapInArrow) -> Callable[[Iterator[pa.RecordBatch]], object]:
    try:
        check_module(mapping.module)
        found: Any = importlib.import_module(mapping.module)
        for name in mapping.function.split("."):
            found = getattr(found, name)
        check_found(found)
    except NotAllowed as failure:
        raise not_allowed("mapInArrow", failure) from None
    except Exception as failure:
        raise error(
            "MAP_FUNCTION_NOT_FOUND",
            f"option mapInArrow: {mapping} cannot be imported in the executor: "
            f"{_type(failure)}: {failure}",
            module=mapping.module,
        ) from failure
    if not callable(found):
        raise error("MAP_FUNCTION_UNFIT", f"option mapInArrow: {mapping} is {_type(found)}")
    function: Callable[[Iterator[pa.RecordBatch]], object] = found
    return function


def _guarded(mapping: MapInArrow, source: _Rows, call: Callable[[], T]) -> T:
    """The result of a call of the function's code.

    Where the rows could not be read, that is raised, even if the function has caught it: it would
    end early, and records were missing without a word.
    """
    try:
        result = call()
    except Exception as failure:
        if source.failure is not None:
            raise source.failure  # noqa: B904 it is the earlier one
        raise _failed(mapping, failure) from failure
    if source.failure is not None:
        raise source.failure
    return result


def _failed(mapping: MapInArrow, failure: Exception) -> KeyrangeError:
    """With the function's traceback as a note: Spark's workers leave the causes of errors out, and
    the message is no place for a text that may hold a payload."""
    own = failure.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename == __file__:
        own = own.tb_next
    failed = error("MAP_FUNCTION_FAILED", f"option mapInArrow: {mapping} raised {_type(failure)}")
    failed.add_note("".join(traceback.format_exception(type(failure), failure, own)))
    return failed


def _check(mapping: MapInArrow, batch: object, expected: pa.Schema) -> None:
    if isinstance(batch, pa.RecordBatch) and batch.schema.equals(expected):
        return
    found = _shown(batch.schema) if isinstance(batch, pa.RecordBatch) else _type(batch)
    raise error(
        "MAP_RESULT_MISMATCH",
        f"option mapInArrow: {mapping} yielded {found}, and mapInArrowSchema says "
        f"{_shown(expected)}",
    )


def _shown(schema: pa.Schema) -> str:
    columns = (f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in schema)
    return f"[{', '.join(columns)}]"


def _type(value: object) -> str:
    return type(value).__name__
