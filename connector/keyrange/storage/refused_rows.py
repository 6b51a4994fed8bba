"""Rows that break a rule of their table, to which the session's Delta holds them: which rule, and
the first record whose row does. Delta's own message has the values of the row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.storage.last_rows import CHANGE
from keyrange.storage.staged import Staged

# Of Spark's and Delta's errors those that name a rule.
_REFUSALS: Final = (
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "DELTA_VIOLATE_CONSTRAINT",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
    "EXCEED_LIMIT_LENGTH",
    "NOT_NULL_ASSERT_VIOLATION",
)
_CONSTRAINTS: Final = "delta.constraints."
_GENERATED: Final = "delta.generationExpression"
_INVARIANT: Final = "delta.invariants"
_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"


def is_refusal(text: str) -> bool:
    return any(each in text for each in _REFUSALS)


def refused(session: Any, table: Any, staged: Staged, rows: str, text: str) -> KeyrangeError:
    """The error of delta-rs's table for the rows in a view, which Delta did not take with `text`.
    A rule that cannot be tried here is called by the name of Delta's error alone."""
    where = {"table": table.table_uri}
    deleted = f"`{CHANGE}`.deleted" if staged.keys else "false"
    for rule, broken in _rules(table, staged):
        found: list[Any] = []
        # It may name a column that rows do not have.
        with suppress(Exception):
            found = session.sql(
                f"SELECT `{CHANGE}` AS place FROM {rows} WHERE NOT {deleted} AND ({broken}) "
                "ORDER BY place.topic, place.partition, place.offset LIMIT 1"
            ).collect()
        if found:
            place = found[0]["place"]
            partition = f"{place['topic']}-{place['partition']}"
            return error(
                "ROWS_REFUSED", rule, partition=partition, offset=int(place["offset"]), **where
            )
    condition = next(each for each in _REFUSALS if each in text)
    return error("ROWS_REFUSED", f"a row breaks a rule of the table ({condition})", **where)


def _rules(table: Any, staged: Staged) -> Iterator[tuple[str, str]]:
    """The rules of a table, and in SQL which rows break them; a null may break others too."""
    names = set(staged.columns)
    for each in json.loads(table.schema().to_json())["fields"]:
        if each["name"] not in names:
            continue
        told, name, given = each["name"], quoted(each["name"]), each["metadata"]
        if not each["nullable"]:
            yield f"a row has no value in column {told}, which is NOT NULL", f"{name} IS NULL"
        if length := re.fullmatch(r"(?:var)?char\((\d+)\)", given.get(_CHAR_VARCHAR, "")):
            kind = given[_CHAR_VARCHAR]
            yield (
                f"a row has a longer text than column {told} {kind}",
                f"length({name}) > {length[1]}",
            )
        if text := given.get(_GENERATED):
            yield (
                f"a row has another value in column {told} than {text}, as which it is generated",
                f"NOT ({name} <=> ({text}))",
            )
        if text := _invariant(given):
            yield f"a row breaks the invariant of column {told} ({text})", f"({text}) IS NOT TRUE"
    for name, text in sorted(table.metadata().configuration.items()):
        if name.startswith(_CONSTRAINTS):
            constraint = name.removeprefix(_CONSTRAINTS)
            yield f"a row breaks CHECK constraint {constraint} ({text})", f"({text}) IS NOT TRUE"


def _invariant(metadata: dict[str, Any]) -> str:
    if _INVARIANT not in metadata:
        return ""
    found: str = json.loads(metadata[_INVARIANT])["expression"]["expression"]
    return found


def quoted(name: str) -> str:
    """A name as SQL takes any."""
    return f"`{name.replace('`', '``')}`"
