"""The options about the function that works on the rows in the task that reads them."""

from __future__ import annotations

from dataclasses import dataclass

from keyrange.options import source_values
from keyrange.options.option import GivenOptions, option, text_option
from keyrange.options.value_parsers import Violations, importable


@dataclass(frozen=True, slots=True)
class MapInArrow:
    """A function by its names, and the schema of what it yields, as Spark's JSON."""

    module: str
    function: str
    schema: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingOptions:
    """The function, as module and name, and the schema of what it yields."""

    function: tuple[str, str] | None = option(
        "mapInArrow",
        importable("function"),
        "A function as for DataFrame.mapInArrow, by the name under which executors import it: "
        "it takes an iterator of pyarrow.RecordBatch with the columns of the DataFrame, and "
        "returns another. It runs in the task that reads, so only its output goes to Spark. A "
        "user who may set this option can run any function that executors can import.",
        values="package.module:function",
    )
    schema: str = text_option(
        "mapInArrowSchema",
        source_values.schema,
        "The columns that the function of mapInArrow yields, all nullable, which are the "
        "columns of the DataFrame. Every batch has to have exactly these.",
        values="DDL, such as key binary, count bigint",
    )


def choose_mapping(
    given: GivenOptions, filters: bool, individual: bool, violations: Violations
) -> MapInArrow | None:
    """The function, where both options name it; `filters` and `individual` are what it does not go
    together with."""
    chosen = given.settings(MappingOptions)
    has_function, has_schema = given.names("mapInArrow"), given.names("mapInArrowSchema")
    if has_function and not has_schema:
        violations.add("mapInArrow", "needs mapInArrowSchema: the columns that the function yields")
    if has_schema and not has_function:
        violations.add("mapInArrowSchema", "needs mapInArrow: the function that yields its columns")
    if (has_function or has_schema) and filters:
        violations.add(
            "filterPushdown",
            "is not valid with mapInArrow: filters would be about the function's columns",
        )
    if chosen.function and individual:
        violations.add(
            "mapInArrow",
            "is not valid with commitMode=individual: its rows do not say which records they are "
            "of; use keyrange.process",
        )
    if not (chosen.function and chosen.schema):
        return None
    return MapInArrow(*chosen.function, chosen.schema)
