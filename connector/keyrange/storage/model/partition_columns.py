"""What a table is partitioned by: a column of its rows, or the day or hour of a timestamp.

`date(timestamp)` and `day(timestamp)` are a DATE, as tables of events are partitioned most often,
and `hour(timestamp)` is an INT from 0 to 23, to stand beside the date: `day=2026-01-31/hour=7`. An
hour as a TIMESTAMP would be one column less, but engines write and read the text of a timestamp in
the log by different rules (with a zone or without), and a wrong hour would be pruned away.

All are computed in UTC. Spark computes the expression of a generated column in the time zone of its
session, so a generated column has the same values where that is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from keyrange.errors import invalid_options

_NAME = r"(`[^`]+`|[^\s`(),]+)"
_CALL: Final = re.compile(rf"(\w+)\s*\(\s*{_NAME}\s*\)(?:\s+as\s+{_NAME})?", re.IGNORECASE)
_PLAIN: Final = re.compile(_NAME)
# As Delta keeps the expressions of generated columns: SQL's DAY is the day of the month, an INT.
_CAST: Final = re.compile(rf"\s*cast\s*\(\s*{_NAME}\s+as\s+date\s*\)\s*", re.IGNORECASE)
_SQL: Final = re.compile(rf"\s*(date|to_date|hour)\s*\(\s*{_NAME}\s*\)\s*", re.IGNORECASE)


class Unit(StrEnum):
    """`DATE` is a DATE column, `HOUR` an INT column."""

    DATE = "date"
    HOUR = "hour"


_UNITS: Final = {"date": Unit.DATE, "day": Unit.DATE, "hour": Unit.HOUR}


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column by its name. Where `unit` is given it is computed of column `source`."""

    name: str
    source: str = ""
    unit: Unit | None = None

    def __str__(self) -> str:
        if self.unit is None:
            return self.name
        return f"{self.unit}({self.source}) as {self.name}"


def partition_columns(texts: Sequence[str]) -> tuple[PartitionColumn, ...]:
    """Entries such as `country`, `day(timestamp)` or `date(timestamp) as at`. Raises
    INVALID_OPTIONS."""
    found = tuple(_parsed(text.strip()) for text in texts)
    names = [each.name.lower() for each in found]
    if len(set(names)) < len(names):
        raise invalid_options(f"partition_by names a column twice: {', '.join(names)}")
    return found


def generated_column(name: str, expression: str) -> PartitionColumn | None:
    """A column that Delta generates; None where its expression is another one than those here."""
    if cast := _CAST.fullmatch(expression):
        return PartitionColumn(name, _bare(cast[1]), Unit.DATE)
    if call := _SQL.fullmatch(expression):
        unit = Unit.HOUR if call[1].lower() == "hour" else Unit.DATE
        return PartitionColumn(name, _bare(call[2]), unit)
    return None


def _parsed(text: str) -> PartitionColumn:
    if _PLAIN.fullmatch(text):
        return PartitionColumn(_bare(text))
    call = _CALL.fullmatch(text)
    unit = _UNITS.get(call[1].lower()) if call else None
    if call is None or unit is None:
        known = "a column, date(column), day(column) or hour(column), each with AS name"
        raise invalid_options(f"partition_by: {text} is not {known}")
    return PartitionColumn(_bare(call[3] or call[1].lower()), _bare(call[2]), unit)


def _bare(name: str) -> str:
    return name.strip("`")
