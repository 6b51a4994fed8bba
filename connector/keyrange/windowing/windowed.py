"""Windows as a user declares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import ddl_of_columns, schema_of_ddl
from keyrange.keyed_state.variables import DefinedState, ListState
from keyrange.windowing.aggregates import (
    Aggregate,
    Applied,
    Average,
    Collect,
    Count,
    Extreme,
    Outermost,
    Sum,
)
from keyrange.windowing.kinds import Fixed, Kind, Sessions
from keyrange.windowing.operators import (
    JobParts,
    KeptRows,
    Operator,
    RecordColumn,
    duration_us,
    record_column,
)
from keyrange.windowing.window_function import KEY_START_END, WINDOWS, WindowFunction
from keyrange.work.event_times import MICROSECONDS
from keyrange.work.function_signature import apply_call_mistake

Emit = Literal["final", "update"]
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate as it was asked for: of a column, or of several by a function of the user's, and
    the name of each."""

    kind: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    function: Callable[..., Any] | None = None
    schema: str = ""

    def __str__(self) -> str:
        """What it makes of which columns; a function may be mended."""
        return f"{','.join(self.names)} = {self.kind}({', '.join(self.columns)})"


_Make = Callable[[str, RecordColumn], Aggregate]
_AGGREGATES: Final[dict[str, _Make]] = {
    "count": Count,
    "sum": Sum,
    "avg": Average,
    "min": lambda name, column: Extreme(name, column, is_greatest=False),
    "max": lambda name, column: Extreme(name, column, is_greatest=True),
    "first": lambda name, column: Outermost(name, column, is_last=False),
    "last": lambda name, column: Outermost(name, column, is_last=True),
    "collect": Collect,
}


@dataclass(frozen=True, slots=True)
class WindowedAggregation(Operator):
    """Aggregates of the windows of each key, as `keyrange.windows` begins them.

    Each method adds columns to the output and answers with a new aggregation. A column is a field
    of the value, `price` or `order.price`, or a column of the record. `sum("price")` is named
    `sum_price`, and `sum(total="price")` is named `total`. Nulls are left out.
    """

    _kind: Kind
    _updates: bool
    _calls: tuple[_Call, ...] = ()

    def count(self, *columns: str, **named: str) -> WindowedAggregation:
        """How many records there are, as `count`, or how many values of a column; `n="*"` names
        the first."""
        if not columns and not named:
            named = {"count": _ALL}
        return self._with("count", columns, named)

    def sum(self, *columns: str, **named: str) -> WindowedAggregation:
        """A long for integers, a double for floats, and a decimal with ten digits more. A record
        with which a sum gets too large for its type fails."""
        return self._with("sum", columns, named)

    def avg(self, *columns: str, **named: str) -> WindowedAggregation:
        """A double, or a decimal with four digits more behind the point."""
        return self._with("avg", columns, named)

    def min(self, *columns: str, **named: str) -> WindowedAggregation:
        """The least value of any type that has an order."""
        return self._with("min", columns, named)

    def max(self, *columns: str, **named: str) -> WindowedAggregation:
        """The greatest value; NaN is greater than all numbers."""
        return self._with("max", columns, named)

    def first(self, *columns: str, **named: str) -> WindowedAggregation:
        """The value with the earliest time, whatever the order in which records came."""
        return self._with("first", columns, named)

    def last(self, *columns: str, **named: str) -> WindowedAggregation:
        """The value with the latest time."""
        return self._with("last", columns, named)

    def collect(self, *columns: str, **named: str) -> WindowedAggregation:
        """All values as an array, in the order of their times."""
        return self._with("collect", columns, named)

    def apply(
        self, function: Callable[..., Any], schema: str, *columns: str, **named: str
    ) -> WindowedAggregation:
        """What `function` makes of the records of windows, `schema` in DDL.

        It is called with many windows at once: `function(rows, groups, windows)`, where `rows` has
        `columns` of all their records in the order of their times, and `event_time`; `groups` says
        of each row the number of its window; `windows` has key, window_start and window_end. It
        answers with a RecordBatch with a row for each window. State keeps the rows of windows
        that are open.
        """
        if (mistake := apply_call_mistake(function)) is not None:
            raise invalid_options(mistake)
        names = (*(_name_of("", each) for each in columns), *named)
        call = _Call("apply", names, (*columns, *named.values()), function, schema)
        return replace(self, _calls=(*self._calls, call))

    def _with(
        self, kind: str, columns: tuple[str, ...], named: dict[str, str]
    ) -> WindowedAggregation:
        if not columns and not named:
            raise invalid_options(f"{kind} needs a column")
        whole = [*((_name_of(kind, each), each) for each in columns), *named.items()]
        calls = tuple(_Call(kind, (name,), (column,)) for name, column in whole)
        return replace(self, _calls=(*self._calls, *calls))

    def parts(self, columns: pa.Schema, _chosen: Sequence[str]) -> JobParts:
        if not self._calls:
            raise ValueError("windows need an aggregate, such as .count()")
        aggregates = [_aggregate(each, columns) for each in self._calls]
        key, start, end = KEY_START_END
        fields = [columns.field(key), pa.field(start, MICROSECONDS), pa.field(end, MICROSECONDS)]
        fields += [field for each in aggregates for field in each.output]
        names = [field.name.lower() for field in fields]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"two columns of windows are named {twice[0]!r}: name one, as in .sum(total=...)"
            )
        # What is kept of an aggregate is named by what comes of it.
        kept = [
            (each.output[0].name + suffix, kind)
            for each in aggregates
            for suffix, kind in zip(each.suffixes, each.fields, strict=True)
        ]
        own = [(start, MICROSECONDS), (end, MICROSECONDS), *kept]
        # Windows that are open were made by it: other ones would be written with what is in these.
        calls = sorted(map(str, self._calls))
        definition = ", ".join((str(self._kind), *calls))
        state = {WINDOWS: DefinedState(ListState(ddl_of_columns(pa.schema(own))), definition)}
        names = [name for name, _ in own]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"two aggregates keep a column {twice[0]!r}: name one, as in .sum(total=...)"
            )
        function = WindowFunction(self._kind, aggregates, names[2:], self._updates)
        given = KeptRows(
            WINDOWS,
            tuple((name, name) for name in names),
            timer=end,
            timer_after_us=int(self._kind.closes(np.zeros(1, np.int64))[0]),
            lasts=self._kind.lasts(start, end),
        )
        replaces = (key, start) if self._updates else ()
        made = pa.schema(fields)
        is_final = not self._updates
        return JobParts(function, function.on_timer, made, state, given, replaces, is_final)


def _aggregate(call: _Call, columns: pa.Schema) -> Aggregate:
    if call.kind == "apply":
        assert call.function is not None
        pairs = zip(call.names, call.columns, strict=True)
        output = _schema_of(call.schema)
        return Applied(call.function, output, [(n, record_column(c, columns)) for n, c in pairs])
    [name], [column] = call.names, call.columns
    if call.kind == "count" and column == _ALL:
        return Count(name, None)
    return _AGGREGATES[call.kind](name, record_column(column, columns))


def _schema_of(ddl: str) -> pa.Schema:
    if not isinstance(ddl, str):
        raise ValueError(f"the schema of apply must be DDL, and is of type {type(ddl).__name__}")
    try:
        return schema_of_ddl(ddl)
    except ValueError as failure:
        raise ValueError(f"the schema of apply {failure}") from None


def _name_of(kind: str, column: str) -> str:
    if not isinstance(column, str):
        raise invalid_options(f"{kind or 'apply'} takes names of columns")
    name = column.replace(".", "_")
    return f"{kind}_{name}" if kind else name


def tumbling(size: str, emit: Emit = "final") -> WindowedAggregation:
    """Windows of one size that follow one another, from 1970 on in UTC: `tumbling("1h")`.

    With emit="final" the output has a row for each window when it is over: when the watermark has
    come to its end. With "update" it has a row for each window that a batch has changed, for a
    table with `keys=["key", "window_start"]`, and none when it is over. Columns are key,
    window_start, window_end, and those of aggregates.
    """
    return hopping(size, size, emit)


def hopping(size: str, step: str, emit: Emit = "final") -> WindowedAggregation:
    """Windows of one size of which one begins each `step`, `hopping("1h", "5m")`: a record belongs
    to several. Else as `tumbling`."""
    size_us, step_us = duration_us("size of windows", size), duration_us("step of windows", step)
    if step_us > size_us:
        raise invalid_options(f"step {step} is longer than size {size}: records would be left out")
    return WindowedAggregation(Fixed(size_us, step_us), _updates(emit))


def session(gap: str, emit: Emit = "final") -> WindowedAggregation:
    """Windows that last until no record came for `gap`: `session("30m")`. A session begins with its
    first record and ends `gap` behind its last one; sessions that a record joins become one.

    With emit="update" a session that was joined to an earlier one leaves its row in a table: take
    "final" there. Else as `tumbling`.
    """
    return WindowedAggregation(Sessions(duration_us("gap of windows", gap)), _updates(emit))


def _updates(emit: str) -> bool:
    if emit not in ("final", "update"):
        raise invalid_options(f"emit must be final or update, and is {str(emit)[:40]!r}")
    return emit == "update"
