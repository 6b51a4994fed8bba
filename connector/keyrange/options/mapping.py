"""The options about the function that works on the rows in the task that reads them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from keyrange.options.option import BOTH, Option
from keyrange.options.parsing import Violations, importable
from keyrange.source.model.ddl import parse_ddl

_BOTH_FIELDS: Final = ("map_function", "map_schema")


@dataclass(frozen=True, slots=True)
class MapInArrow:
    """A function by its names, and the schema of what it yields, as Spark's JSON."""

    module: str
    function: str
    schema: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


def choose_mapping(values: dict[str, Any], given: Collection[str], violations: Violations) -> None:
    """Check the two options against the others, and put them together as `map_in_arrow`."""
    values["map_in_arrow"] = None
    if "map_function" in given and "map_schema" not in given:
        violations.add("mapInArrow", "needs mapInArrowSchema: the columns that the function yields")
    if "map_schema" in given and "map_function" not in given:
        violations.add("mapInArrowSchema", "needs mapInArrow: the function that yields its columns")
    if any(field in given for field in _BOTH_FIELDS) and values["filter_pushdown"]:
        violations.add(
            "filterPushdown",
            "is not valid with mapInArrow: filters would be about the function's columns",
        )
    if values["map_function"] and values["commits"].individual:
        violations.add(
            "mapInArrow",
            "is not valid with commitMode=individual: its rows do not say which records they are "
            "of; use keyrange.process",
        )
    if values["map_function"] and values["map_schema"]:
        module, function = values["map_function"]
        values["map_in_arrow"] = MapInArrow(module, function, values["map_schema"])


def _schema(value: str) -> str:
    return json.dumps(parse_ddl(value))


MAPPING_ROWS: Final = (
    Option(
        "mapInArrow",
        "map_function",
        None,
        BOTH,
        importable("function"),
        "package.module:function",
        "The function that DataFrame.mapInArrow would be given, by the name under which executors "
        "import it: from an iterator of pyarrow.RecordBatch, of the columns that the DataFrame "
        "would have, to another. It runs in the task that reads, so that only what it yields goes "
        "to Spark. Who may set it runs any function that executors can import.",
    ),
    Option(
        "mapInArrowSchema",
        "map_schema",
        None,
        BOTH,
        _schema,
        "DDL, such as key binary, count bigint",
        "The columns that the function of mapInArrow yields, all nullable; they are those of the "
        "DataFrame. Every batch has to have exactly these.",
    ),
)
