"""Rows of state that somebody has: whether their columns are those of variables, and in which
partition each key lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error
from keyrange.keyed_state.exact_columns import becomes, cast_exactly, check_state
from keyrange.keyed_state.sorted_blocks import Numbers
from keyrange.keyed_state.state_entries import normalized
from keyrange.keyed_state.variables import KEY, KEY_HASH, TIMERS, StateForm, Variable
from keyrange.model.offsets import TopicPartition
from keyrange.wire.key_places import hashes_of_keys, partitions_of_keys

# In front of the columns of state: the number of the row's partition among all of some topics.
PLACE: Final = "place"
_TOPIC: Final = "topic"
_PARTITION: Final = "partition"


class InitialRows:
    """Rows that have a column `key`, bytes or a text, and some columns that are named as variables.

    A variable of one column may be given as that column. `partition` says where a key lies; without
    it the default partitioner of Kafka's producers does. `topic` is needed where there are several.
    `NAME_expires_ms` says until when a value is there that has a time to live; without it that
    begins at `now_ms`.
    """

    def __init__(
        self,
        form: StateForm,
        columns: pa.Schema,
        topics: Mapping[str, int],
        now_ms: int,
        texts_are_keys: bool = True,
    ) -> None:
        """`topics`: the number of partitions of each. `texts_are_keys`: whether a key that is a
        text stands for its bytes in UTF-8. Raises INITIAL_STATE_UNFIT, with the column's name."""
        self.form = form
        self._now_ms = now_ms
        self._topics = dict(sorted(topics.items()))
        self._texts_are_keys = texts_are_keys
        counts = np.array([0, *self._topics.values()], np.int64)
        self._first = np.cumsum(counts)[:-1]
        # What a place is the number of.
        self.partitions = [
            TopicPartition(topic, number)
            for topic, count in self._topics.items()
            for number in range(count)
        ]
        self.schema = pa.schema([pa.field(PLACE, pa.int32(), False), *form.schema])
        self._check(columns)
        # Types that never fit are refused before a row is read.
        self.placed(pa.RecordBatch.from_pylist([], columns))

    def _check(self, columns: pa.Schema) -> None:
        names = columns.names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise unfit(f"two columns are named {twice[0]!r}")
        ends = [each.expires for each in self.form.variables if each.ttl_ms]
        known = (KEY, KEY_HASH, _TOPIC, _PARTITION, *self.form.names, *ends)
        own = ", ".join(self.form.names)
        if others := [name for name in names if name not in known]:
            why = "is no variable of the state"
            if others[0] == TIMERS:
                why = "is for a job with time"
            raise unfit(f"column {others[0][:100]!r} {why}, whose columns are {own}")
        if KEY not in names:
            raise unfit(f"there is no column {KEY!r}")
        if not set(names) & set(self.form.names):
            raise unfit(f"there is no column of a variable: {own}")
        if _TOPIC not in names and len(self._topics) > 1:
            raise unfit(f"there is no column {_TOPIC!r}, and there are {len(self._topics)} topics")

    def placed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the columns of `schema`, in their order. Raises INITIAL_STATE_UNFIT."""
        keys = self._keys(rows.column(KEY))
        columns = [pa.array(self._places(rows, keys), pa.int32()), pa.array(hashes_of_keys(keys))]
        columns.append(keys)
        for variable in self.form.variables:
            values = self._values(rows, variable)
            columns.append(values)
            if variable.ttl_ms:
                columns.append(self._ends(rows, variable, values))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _keys(self, column: pa.Array) -> pa.Array:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        is_text = _is_any(kind, pa.types.is_string, pa.types.is_large_string)
        if is_text and not self._texts_are_keys:
            raise unfit(f"column {KEY!r} is a text, and keyFormat wants the bytes of keys: binary")
        if not (is_text or _is_any(kind, pa.types.is_binary, pa.types.is_large_binary)):
            raise unfit(f"column {KEY!r} is {kind}, and must be binary or string")
        if column.null_count:
            raise unfit(f"column {KEY!r} is null in {column.null_count} of the rows")
        return column.cast(kind).cast(pa.string() if is_text else pa.binary()).cast(pa.binary())

    def _places(self, rows: pa.RecordBatch, keys: pa.Array) -> Numbers:
        counts = np.array(list(self._topics.values()), np.int64)
        topics = np.zeros(len(keys), np.int64)
        if _TOPIC in rows.schema.names:
            topics = self._numbers_of_topics(rows.column(_TOPIC))
        if _PARTITION in rows.schema.names:
            found = _whole(rows.column(_PARTITION), _PARTITION)
            wrong = np.flatnonzero((found < 0) | (found >= counts[topics]))
            if len(wrong):
                topic, first = list(self._topics)[topics[wrong[0]]], found[wrong[0]]
                text = f"and topic {topic} has {counts[topics[wrong[0]]]} partitions"
                raise unfit(f"column {_PARTITION!r} has {first}, {text}")
        else:
            found = np.empty(len(keys), np.int64)
            for number in np.unique(topics).tolist():
                own = np.flatnonzero(topics == number)
                of_topic = keys.take(pa.array(own))
                found[own] = partitions_of_keys(of_topic, int(counts[number]))
        return self._first[topics] + found

    def _numbers_of_topics(self, column: pa.Array) -> Numbers:
        names = list(self._topics)
        try:
            column = cast_exactly(_TOPIC, column, pa.string())
        except TypeError as failure:
            raise unfit(str(failure)) from None
        found = pc.index_in(column, pa.array(names, pa.string()))
        if found.null_count:
            raise unfit(f"column {_TOPIC!r} names a topic that is not one of {', '.join(names)}")
        return np.asarray(found.to_numpy()).astype(np.int64)

    def _values(self, rows: pa.RecordBatch, variable: Variable) -> pa.Array:
        if variable.name not in rows.schema.names:
            return pa.nulls(rows.num_rows, variable.type)
        try:
            column = as_rows(rows.column(variable.name), variable.type)
            found = normalized(cast_exactly(variable.name, column, variable.type))
            check_state(variable.name, found)
        except TypeError:
            given = rows.schema.field(variable.name).type
            text = f"is {given}, and the variable is a {variable.kind} of {variable.ddl}"
            raise unfit(f"column {variable.name!r} {text}") from None
        except ValueError as failure:
            raise unfit(_of_column(variable.name, failure)) from None
        return found

    def _ends(self, rows: pa.RecordBatch, variable: Variable, values: pa.Array) -> pa.Array:
        """Until when values are there that have a time to live."""
        ends = np.full(len(values), self._now_ms + variable.ttl_ms)
        gone = values.is_null().to_numpy(zero_copy_only=False)
        if variable.expires in rows.schema.names:
            try:
                said = cast_exactly(variable.expires, rows.column(variable.expires), pa.int64())
            except (TypeError, ValueError) as failure:
                raise unfit(_of_column(variable.expires, failure)) from None
            ends = np.where(said.is_valid(), pc.fill_null(said, 0), ends)
        return pa.array(ends, pa.int64(), mask=gone)


def unfit(reason: str) -> KeyrangeError:
    return error("INITIAL_STATE_UNFIT", reason)


def _of_column(name: str, failure: Exception) -> str:
    """A text that names the column."""
    return str(failure) if repr(name) in str(failure) else f"column {name!r}: {failure}"


def _is_any(kind: pa.DataType, *wanted: Callable[[pa.DataType], bool]) -> bool:
    return any(each(kind) for each in wanted)


def _whole(column: pa.Array, name: str) -> Numbers:
    try:
        numbers = cast_exactly(name, column, pa.int64())
    except (TypeError, ValueError) as failure:
        raise unfit(str(failure)) from None
    if numbers.null_count:
        raise unfit(f"column {name!r} is null in {numbers.null_count} of the rows")
    return np.asarray(numbers.to_numpy())


def as_rows(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a variable, of which those of one column may be given without their struct."""
    if becomes(values.type, kind):
        return values
    if pa.types.is_struct(kind):
        if kind.num_fields != 1:
            return values
        fields = [pa.field(kind.field(0).name, values.type)]
        return pa.StructArray.from_arrays([values], fields=fields, mask=values.is_null())
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        keys, items = as_rows(values.keys, kind.key_type), as_rows(values.items, kind.item_type)
        rebuilt = pa.MapArray.from_arrays(values.offsets, keys, items)
        return pc.if_else(values.is_valid(), rebuilt, None)
    if pa.types.is_list(kind) and _is_any(values.type, pa.types.is_list, pa.types.is_large_list):
        values = values.cast(pa.list_(values.type.value_type))
        items = as_rows(values.values, kind.value_type)
        rebuilt = pa.ListArray.from_arrays(values.offsets, items)
        return pc.if_else(values.is_valid(), rebuilt, None)
    return values
