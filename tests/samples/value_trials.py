"""What the contract of a format of values asks of its samples: schemas, values and a reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa

from keyrange.model.value_forms import Schema

_SPECIAL: Final = [0, 1, 2, 0x7F, 0x80, 0xFF]


class Refused(Exception):
    """The reference does not read a payload."""


class Unsure(Exception):
    """What the reference does with a payload says nothing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A pair of schemas that resolve, and payloads that the reference library wrote; `doubtful`
    are whole as well, and may mean nothing by these schemas."""

    writer: Schema
    reader: Schema
    payloads: list[bytes]
    doubtful: list[bytes] = field(default_factory=list)


class Samples(Protocol):
    """`names_writers`: payloads say by which schema they were written."""

    name: str
    format: str
    names_writers: bool

    def trial(self, chance: Random, payloads: int) -> Trial: ...

    def read(self, trial: Trial, payload: bytes) -> Any:
        """By the reference library, in the form that Arrow takes. Raises Refused or Unsure."""

    def is_stricter(self, error: str) -> bool:
        """Whether keyrange may say this of a payload that the reference reads."""


def damaged(payload: bytes, chance: Random) -> bytes:
    """Flipped, overwritten, cut, extended, or two of these."""
    value = bytearray(payload)
    for _ in range(chance.randrange(1, 3)):
        at = chance.randrange(len(value) + 1)
        match chance.randrange(5):
            case 0 if at < len(value):
                value[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(value):
                value[at] = chance.choice(_SPECIAL)
            case 2:
                del value[at:]
            case 3:
                value[at:at] = bytes([chance.choice(_SPECIAL)]) * chance.choice([1, 1, 2, 11])
            case _:
                del value[at : at + chance.randrange(1, 4)]
    return bytes(value)


def comparable(column: pa.Array) -> list[Any]:
    """Values that are equal where the column's are: times as numbers, NaN as a text."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [comparable(column.field(at)) for at in range(kind.num_fields)]
        there = column.is_valid().to_pylist()
        return [
            tuple(row) if ok else None for ok, row in zip(there, _rows(fields, there), strict=True)
        ]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        values = column.values if pa.types.is_list(kind) else _entries(column)
        inner, ends = comparable(values), column.offsets.to_pylist()
        there = column.is_valid().to_pylist()
        return [inner[ends[at] : ends[at + 1]] if ok else None for at, ok in enumerate(there)]
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(kind):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_floating(kind):
        return [repr(each) for each in column.to_pylist()]
    return column.to_pylist()


def _rows(fields: list[list[Any]], there: list[bool]) -> Any:
    return zip(*fields, strict=True) if fields else [()] * len(there)


def _entries(column: pa.MapArray) -> pa.StructArray:
    keys, items = column.keys, column.items
    return pa.StructArray.from_arrays([keys, items], ["key", "value"])
