"""The rows of a table after its changes: what is merged by its keys makes the table again.

An insert, an update or a row of a snapshot is the row after it. A deletion deletes the key of the
row before it, as far as the database says it, and else that of the record; so does the tombstone
behind it. A change of the key is a deletion and an insert already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keyrange.formats.connect.decoder import null_where_bad
from keyrange.formats.debezium.unavailable import are_unavailable, flags_of
from keyrange.formats.json.rows import member
from keyrange.formats.payloads import Flags, Numbers, ReadKeys, ReadValues

_UPSERTS: Final = pa.array(["c", "u", "r"])
_WHY: Final = {
    "t": "op t empties the captured table, which rows by their keys cannot say: empty this table "
    "too, and begin behind the record or set the connector's skipped.operations=t, its default",
    "m": "op m is a message to the database's log and no change of a row: leave its topic out",
}
_NO_ORDER: Final = (
    "a key of the table and none of the captured one: its rows come in no order. Name the columns "
    "of the record's key in keys"
)


def rows_of(
    changes: ReadValues,
    present: Flags,
    keys: Sequence[str],
    read_keys: ReadKeys,
    kind: pa.StructType,
) -> ReadValues:
    """The rows that changes leave, by `keys`, as `kind`."""
    why = dict(changes.bad)
    before, after, op, _ = changes.column.flatten()
    upserts = flags_of(pc.is_in(op, _UPSERTS))
    deletes = ~present | flags_of(pc.equal(op, "d"))
    for row in np.flatnonzero(~upserts & ~deletes).tolist():
        why.setdefault(row, _WHY.get(op[row].as_py(), "op is none of c, u, r, d, t and m"))
    for row in np.flatnonzero(upserts & flags_of(after.is_null())).tolist():
        why.setdefault(row, "a change without the row after it")
    rows = dict(zip(after.type.names, after.flatten(), strict=True))
    unavailable = {
        name: flags
        for name, column in rows.items()
        if (flags := are_unavailable(column) & upserts).any()
    }
    _find_keys(rows, before, upserts, unavailable, keys, read_keys, why)
    unseen = flags_of(pc.equal(op, "u")) & flags_of(before.is_null())
    unseen[list(why)] = False
    _check_unseen(np.flatnonzero(unseen), keys, read_keys, why)
    names: list[list[str] | None] = [None] * len(upserts)
    for name, flags in unavailable.items():
        for row in np.flatnonzero(flags).tolist():
            names[row] = [*(names[row] or ()), name]
    columns = [
        *rows.values(),
        pa.array(deletes),
        pa.array(names, kind.field(kind.num_fields - 1).type),
    ]
    rescued = changes.rescued
    if rescued is not None:
        # Of a row that is deleted nothing is left.
        own = (member(left, "after") for left in rescued.to_pylist())
        rescued = pa.array(own, pa.string(), mask=~upserts)
    return null_where_bad(pa.StructArray.from_arrays(columns, fields=list(kind)), why, rescued)


def _find_keys(
    rows: dict[str, pa.Array],
    before: pa.StructArray,
    upserts: Flags,
    unavailable: dict[str, Flags],
    keys: Sequence[str],
    read_keys: ReadKeys,
    why: dict[int, str],
) -> None:
    """Put the keys into the rows, where deletions have none yet."""
    known = dict(zip(before.type.names, before.flatten(), strict=True))
    lacking = np.zeros(len(upserts), np.bool_)
    for name in keys:
        if (flags := unavailable.pop(name, None)) is not None:
            rows[name] = pc.if_else(pa.array(flags), None, rows[name])
        changed = upserts & flags_of(pc.not_equal(rows[name], known[name]))
        for row in np.flatnonzero(changed).tolist():
            why.setdefault(row, f"an update of {name}, which is {_NO_ORDER}")
        rows[name] = pc.if_else(pa.array(upserts), rows[name], known[name])
        lacking |= flags_of(rows[name].is_null())
    lacking[list(why)] = False
    asked = np.flatnonzero(lacking)
    if not len(asked):
        return
    found = read_keys(asked)
    bad = found.bad
    places = np.full(len(upserts), len(asked))
    places[asked] = np.arange(len(asked))
    columns = dict(zip(found.column.type.names, found.column.flatten(), strict=True))
    for name, column in ((name, columns[name]) for name in keys):
        told = pa.concat_arrays([column, pa.nulls(1, column.type)]).take(pa.array(places))
        rows[name] = pc.coalesce(rows[name], told)
        for row in asked[flags_of(rows[name].is_null())[asked]].tolist():
            why.setdefault(
                row,
                f"neither the change nor the key of its record says {name}, which is a key of the "
                f"table{_because(bad.get(int(places[row])))}. Name the columns of the record's key "
                "in keys, or let the connector write whole rows (REPLICA IDENTITY FULL) and no "
                "tombstones (tombstones.on.delete=false)",
            )


def _check_unseen(
    updates: Numbers, keys: Sequence[str], read_keys: ReadKeys, why: dict[int, str]
) -> None:
    """Updates without the row before them: a key of the table that the record's key does not say
    may have been another one, whose row would stay. The keys of a topic's records have the same
    columns, so mostly the first one answers for all."""
    for asked in (updates[:1], updates[1:]):
        if not len(asked):
            return
        found = read_keys(asked)
        said = dict(zip(found.column.type.names, found.column.flatten(), strict=True))
        # Of a key that cannot be read nothing is known.
        is_read = ~np.isin(np.arange(len(asked)), [*found.bad])
        unsaid = {name: is_read & flags_of(said[name].is_null()) for name in keys}
        for name, flags in unsaid.items():
            for row in asked[flags].tolist():
                text = f"an update that does not say {name} of the row before it, which is"
                why.setdefault(row, f"{text} {_NO_ORDER}, or set REPLICA IDENTITY FULL")
        if is_read.all() and not any(flags.any() for flags in unsaid.values()):
            return


def _because(text: str | None) -> str:
    return f" (key: {text})" if text else ""
