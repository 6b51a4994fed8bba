"""The list of differences between `kafka` and `keyrange`, and the guide that shows it.

Beside it each group of scenarios is played with both: a difference that is not listed fails, and so
does a listed one that does not occur any more.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from parity import (
    scenarios_batch,
    scenarios_faults,
    scenarios_limits,
    scenarios_options,
    scenarios_rows,
    scenarios_stream,
)
from parity.differences import DIFFERENCES, table

SCENARIOS = (
    *scenarios_options.SCENARIOS,
    *scenarios_batch.SCENARIOS,
    *scenarios_rows.SCENARIOS,
    *scenarios_stream.SCENARIOS,
    *scenarios_limits.SCENARIOS,
    *scenarios_faults.SCENARIOS,
)
MIGRATION = Path(__file__).parents[2] / "MIGRATION.md"
BEGIN, END = "<!-- differences: begin -->\n", "<!-- differences: end -->"


def test_names_are_unique() -> None:
    assert [
        name for name, count in Counter(one.name for one in SCENARIOS).items() if count > 1
    ] == []


def test_what_is_always_tried_without_fail_on_data_loss_is_a_scenario() -> None:
    """A name that is none would leave its scenario to the long form without a word."""
    ordinary = {one.name for one in scenarios_faults.SCENARIOS if not one.slow}
    names = {f"fault: {name}, without failOnDataLoss" for name in scenarios_faults.ALSO_WITHOUT}
    assert names - ordinary == set()


def test_the_list_is_of_scenarios() -> None:
    """Each difference has cases, each case is a scenario, and none has two reasons."""
    cases = [name for one in DIFFERENCES for name in one.cases]

    assert all(one.cases for one in DIFFERENCES)
    assert set(cases) - {one.name for one in SCENARIOS} == set()
    assert [name for name, count in Counter(cases).items() if count > 1] == []


def test_the_ordinary_form_shows_each_difference() -> None:
    ordinary = {one.name for one in SCENARIOS if not one.slow}
    assert [one.what for one in DIFFERENCES if ordinary.isdisjoint(one.cases)] == []


def test_the_guide_has_the_list() -> None:
    """Render it anew with `python -m parity.differences` in tests/."""
    text = MIGRATION.read_text()

    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()
