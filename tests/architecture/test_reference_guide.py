"""The page of what calls take and give: each argument and each field of the code, and no other."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keyrange
from keyrange.individual_commits.model.batch_results import BatchResult
from keyrange.jobs.api import TableJob
from keyrange.keyed_state import state_handles
from keyrange.keyed_state.model.figures import StateFigures
from keyrange.observing.model.query_progress import QueryProgress, SourceProgress, WorkDone

PAGE = Path(__file__).parents[2] / "connector" / "guides" / "reference.md"
CALLS: dict[str, Callable[..., Any]] = {
    "job": keyrange.job,
    "into": TableJob.into,
    "Topic": keyrange.Topic,
    "topic_writer": keyrange.topic_writer,
    "state": keyrange.state,
    "each_batch": keyrange.each_batch,
    "ProgressListener": keyrange.ProgressListener,
    "short_errors": keyrange.short_errors,
    "ValueState": keyrange.ValueState,
    "ListState": keyrange.ListState,
    "MapState": keyrange.MapState,
    "windows.tumbling": keyrange.windows.tumbling,
    "windows.hopping": keyrange.windows.hopping,
    "windows.session": keyrange.windows.session,
}
RECORDS: list[Any] = [QueryProgress, SourceProgress, WorkDone, StateFigures, BatchResult]


def table_below(first: str) -> list[list[str]]:
    """The cells of the rows of the one table whose first heading is this."""
    lines = PAGE.read_text().splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith(f"| {first} |")]
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        rows.append([cell.strip().replace(r"\|", "|").strip("`") for cell in cells])
    return rows


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_those_of_the_call(name: str) -> None:
    given = [
        (each.name, "" if each.default is each.empty else repr(each.default))
        for each in inspect.signature(CALLS[name]).parameters.values()
        if each.name != "self"
    ]
    assert [(row[0], row[1]) for row in table_below(f"argument of `{name}`")] == given


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: each.__name__)
def test_fields_are_those_of_the_record(record: Any) -> None:
    expected = [(each.name, str(each.type)) for each in dataclasses.fields(record)]
    for name, each in vars(record).items():
        if isinstance(each, property):
            assert each.fget is not None
            expected.append((name, each.fget.__annotations__["return"]))
    rows = table_below(f"field of `{record.__name__}`")
    assert [(row[0], row[1]) for row in rows] == expected


def test_methods_of_state_are_those_of_the_handles() -> None:
    kinds = {
        "ValueState": state_handles.ValueHandle,
        "ListState": state_handles.ListHandle,
        "MapState": state_handles.MapHandle,
    }
    told: dict[str, set[str]] = {kind: set() for kind in kinds}
    for calls, of, _ in table_below("method"):
        for kind in kinds if of == "all" else re.findall(r"\w+", of):
            told[kind] |= set(re.findall(r"(\w+)\(", calls))
    assert told == {
        kind: {name for name in dir(handle) if not name.startswith("_")}
        for kind, handle in kinds.items()
    }
