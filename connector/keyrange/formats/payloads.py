"""What decoders and encoders of keys and values take, and what they answer with.

A decoder is made for one schema and reads batch after batch. What it cannot read it names row by
row; it never raises for a payload, and it tells nothing of what is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Payloads:
    """The bytes of a batch of rows, not copied: row r is `data[starts[r]:ends[r]]` where
    `present[r]`. `data` is uint8, `starts` and `ends` are int32, `present` is bool."""

    data: _Array
    starts: _Array
    ends: _Array
    present: _Array

    @classmethod
    def of(cls, values: pa.BinaryArray) -> Payloads:
        """All rows of a column, slices too."""
        rows = len(values)
        _, ends, data = values.buffers()
        if not rows:
            none = np.zeros(0, np.int32)
            return cls(np.zeros(0, np.uint8), none, none, np.zeros(0, np.bool_))
        positions = np.frombuffer(ends, np.int32)[values.offset : values.offset + rows + 1]
        present = values.is_valid().to_numpy(zero_copy_only=False)
        bytes_ = np.frombuffer(data or b"", np.uint8)
        return cls(bytes_, positions[:-1], positions[1:], present)

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, at: int) -> bytes | None:
        """The bytes of one row, copied."""
        if not self.present[at]:
            return None
        return self.data[self.starts[at] : self.ends[at]].tobytes()

    def take(self, rows: Numbers) -> Payloads:
        """These rows, in this order."""
        return Payloads(self.data, self.starts[rows], self.ends[rows], self.present[rows])

    def contiguous(self) -> Payloads:
        """The same rows with nothing between them; copied where there is something."""
        if np.array_equal(self.starts[1:], self.ends[:-1]):
            return self
        # It brings numba, which those who only ask for types do without.
        from keyrange.formats.cell_kernels import gather_spans

        sizes = np.where(self.present, self.ends - self.starts, 0).astype(np.int64)
        ends = np.empty(len(self) + 1, np.int32)
        data = np.empty(int(sizes.sum()), np.uint8)
        spans = self.starts.astype(np.int64) << 32 | sizes
        gather_spans(self.data, spans, self.present, ends, data)
        return Payloads(data, ends[:-1], ends[1:], self.present)

    def array(self, kind: pa.DataType | None = None) -> pa.Array:
        """The rows as a column of bytes, or as one of texts without a look at them."""
        near = self.contiguous()
        ends = np.append(near.starts[:1], near.ends).astype(np.int32)
        valid = None if near.present.all() else pa.array(near.present).buffers()[1]
        ends = ends if len(near) else np.zeros(1, np.int32)
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(near.data)]
        return pa.Array.from_buffers(kind or pa.binary(), len(near), buffers)

    def not_utf8(self) -> list[int]:
        """The rows that are not, of rows with nothing between them."""
        if self._are_utf8():
            return []
        alone = ((row, self.take(np.array([row]))) for row in np.flatnonzero(self.present).tolist())
        return [row for row, each in alone if not each.contiguous()._are_utf8()]

    def _are_utf8(self) -> bool:
        try:
            self.array().cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def behind(self, sizes: int | _Array) -> Payloads:
        """The same rows without their first bytes, of which each present row has as many."""
        starts = np.where(self.present, self.starts + sizes, self.starts).astype(np.int32)
        return Payloads(self.data, starts, self.ends, self.present)


# The rows that no schema fits, in order, and why: names of fields and kinds, nothing of the values.
BadRows = Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class ReadValues:
    """A row for each payload, in order: `column` is null where there was no payload or a bad one.
    `rescued`, where a decoder was asked for it, is what the column's type has no place for, as JSON
    text; null where nothing is left over."""

    column: pa.Array
    bad: BadRows
    rescued: pa.StringArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WrittenValues:
    """A payload for each row, in order: bytes or texts, null where there was no value or a bad
    one."""

    payloads: pa.Array
    bad: BadRows


# The keys of some rows of a batch: a struct of columns.
ReadKeys = Callable[[Numbers], ReadValues]


class Decoder(Protocol):
    """Reads payloads by one schema. It may be used again, and pickled never."""

    @property
    def type(self) -> pa.DataType:
        """That of the column."""

    def read(self, payloads: Payloads) -> ReadValues: ...


class Encoder(Protocol):
    """Writes the values of a column by one schema. As a decoder it may be used again, names what it
    cannot write row by row, and tells nothing of what is in a row."""

    def write(self, column: pa.Array) -> WrittenValues: ...
