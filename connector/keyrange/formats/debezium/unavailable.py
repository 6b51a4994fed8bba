"""What Debezium writes for a value that it was not told: a large value of Postgres or Oracle that
an update did not change (unavailable.value.placeholder of the connectors)."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.payloads import Flags

PLACEHOLDER: Final = "__debezium_unavailable_value"
_BYTES: Final = PLACEHOLDER.encode()
# As texts: the placeholder itself, bytes by binary.handling.mode, an hstore as JSON.
_TEXTS: Final = (
    PLACEHOLDER,
    base64.b64encode(_BYTES).decode(),
    _BYTES.hex(),
    json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
)
# Java's UUID of a name: a version 3 without a name space.
_UUID: Final = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_LISTS: Final[tuple[list[Any], ...]] = ([PLACEHOLDER], [_BYTES], [_UUID], [*_BYTES])
_POINT: Final = -99999999.0
_SHAPES: Final = tuple(
    bytes.fromhex(each)
    for each in (
        "0101000020e6100000000000fc83d797c1000000fc83d797c1",
        "0101000020e61000000c21e7fdff7f66401842cefbff7f5640",
    )
)


def are_unavailable(column: pa.Array) -> Flags:
    """Which values of a column are none that Debezium was told."""
    kind = column.type
    if pa.types.is_string(kind):
        return flags_of(pc.is_in(column, pa.array(_TEXTS)))
    if pa.types.is_binary(kind):
        return flags_of(pc.equal(column, _BYTES))
    if pa.types.is_list(kind):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        return _looked_at(column, np.isin(sizes, [*map(len, _LISTS)]), _LISTS)
    if pa.types.is_map(kind):
        sizes = np.diff(column.offsets.to_numpy())
        return _looked_at(column, sizes == 1, ([(PLACEHOLDER, PLACEHOLDER)],))
    names = kind.names if pa.types.is_struct(kind) else []
    if "wkb" in names:
        wkb = pc.struct_field(column, "wkb")
        found = flags_of(pc.is_in(wkb, pa.array(_SHAPES, wkb.type)))
        if {"x", "y"} <= {*names}:
            sides = (pc.struct_field(column, side) for side in ("x", "y"))
            found |= np.logical_and.reduce([flags_of(pc.equal(each, _POINT)) for each in sides])
        return found
    return np.zeros(len(column), np.bool_)


def _looked_at(column: pa.Array, maybe: Flags, values: tuple[list[Any], ...]) -> Flags:
    found = np.zeros(len(column), np.bool_)
    rows = np.flatnonzero(maybe)
    found[rows] = [each in values for each in column.take(pa.array(rows)).to_pylist()]
    return found


def flags_of(column: pa.Array) -> Flags:
    """A column of booleans, in which null is False."""
    flags: Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return flags
