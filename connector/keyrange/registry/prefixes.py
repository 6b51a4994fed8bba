"""The bytes by which serializers say the schema of a payload: Confluent's wire format.

A zero byte and the schema's id as a big-endian 32-bit integer, or a byte of one and the 16 bytes of
its GUID; of Protobuf behind that which message of the schema it is, as zigzag varints: how many
indexes, then each, from the outer message to the inner one. The list [0] is written as one zero
byte. They stand before the payload, or are the value of a header.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from keyrange.formats.payloads import Payloads
from keyrange.formats.varints import zigzag
from keyrange.registry.registered_schemas import SchemaId

_Array = np.ndarray[Any, Any]

# Bytes of magic byte and id, by the magic byte.
_ID_BYTES: Final = {0: 5, 1: 17}
_WORD_BYTES: Final = 8
# How deep messages nest: the count is one byte, which no serializer writes as more.
_INDEXES_MAX: Final = 63
_VARINT_BYTES_MAX: Final = 5
_FIRST_MESSAGE: Final = (0,)


class BadPrefix(ValueError):
    """A payload does not begin as one of a registry's does; the text says how, nothing of it."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """`size` in bytes; `indexes` () where the format has none."""

    size: int
    id: SchemaId
    indexes: tuple[int, ...]


def read_prefix(data: bytes, indexed: bool) -> Prefix:
    """The prefix that `data` begins with; `indexed`: message indexes are part of it."""
    if not data:
        raise BadPrefix("it is empty: a schema's id has 5 bytes")
    size = _ID_BYTES.get(data[0])
    if size is None:
        raise BadPrefix("no magic byte: no serializer of a schema registry has written it")
    if len(data) < size:
        raise BadPrefix(f"too short: a schema's id has {size} bytes")
    if size == _ID_BYTES[0]:
        id: SchemaId = int.from_bytes(data[1:size], "big")
    else:
        id = str(uuid.UUID(bytes=data[1:size]))
    if not indexed:
        return Prefix(size, id, ())
    at = size
    count, size = _varint(data, at)
    if not 0 <= count <= _INDEXES_MAX or size > at + 1:
        raise BadPrefix("its message indexes cannot be read")
    indexes = []
    for _ in range(count):
        index, size = _varint(data, size)
        if index < 0:
            raise BadPrefix("its message indexes cannot be read")
        indexes.append(index)
    return Prefix(size, id, tuple(indexes) or _FIRST_MESSAGE)


def prefix_of(id: int, indexes: Sequence[int]) -> bytes:
    """The bytes of a schema's number and, where the format has them, of message indexes."""
    found = b"\0" + id.to_bytes(4, "big")
    if tuple(indexes) == _FIRST_MESSAGE:
        return found + b"\0"
    return found + b"".join(map(zigzag, (len(indexes), *indexes) if indexes else ()))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at + shift >= len(data):
            raise BadPrefix("too short: it ends within its message indexes")
        byte = data[at + shift]
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + shift + 1
    raise BadPrefix("its message indexes cannot be read")


def common_prefix(payloads: Payloads, indexed: bool) -> bytes | None:
    """The prefix that all payloads have; None where they have several, or bad ones, and where a
    long one would have to be compared."""
    first = int(payloads.present.argmax()) if len(payloads) else 0
    data = payloads.row(first) if len(payloads) else None
    if data is None:
        return None
    try:
        size = read_prefix(data, indexed).size
    except BadPrefix:
        return None
    if size > _WORD_BYTES:
        return None
    words = _words(payloads)
    same = (words ^ words[first]) < np.uint64(1 << 8 * (_WORD_BYTES - size))
    same &= payloads.ends - payloads.starts >= size
    return data[:size] if (same | ~payloads.present).all() else None


def _words(payloads: Payloads) -> _Array:
    """The first 8 bytes of each row as a big-endian number; with zeros where the data end."""
    data = payloads.data
    if len(data) < _WORD_BYTES:
        data = np.concatenate((data, np.zeros(_WORD_BYTES, np.uint8)))
    every: _Array = np.ndarray(len(data) - _WORD_BYTES + 1, ">u8", data, strides=(1,))
    last = len(every) - 1
    if not len(payloads) or payloads.starts.max() <= last:
        near: _Array = every[payloads.starts].astype(np.uint64)
        return near
    at = np.minimum(payloads.starts, last)
    beyond = np.minimum(payloads.starts - at, _WORD_BYTES - 1).astype(np.uint64)
    words: _Array = every[at].astype(np.uint64) << beyond * np.uint64(8)
    return words


def prefix_sizes(payloads: Payloads, indexed: bool) -> _Array:
    """The bytes of each row's prefix, int32; 0 where `read_prefix` reads none."""
    starts, ends, data = payloads.starts, payloads.ends, payloads.data
    there = payloads.present & (ends > starts)
    magic = np.full(len(payloads), 0xFF, np.uint8)
    magic[there] = data[starts[there]]
    sizes = np.zeros(len(payloads), np.int32)
    for byte, size in _ID_BYTES.items():
        sizes[there & (magic == byte) & (ends - starts >= size)] = size
    if not indexed:
        return sizes
    rows = np.flatnonzero(sizes)
    at = starts[rows] + sizes[rows]
    rows, at = rows[at < ends[rows]], at[at < ends[rows]]
    counts = data[at]
    read = _behind_indexes(data, at + 1, ends[rows], np.where(counts % 2, 0x80, counts) // 2)
    found = np.zeros(len(payloads), np.int32)
    found[rows] = np.where(read > 0, read - starts[rows], 0)
    return found


def _behind_indexes(data: _Array, at: _Array, ends: _Array, counts: _Array) -> _Array:
    """Where so many varints end that begin at `at`; 0 where they do not, or one is negative."""
    found: _Array = np.where(counts == 0, at, 0)
    rows: _Array = np.flatnonzero((counts > 0) & (counts <= _INDEXES_MAX))
    at, ends, left = at[rows], ends[rows], counts[rows].astype(np.int32)
    length = np.zeros_like(left)
    while len(rows):
        byte = np.where(at < ends, data[np.minimum(at, len(data) - 1)], 0xFF)
        last = byte < 0x80
        # The first byte of a negative number is odd, and so is what stands for no byte.
        good = ((length > 0) | (byte % 2 == 0)) & (last | (length + 1 < _VARINT_BYTES_MAX))
        at = at + 1
        length = np.where(last, 0, length + 1)
        left = left - last
        done = good & (left == 0)
        found[rows[done]] = at[done]
        on = good & ~done
        rows, at, ends, left, length = rows[on], at[on], ends[on], left[on], length[on]
    return found
