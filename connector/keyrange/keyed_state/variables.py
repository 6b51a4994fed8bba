"""What a job's function keeps for a key: variables, their types, and how a state that was written
with other types is read. `expiry` says when a value is gone whose time to live is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any, Final

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.formats.schema_document import ddl_of_columns, struct_type
from keyrange.model.ddl import ddl_of, parse_ddl
from keyrange.options.value_parsers import DURATION_MAX_US, duration_ms

KEY_HASH: Final = "key_hash"
KEY: Final = "key"
# Beside a key's state, where it is exported or read as a DataFrame.
_LOCATION: Final = ("topic", "partition")
# Behind the name of a variable that has a time to live.
_EXPIRES: Final = "_expires_ms"
_META: Final = b"keyrange.state"
# Keyrange's own variables, of a job with time.
TIMERS: Final = "timers"
TIMER_RETRY: Final = "timer_retry"
OWN: Final = {
    TIMERS: "when timers of the key are due",
    TIMER_RETRY: "of a timer that failed, how often it was tried and when it is tried again",
}
_NAME_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ValueState:
    """One value for each key: a row of the columns that `schema`, Spark's DDL, names; with one
    column that column's value.

    `ttl`: how long after its last update a value is there, such as "30d", by the time of the batch.
    """

    schema: str
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class ListState:
    """A list for each key, of rows of `schema`, or of values where that has one column."""

    schema: str
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class MapState:
    """A map for each key, from rows or values of `key_schema` to those of `value_schema`."""

    key_schema: str
    value_schema: str
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class DefinedState:
    """A variable whose values only this definition explains, in words: the same columns by another
    one, windows of another size, mean something else, and are not taken in."""

    state: ValueState | ListState | MapState
    definition: str


State = ValueState | ListState | MapState | DefinedState


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable as files know it. `kind`: value, list, map, or timers. `schema` and `key_schema`
    are Spark's JSON of their columns; `ttl_ms` 0 stands for ever. `definition` as of
    `DefinedState`, "" where there is none."""

    name: str
    kind: str
    schema: str
    key_schema: str = ""
    ttl_ms: int = 0
    definition: str = ""

    @property
    def expires(self) -> str:
        """The column that says until when it is there."""
        return self.name + _EXPIRES

    @property
    def type(self) -> pa.DataType:
        row = _row_type(self.schema)
        if self.kind == "value":
            return row
        if self.kind == "timers":
            return pa.list_(row.field(0).type)
        if self.kind == "list":
            return pa.list_(row)
        return pa.map_(_row_type(self.key_schema), row)

    @property
    def ddl(self) -> str:
        """Its columns in DDL; of a map those of its keys in front of an arrow."""
        columns = ddl_of(json.loads(self.schema))
        return f"{ddl_of(json.loads(self.key_schema))} -> {columns}" if self.key_schema else columns

    @property
    def fields(self) -> list[str]:
        return list(_row_type(self.schema).names)


def variables_of(state: Mapping[str, State]) -> tuple[Variable, ...]:
    """Variables by their names, in order. Raises ValueError with what is wrong."""
    if not isinstance(state, Mapping):
        raise ValueError('state must be a dictionary, such as {"total": ValueState("n long")}')
    if not state:
        raise ValueError("state names no variable")
    found = tuple(_variable(name, each) for name, each in state.items())
    own = (*_LOCATION, KEY, KEY_HASH, *OWN)
    columns = [*own, *(each.expires for each in found)]
    for each in found:
        if each.name in columns:
            raise ValueError(f"state cannot have a variable {each.name!r}, which is keyrange's own")
    return found


def timer_variables(time: str = "") -> tuple[Variable, ...]:
    """The variables that a job with time has beside its own. `time`: which, in words; "" where
    nobody says so, of rows that somebody imports and in tests."""
    return (
        Variable(TIMERS, "timers", _schema("at timestamp"), definition=time),
        # `clock_us`: up to which its timers were due when the first of them failed, and `offset`
        # the record behind which its rows stand, where they are held.
        Variable(
            TIMER_RETRY,
            "value",
            _schema("deliveries int, due_ms long, clock_us long, offset long"),
        ),
    )


def _variable(name: str, state: State) -> Variable:
    if isinstance(state, DefinedState):
        return replace(_variable(name, state.state), definition=state.definition)
    if not (name.isidentifier() and not name.startswith("_") and len(name) <= _NAME_MAX):
        raise ValueError(f"state {name[:100]!r} must have a name that can be an attribute's")
    if not isinstance(state, State):
        raise ValueError(f"state {name!r} must be a ValueState, a ListState or a MapState")
    told = {each.name: getattr(state, each.name) for each in fields(state)}
    read: dict[str, Any] = {}
    for part, text in told.items():
        try:
            if not (isinstance(text, str) or (part == "ttl" and text is None)):
                raise ValueError(f"must be a text, and is of type {type(text).__name__}")
            read[part] = _ttl_ms(text) if part == "ttl" else _schema(str(text))
        except ValueError as failure:
            raise ValueError(f"{part} of state {name!r} {failure}") from None
    kind = type(state).__name__.removesuffix("State").lower()
    schema = read.get("schema") or read["value_schema"]
    return Variable(name, kind, schema, read.get("key_schema", ""), read["ttl"])


def _ttl_ms(ttl: str | None) -> int:
    ttl_ms = 0 if ttl is None else duration_ms(ttl)
    if ttl is not None and ttl_ms <= 0:
        raise ValueError("must be longer than nothing")
    if ttl_ms * 1000 > DURATION_MAX_US:
        raise ValueError("must not be longer than 1,000 years (365000d); without one it stays")
    return ttl_ms


def _schema(ddl: str) -> str:
    document = parse_ddl(ddl)
    if not document["fields"]:
        raise ValueError("must name a column")
    return json.dumps(document, sort_keys=True)


@cache
def _row_type(schema: str) -> pa.StructType:
    return struct_type(json.loads(schema))


class StateForm:
    """The columns in which the state of keys is kept: hash and key, and for each variable its value
    and, where it has a time to live, until when it is there. A key without any value is one that
    was cleared."""

    def __init__(self, variables: tuple[Variable, ...]) -> None:
        self.variables = variables
        fields = [pa.field(KEY_HASH, pa.int64(), False), pa.field(KEY, pa.binary(), False)]
        for each in variables:
            fields.append(pa.field(each.name, each.type))
            if each.ttl_ms:
                fields.append(pa.field(each.expires, pa.int64()))
        told = json.dumps([astuple(each) for each in variables], sort_keys=True)
        self.schema = pa.schema(fields, metadata={_META: told.encode()})
        self.names = [each.name for each in variables]
        # What a function sees and changes.
        self.given = [name for name in self.names if name != TIMER_RETRY]
        self.has_timers = TIMERS in self.names

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that were written with other variables, in the columns of these."""
        if batch.schema.equals(self.schema):
            return batch
        rows = _fitted(batch.to_struct_array(), pa.struct(list(self.schema)))
        return pa.RecordBatch.from_arrays(rows.flatten(), schema=self.schema)

    def with_column(self, rows: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
        """The rows with other values in one column."""
        return rows.set_column(rows.schema.get_field_index(name), self.schema.field(name), values)

    def check(self, was: pa.Schema, file: str) -> None:
        """Raises STATE_SCHEMA_CHANGED where a file has variables that these cannot take in."""
        written = form_of(was)
        definitions = {each.name: each.definition for each in written.variables} if written else {}
        for each in self.variables:
            made_by = definitions.get(each.name, each.definition)
            is_untold = each.kind == "timers" and not (made_by and each.definition)
            if made_by != each.definition and not is_untold:
                names = [text or "a function of its own" for text in (made_by, each.definition)]
                reason = f"was made by {names[0]}, and the job has {names[1]}"
                raise _changed(each.name, reason, file)
        # Times to live may come and go: a value without an end is there until it is updated.
        ends = {each.expires for each in written.variables if each.ttl_ms} if written else set()
        for field in was:
            if field.name in (KEY, KEY_HASH) or field.name in ends - {*self.names}:
                continue
            if field.name not in self.names:
                raise _changed(field.name, "is not among those of the job", file)
            reason = _narrowed(field.type, self.schema.field(field.name).type)
            if reason:
                raise _changed(field.name, reason, file)


def form_of(schema: pa.Schema) -> StateForm | None:
    """The variables that a file was written with."""
    told = (schema.metadata or {}).get(_META)
    return None if told is None else _form(told)


@lru_cache(64)
def _form(told: bytes) -> StateForm:
    return StateForm(tuple(Variable(*each) for each in json.loads(told)))


def _changed(name: str, reason: str, file: str) -> KeyrangeError:
    return error("STATE_SCHEMA_CHANGED", f"variable {name!r} {reason}", file=file)


# What holds all values of a type, as Avro has it, by whose rules Spark lets a schema change.
_WIDER: Final[Mapping[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}


def _narrowed(was: pa.DataType, now: pa.DataType, path: str = "") -> str:
    """Why a type cannot take in what was written with another; "" where it can. `path`: which field
    of the variable it is of."""
    if was.equals(now) or now in _WIDER.get(was, ()):
        return ""
    if pa.types.is_decimal(was) and pa.types.is_decimal(now):
        grown = (now.scale - was.scale, (now.precision - now.scale) - (was.precision - was.scale))
        return "" if min(grown) >= 0 else _too_narrow(was, now, path)
    if pa.types.is_struct(was) and pa.types.is_struct(now):
        # What a field holds would go with it, and entries of a map that differ there alone.
        paths = {name: f"{path}.{name}" if path else name for name in was.names}
        if left := [name for name in was.names if name not in now.names]:
            return f"has no field {paths[left[0]]} any more: a field is neither removed nor renamed"
        reasons = (
            _narrowed(was.field(name).type, now.field(name).type, of) for name, of in paths.items()
        )
        return next((reason for reason in reasons if reason), "")
    if pa.types.is_list(was) and pa.types.is_list(now):
        return _narrowed(was.value_type, now.value_type, path)
    if pa.types.is_map(was) and pa.types.is_map(now):
        key = _narrowed(was.key_type, now.key_type, path)
        return key or _narrowed(was.item_type, now.item_type, path)
    return _too_narrow(was, now, path)


def _too_narrow(was: pa.DataType, now: pa.DataType, path: str) -> str:
    # As ddl names them, behind the name of the column.
    kinds = [ddl_of_columns(pa.schema([("n", kind)])).partition(" ")[2] for kind in (was, now)]
    where = f" in field {path}" if path else ""
    return f"was {kinds[0]}{where}, and {kinds[1]} does not hold all of that"


def _fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a narrower type in a wider one."""
    # A process that plans does without it.
    import pyarrow.compute as pc

    if values.type.equals(kind):
        return values
    if pa.types.is_struct(kind):
        own = values.type.names
        arrays = [
            _fitted(values.field(field.name), field.type)
            if field.name in own
            else pa.nulls(len(values), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(
            arrays, fields=list(kind), mask=values.is_null() if values.null_count else None
        )
    if pa.types.is_list(kind):
        items = _fitted(values.values, kind.value_type)
        rebuilt = pa.ListArray.from_arrays(values.offsets, items, type=kind)
        return pc.if_else(values.is_valid(), rebuilt, None)
    if pa.types.is_map(kind):
        keys, items = _fitted(values.keys, kind.key_type), _fitted(values.items, kind.item_type)
        rebuilt = pa.MapArray.from_arrays(values.offsets, keys, items, kind)
        return pc.if_else(values.is_valid(), rebuilt, None)
    return values.cast(kind)
