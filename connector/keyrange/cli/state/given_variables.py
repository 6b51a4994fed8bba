"""The variables of state that somebody imports: as a command names them, or as columns say them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import typer

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import ddl_of_columns
from keyrange.keyed_state.variables import (
    KEY,
    KEY_HASH,
    OWN,
    TIMERS,
    ListState,
    MapState,
    State,
    StateForm,
    ValueState,
    form_of,
    timer_variables,
    variables_of,
)

_VARIABLE: Final = re.compile(r"\s*(\w+)\s*:\s*(value|list|map) of (.+?)(?:, for ([^,]+))?\s*")
_OWN: Final = (KEY, KEY_HASH, "topic", "partition", *OWN)


def form_of_rows(columns: pa.Schema, named: Sequence[str]) -> StateForm:
    """The variables that are `named`, else those that a file of `state export` was written with,
    else those of columns that are structs, lists of structs, or maps of structs.

    Raises INVALID_OPTIONS where a column says no variable, and BadParameter for a name that does.
    """
    if not named and (found := form_of(columns)) is not None:
        return found
    declared = dict(map(_named, named))
    if not named:
        declared = {each.name: _said_by(each) for each in columns if each.name not in _OWN}
    try:
        variables = variables_of(declared)
    except ValueError as failure:
        raise invalid_options(str(failure)) from None
    # A job with time has them, and reads files without them too.
    return StateForm((*variables, *(timer_variables() if TIMERS in columns.names else ())))


def _named(text: str) -> tuple[str, State]:
    found = _VARIABLE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            f"--variable: 'total: value of n long', or list of, or map of id string -> n long, "
            f"and a time to live behind ', for ': not {text[:100]!r}"
        )
    name, kind, ddl, ttl = found.groups()
    if kind == "map":
        keys, _, values = ddl.partition("->")
        return name, MapState(keys.strip(), values.strip(), ttl)
    return name, (ValueState if kind == "value" else ListState)(ddl, ttl)


def _said_by(field: pa.Field) -> State:
    """What a column says that has the fields of a variable."""
    kind, types = field.type, pa.types
    try:
        if types.is_struct(kind):
            return ValueState(ddl_of_columns(pa.schema(list(kind))))
        if types.is_list(kind) and types.is_struct(kind.value_type):
            return ListState(ddl_of_columns(pa.schema(list(kind.value_type))))
        if (
            types.is_map(kind)
            and types.is_struct(kind.key_type)
            and types.is_struct(kind.item_type)
        ):
            keys, items = (pa.schema(list(each)) for each in (kind.key_type, kind.item_type))
            return MapState(ddl_of_columns(keys), ddl_of_columns(items))
    except ValueError as failure:
        raise invalid_options(f"column {field.name!r}: {failure}") from None
    text = f"column {field.name!r} is {kind}: say by --variable which variable it is"
    raise invalid_options(f"{text}, such as '{field.name}: value of n long'")
