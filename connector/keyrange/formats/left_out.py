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


def fields_beyond(written: pa.DataType, read: pa.DataType) -> Iterator[str]:
    """The paths of the fields, at any depth, that one type has and the other one has not."""
    return (path for path, _, other in _apart(written, read) if other is None)


def changed(newer: pa.DataType, older: pa.DataType) -> Iterator[str]:
    """What a type lacks of an older one, or has otherwise; what it has more is no change."""
    for path, was, is_now in _apart(older, newer):
        if is_now is None:
            yield f"it has no {path!r}"
        elif was is not None:
            yield f"{path!r} is {is_now} and was {was}"


def _apart(
    one: pa.DataType, other: pa.DataType, path: str = ""
) -> Iterator[tuple[str, pa.DataType | None, pa.DataType | None]]:
    """The paths at which two types differ, with what each has there, None where it has nothing:
    those of the one in its order, and what it has not."""
    if kinds.is_struct(one) and kinds.is_struct(other):
        own, others = ({each.name: each.type for each in kind} for kind in (one, other))
        for name in dict.fromkeys((*own, *others)):
            at = below(path, name)
            if name in own and name in others:
                yield from _apart(own[name], others[name], at)
            else:
                yield at, own.get(name), others.get(name)
    elif is_list(one) and is_list(other):
        yield from _apart(one.value_type, other.value_type, path)
    elif kinds.is_map(one) and kinds.is_map(other):
        if one.key_type != other.key_type:
            yield path, one, other
        yield from _apart(one.item_type, other.item_type, path)
    elif one != other:
        yield path, one, other


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
