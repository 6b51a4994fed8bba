"""Fields that producers write and no column takes: named once in each process, so that nothing is
dropped without a word."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from keyrange.formats.column_kinds import below, is_list

_log: Final = logging.getLogger(__name__)
# More would be a page for each schema.
_NAMED_MAX: Final = 20


def fields_beyond(written: pa.DataType, read: pa.DataType, path: str = "") -> Iterator[str]:
    """The paths of the fields, at any depth, that one type has and the other one has not."""
    if kinds.is_struct(written) and kinds.is_struct(read):
        known = {each.name: each.type for each in read}
        for each in written:
            at = below(path, each.name)
            if each.name in known:
                yield from fields_beyond(each.type, known[each.name], at)
            else:
                yield at
    elif is_list(written) and is_list(read):
        yield from fields_beyond(written.value_type, read.value_type, path)
    elif kinds.is_map(written) and kinds.is_map(read):
        yield from fields_beyond(written.item_type, read.item_type, path)


def changed(newer: pa.DataType, older: pa.DataType, path: str = "") -> Iterator[str]:
    """What a type lacks of an older one, or has otherwise; what it has more is no change."""
    if kinds.is_struct(newer) and kinds.is_struct(older):
        known = {each.name: each.type for each in newer}
        for each in older:
            at = below(path, each.name)
            if each.name in known:
                yield from changed(known[each.name], each.type, at)
            else:
                yield f"it has no {at!r}"
    elif is_list(newer) and is_list(older):
        yield from changed(newer.value_type, older.value_type, path)
    elif kinds.is_map(newer) and kinds.is_map(older) and newer.key_type == older.key_type:
        yield from changed(newer.item_type, older.item_type, path)
    elif newer != older:
        yield f"{path!r} is {newer} and was {older}"


def tell(where: str, fields: tuple[str, ...]) -> None:
    """Say that fields are dropped; `where` they are."""
    if fields:
        more = " and others" if len(fields) > _NAMED_MAX else ""
        _tell_once(where, ", ".join(repr(each[:200]) for each in fields[:_NAMED_MAX]) + more)


@functools.lru_cache(maxsize=1_000)
def _tell_once(where: str, named: str) -> None:
    _log.warning(
        "%s fields that no column takes, and they are dropped: %s. Where no option says the "
        "schema, a query has the columns that were there when it began, and a table with "
        "evolve='add' those that come: start it again to have these too",
        where,
        named,
    )
