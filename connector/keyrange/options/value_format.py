"""The options about what the values of records are, for jobs that read them into columns."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from keyrange.options import source_values
from keyrange.options.option import GivenOptions, option
from keyrange.options.value_parsers import Violations, one_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOptions:
    """What values are, and the columns that they are read into, as Spark's JSON of a schema."""

    format: Literal["raw", "json"] = option(
        "valueFormat",
        one_of("raw", "json"),
        "What the values of records are, for keyrange.job without a function. json: objects, "
        "whose fields are read into the columns of valueSchema by the task that reads them, as "
        "Spark's from_json does; these columns replace the column value.",
        default="raw",
    )
    schema: str = option(
        "valueSchema",
        source_values.schema,
        "The columns into which tasks read the values, all nullable.",
        values="DDL, such as id bigint, name string",
        unset="",
    )
    bad: Literal["null", "fail", "deadLetter"] = option(
        "badValues",
        one_of("null", "fail", "deadLetter"),
        "What keyrange does with a record whose value does not fit valueSchema. null: its columns "
        "are null. fail: the batch fails, and names it. deadLetter: it goes to the dead letters, "
        "and later records of its key do not wait for it; needs commitMode=individual.",
        default="fail",
    )


def choose_values(
    given: GivenOptions, columns: Collection[str], individual: bool, violations: Violations
) -> ValueOptions:
    """The format of values; `columns` are those of the source that are beside theirs."""
    chosen = given.settings(ValueOptions)
    if chosen.format == "raw":
        if chosen.schema:
            violations.add("valueSchema", "needs valueFormat=json")
        if chosen.bad != ValueOptions().bad:
            violations.add("badValues", "needs valueFormat=json")
        return chosen
    if not given.names("valueSchema"):
        violations.add("valueFormat", "needs valueSchema: the columns that values are read into")
    elif chosen.schema:
        names = [field["name"].lower() for field in json.loads(chosen.schema)["fields"]]
        beside = {name.lower() for name in columns} - {"value"}
        for name in sorted(beside.intersection(names)):
            violations.add(
                "valueSchema", f"names {name}, which is a column of the source too: see columns"
            )
    if chosen.bad == "deadLetter" and not individual:
        violations.add("badValues", "is deadLetter, which needs commitMode=individual")
    return chosen
