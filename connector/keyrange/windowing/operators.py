"""What stands for a job's function and brings its schema and its state along."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from keyrange.errors import invalid_options
from keyrange.keyed_state.variables import State
from keyrange.model.watermarks import BEGIN
from keyrange.options.value_parsers import argument_us
from keyrange.work.event_times import EVENT_TIME, MICROSECONDS, WATERMARK, column_at

Numbers = NDArray[np.int64]
# Of these names the record's own column is meant, as with EventTime; else a field of its value.
_COLUMNS_FIRST: Final = ("key", "value", "timestamp", EVENT_TIME)


@dataclass(frozen=True, slots=True)
class Lasts:
    """From a time in column `start` to one in column `end` it takes at least so long, and at most;
    in microseconds. One begins each `step_us` from 1970 on, if that is said."""

    start: str
    end: str
    least_us: int
    most_us: int | None = None
    step_us: int | None = None


@dataclass(frozen=True, slots=True)
class KeptRows:
    """How rows that somebody has become the state of keys: list `variable` has those of a key.

    `columns`: of a row, by the names that it has there. A timer is set `timer_after_us`
    microseconds behind the time in column `timer` of each row.
    """

    variable: str
    columns: tuple[tuple[str, str], ...]
    timer: str
    timer_after_us: int
    lasts: Lasts | None = None


@dataclass(frozen=True, slots=True)
class JobParts:
    """What a job is made of. The functions are those of mode arrow; `schema` is that of the
    output. `kept`: how rows become its initial state, where that is not one row for each key.
    `replaces`: columns of the output by which a later row stands for an earlier one, if it does.
    `only_timers`: timers alone make rows."""

    function: Callable[..., Any]
    on_timer: Callable[..., Any] | None
    schema: pa.Schema
    state: Mapping[str, State]
    kept: KeptRows | None = None
    replaces: tuple[str, ...] = ()
    only_timers: bool = False


class Operator(ABC):
    """Stands in the place of the function of `keyrange.job` and of `StateHarness`."""

    @abstractmethod
    def parts(self, columns: pa.Schema, chosen: Sequence[str]) -> JobParts:
        """`columns` are those of records, and `chosen` those of them that a job without a function
        has in its output. Raises ValueError with what is wrong."""


def duration_us(name: str, text: str) -> int:
    """An argument of an operator, such as "1h", in microseconds. Raises KeyrangeError for what is
    no duration, and for one of nothing."""
    try:
        return argument_us(name, text, is_positive=True)
    except ValueError as failure:
        raise invalid_options(str(failure)) from None


def parts_of(
    operator: Operator, columns: pa.Schema, chosen: Sequence[str], time: object, **given: object
) -> JobParts:
    """What an operator makes a job of; `given` are arguments that it stands for. Raises
    INVALID_OPTIONS."""
    said = [name for name, value in given.items() if value is not None]
    wrong = [f"{name} is what windows, deduplicate and last say: leave it out" for name in said]
    if time is None:
        wrong.append("time must be keyrange.EventTime(...) or keyrange.ProcessingTime()")
    if wrong:
        raise invalid_options(wrong)
    try:
        return operator.parts(columns, chosen)
    except ValueError as failure:
        raise invalid_options(str(failure)) from None


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column of records, or a field in it."""

    path: tuple[str, ...]
    type: pa.DataType

    def of(self, records: pa.RecordBatch) -> pa.Array:
        return column_at(records, self.path)


def record_column(name: str, columns: pa.Schema) -> RecordColumn:
    """A field of the value, `price` or `order.price`, or a column of the record. Raises ValueError
    where there is none."""
    if not isinstance(name, str):
        raise ValueError(f"a column is named by a text, and not by a {type(name).__name__}")
    path = tuple(name.split("."))
    value = columns.field("value").type
    in_value = pa.types.is_struct(value) and value.get_field_index(path[0]) >= 0
    if path[0] not in _COLUMNS_FIRST and in_value:
        path = ("value", *path)
    kind = MICROSECONDS if path == (EVENT_TIME,) else pa.struct(list(columns))
    if path != (EVENT_TIME,):
        for field in path:
            if not pa.types.is_struct(kind) or kind.get_field_index(field) < 0:
                text = "is no field of the value and no column: see valueFormat and valueSchema"
                raise ValueError(f"column {name[:100]!r} {text}")
            kind = kind.field(field).type
    return RecordColumn(path, kind)


def times_of(records: pa.RecordBatch) -> Numbers:
    """The time of each record, in microseconds since 1970."""
    return np.asarray(records.column(EVENT_TIME).view(pa.int64()).to_numpy())


def watermark_of(records: pa.RecordBatch) -> int:
    """How far time had come before some records, in microseconds; BEGIN where it has not begun."""
    found: int | None = records.column(WATERMARK)[0].value
    return BEGIN if found is None else found


def last_due(timers: pa.RecordBatch, groups: pa.Array, count: int) -> Numbers:
    """The last of the timers of each key that are due, in microseconds."""
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, groups.to_numpy(), timers.column("at").view(pa.int64()).to_numpy())
    return last
