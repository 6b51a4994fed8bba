"""A record as a user's function sees it, and the rows that the function answers with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.exact_columns import cast_exactly
from keyrange.keyed_state.exact_values import converter_of
from keyrange.model.offsets import TopicPartition
from keyrange.values.python_rows import python_values
from keyrange.work.record_stretches import RecordStretch
from keyrange.work.topic_rows import TopicRows

# What Arrow raises for a value that a column does not take.
UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)
Row = tuple[Any, ...]
# Which record or timer the function was called for, as errors tell it.
Place = Mapping[str, Any]

_NONE: Final = type(None)
# Of values of these types Arrow keeps all, or refuses them; the others are looked at one by one.
_ARROWS_OWN: Final[Mapping[pa.DataType, frozenset[type]]] = {
    **{kind: frozenset((int, _NONE)) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float64(): frozenset((float, _NONE)),
    pa.bool_(): frozenset((bool, _NONE)),
    pa.string(): frozenset((str, _NONE)),
    pa.binary(): frozenset((bytes, _NONE)),
    pa.date32(): frozenset((date, _NONE)),
    pa.timestamp("us", "UTC"): frozenset((datetime, _NONE)),
}
# What types have that fits wherever any value of them does.
_FITTING: Final[tuple[Any, ...]] = (
    *(False, 0, 0.0, Decimal(0), "", b"", bytearray(), [], (), set(), {}),
    *(datetime(2000, 1, 1), date(2000, 1, 1), time(), timedelta()),
)
_EXAMPLES: Final = {type(each): each for each in _FITTING}
_IMMUTABLE: Final = frozenset((_NONE, bool, int, float, str, bytes, date, datetime, Decimal))


class Columns:
    """The columns of a stretch as Python lists, each made when it is first asked for."""

    key: list[Any]
    value: list[Any]
    offset: list[int]
    timestamp: list[datetime | None]
    headers: list[Any]
    late: list[bool]

    def __init__(self, stretch: RecordStretch, deliveries: Mapping[int, int]) -> None:
        self._batch = stretch.batch
        self.partition = stretch.partition
        self.deliveries = deliveries

    @property
    def fields_of_value(self) -> list[str]:
        schema = self._batch.schema
        at = schema.get_field_index("value")
        kind = schema.field(at).type if at >= 0 else pa.null()
        return [each.name for each in kind] if pa.types.is_struct(kind) else []

    def __getattr__(self, name: str) -> list[Any]:
        if name not in self._batch.schema.names:
            raise AttributeError(f"the batch has no column {name!r}")
        values: list[Any] | _OneByOne
        try:
            values = python_values(self._batch.column(name))
        except (ValueError, OverflowError):
            # One of them is none for Python, such as a time beyond the year 9999: that record's
            # function fails, and no other's.
            values = _OneByOne(self._batch.column(name))
        setattr(self, name, values)
        return cast(list[Any], values)


class _OneByOne:
    """The values of a column, each converted when it is asked for."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __getitem__(self, at: int) -> Any:
        return python_values(self._column.slice(at, 1))[0]


class Record:
    """One record. `record["name"]` is a column of any name; `deliveries` says how often the record
    was worked on before."""

    __slots__ = ("_at", "_columns")

    def __init__(self, columns: Columns, at: int) -> None:
        self._columns = columns
        self._at = at

    @property
    def row(self) -> int:
        """Which of the rows it is that were handed to the task together."""
        return self._at

    @property
    def topic(self) -> str:
        return self._columns.partition.topic

    @property
    def partition(self) -> int:
        return self._columns.partition.partition

    @property
    def topic_partition(self) -> TopicPartition:
        return self._columns.partition

    @property
    def offset(self) -> int:
        return self._columns.offset[self._at]

    @property
    def place(self) -> Place:
        return {"partition": self._columns.partition, "offset": self.offset}

    @property
    def key(self) -> Any:
        """Bytes, or what keyFormat says."""
        return self._columns.key[self._at]

    @property
    def value(self) -> Any:
        """Bytes, or what valueFormat says: of a struct a row, `record.value.price`."""
        return self._columns.value[self._at]

    @property
    def timestamp(self) -> datetime | None:
        return self._columns.timestamp[self._at]

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        """As the record has them, in their order; needs includeHeaders=true."""
        found = self._columns.headers[self._at]
        return [(each["key"], each["value"]) for each in found or ()]

    @property
    def late(self) -> bool:
        """Whether its event time is before the watermark of its partition: never where functions
        do not get late records."""
        late = getattr(self._columns, "late", None)
        return late is not None and bool(late[self._at])

    @property
    def deliveries(self) -> int:
        return self._columns.deliveries.get(self.offset, 0)

    def __getitem__(self, name: str) -> Any:
        if name in ("topic", "partition"):
            return getattr(self, name)
        try:
            return getattr(self._columns, name)[self._at]
        except AttributeError:
            raise KeyError(name) from None

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is no attribute, and for a column that was not read."""
        if name.startswith("_"):
            raise AttributeError(name)
        has = ""
        if hasattr(type(self), name):
            has = " of a job whose option columns leaves it out"
        elif name in self._columns.fields_of_value:
            has = f", whose value has it (record.value.{name}),"
        raise AttributeError(f"'Record' object{has} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"Record({self._columns.partition}, offset {self.offset})"


class WrongResult(Exception):
    """The function works, but answers with something else than was agreed: no record's fault."""

    def __init__(self, failure: KeyrangeError) -> None:
        self.error = failure


def _owned(value: Any) -> Any:
    """A copy of what a column takes; of anything else the value, which is refused later."""
    if type(value) in _IMMUTABLE:
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple):
        owned = map(_owned, value)
        fields = getattr(value, "__fields__", None)
        return tuple(owned) if fields is None else dict(zip(fields, owned, strict=True))
    if isinstance(value, dict):
        return {key: _owned(each) for key, each in value.items()}
    if isinstance(value, (list, set, frozenset)):
        return list(map(_owned, value))
    return value


def _owned_row(row: Row) -> Row:
    # Nearly all rows have nothing to copy, which is known in a third of the time.
    return row if _IMMUTABLE.issuperset(map(type, row)) else tuple(map(_owned, row))


def _as_it_is(row: Row) -> Row:
    return row


def copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of what waits: an array of Arrow's may have the memory of one of numpy's, which a
    function fills again."""
    return pa.ipc.read_record_batch(rows.serialize(), rows.schema)


class RowForm:
    """The rows that a function answers with, as Arrow columns of its schema."""

    def __init__(
        self, schema: pa.Schema, keys: Collection[str] = (), topic: TopicRows | None = None
    ) -> None:
        """`keys`: the columns that are null in no row. `topic`: what becomes of rows that are for
        one."""
        self.schema = schema
        self._topic = topic
        self._keys = [at for at, name in enumerate(schema.names) if name in keys]
        # Whether a row may fit its columns and not what it is for.
        self.may_refuse = bool(self._keys) or topic is not None
        self._names = tuple(schema.names)
        self._known = frozenset(schema.names)
        self._columns = [
            (field.type, converter_of(field.type), _ARROWS_OWN.get(field.type, frozenset()))
            for field in schema
        ]
        may_share = any(
            pa.types.is_nested(each) or pa.types.is_binary(each) for each in schema.types
        )
        # Of a row one that shares nothing which the function could change while it waits.
        self.owned: Callable[[Row], Row] = _owned_row if may_share else _as_it_is

    def rows_of(self, result: Any, place: Place) -> Sequence[Row]:
        """The rows of an answer that is not None. Raises WRONG_RESULT for what is neither a row nor
        a list of rows."""
        if isinstance(result, list):
            return [self._row(each, place) for each in result]
        return (self._row(result, place),)

    def _row(self, row: Any, place: Place) -> Row:
        if isinstance(row, tuple) and hasattr(row, "__fields__"):
            row = dict(zip(row.__fields__, row, strict=True))
        if isinstance(row, dict):
            if not self._known.issuperset(row):
                unknown = sorted(map(str, row.keys() - self._known))
                raise self._wrong(f"a row with field {unknown[0][:100]!r}", place)
            return tuple(map(row.get, self._names))
        if not isinstance(row, tuple):
            found = f"a value of type {type(row).__name__}"
            if len(self._names) == 1:
                found += ", and a row of one field is written (value,)"
            raise self._wrong(found, place)
        if len(row) != len(self._names):
            raise self._wrong(f"a row of {len(row)} fields", place)
        return row

    def batch_of(self, rows: Sequence[Row]) -> pa.RecordBatch:
        """Raises one of UNFIT where a value does not fit its column, or would lose something."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._names)
        return self._checked(list(map(self._array, range(len(self._names)), columns)))

    def _array(self, at: int, values: Sequence[Any]) -> pa.Array:
        kind, convert, own = self._columns[at]
        if own.issuperset(map(type, values)):
            try:
                return pa.array(values, kind)
            except UNFIT:
                # Arrow's text may quote a value, that of the converter does not.
                pass
        try:
            return pa.array(map(convert, values), kind)
        except UNFIT as failure:
            raise ValueError(f"column {self._names[at]!r}: {failure}") from None

    def check_types(self, rows: Sequence[Row], place: Place) -> None:
        """Of rows that do not fit: raises WRONG_RESULT where that is for the type of a value, which
        no column of that type takes, whatever the value."""
        for row in rows:
            for value, field in zip(row, self.schema, strict=True):
                if is_of_wrong_type(value, field.type):
                    kind = type(value).__name__
                    found = f"{kind} for column {field.name!r}, which is {field.type}"
                    raise error(
                        "WRONG_RESULT",
                        f"the function answered with a value of type {found}",
                        **place,
                    )

    def cast(self, result: Any) -> pa.RecordBatch:
        """What a function answers with that takes Arrow batches, in the columns of its schema.

        Raises WRONG_RESULT for what is no such batch, ValueError where a key is null or the topic
        takes no such record."""
        if isinstance(result, pa.Table):
            batches = result.combine_chunks().to_batches()
            if len(batches) > 1:
                raise ValueError("a table of which a column has more than 2 GiB")
            result = batches[0] if batches else None
        if result is None:
            return self.batch_of(())
        if not isinstance(result, pa.RecordBatch):
            raise self._wrong(f"a value of type {type(result).__name__}")
        missing = sorted(self._known - set(result.schema.names))
        if missing:
            raise self._wrong(f"a batch without column {missing[0]!r}")
        more = sorted(set(result.schema.names) - self._known)
        if more:
            raise self._wrong(f"a batch with column {more[0]!r}")
        return self._checked(
            [self._cast(result.column(field.name), field) for field in self.schema]
        )

    def _checked(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        for at in self._keys:
            if arrays[at].null_count:
                raise ValueError(f"column {self._names[at]!r} is null, and is a key of the table")
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return rows if self._topic is None else self._topic.records(rows)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            return cast_exactly(field.name, column, field.type)
        except TypeError as failure:
            raise self._wrong(str(failure)) from None

    def _wrong(self, found: str, place: Place = MappingProxyType({})) -> KeyrangeError:
        return error(
            "WRONG_RESULT",
            f"the function answered with {found}; its schema has {', '.join(self._names)}",
            **place,
        )


def is_of_wrong_type(value: Any, kind: pa.DataType) -> bool:
    """Whether a column of `kind` does not take `value`, nor any other value of its type. Of lists,
    structs and maps, whether that is so of a value in them.

    A function that answers with text for a column of numbers is wrong whatever the record. A number
    that is too large is the fault of one record.
    """
    if value is None or _fits(value, kind):
        return False
    if pa.types.is_list(kind) and isinstance(value, (list, tuple, set)):
        return any(is_of_wrong_type(each, kind.value_type) for each in value)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return any(is_of_wrong_type(value.get(field.name), field.type) for field in kind)
    if pa.types.is_struct(kind) and isinstance(value, tuple):
        # One that is too long or too short is a value of the right type.
        return any(is_of_wrong_type(*each) for each in zip(value, _types(kind), strict=False))
    if pa.types.is_map(kind) and isinstance(value, dict):
        of_keys = any(is_of_wrong_type(each, kind.key_type) for each in value)
        return of_keys or any(is_of_wrong_type(each, kind.item_type) for each in value.values())
    return not _fits(_example(value), kind)


def _types(kind: pa.StructType) -> list[pa.DataType]:
    return [field.type for field in kind]


def _example(value: Any) -> Any:
    """A value of the same type that fits if any does; the value itself of a type that is not
    known."""
    if isinstance(value, np.generic):
        return type(value)()
    return next((_EXAMPLES[each] for each in type(value).__mro__ if each in _EXAMPLES), value)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        converter_of(kind)(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
