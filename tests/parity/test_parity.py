"""The same scenarios with `kafka` and with `keyrange`: every difference is on the list.

A difference that is not listed fails, and so does a listed one that does not occur any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from keyrange.embedded import jars
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import KeyrangeError
from parity import (
    scenarios_batch,
    scenarios_faults,
    scenarios_limits,
    scenarios_options,
    scenarios_rows,
    scenarios_stream,
)
from parity.differences import DIFFERENCES, listed, table
from parity.harness import play, play_both
from parity.outcome import Scenario, differing
from parity.stage import Stage

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


@pytest.fixture(scope="module")
def shared(spark: SparkSession, broker: EmbeddedBroker) -> Iterator[Stage]:
    """The topics that all scenarios read."""
    try:
        jars.resolve(jars.spark_kafka())
    except KeyrangeError as failure:
        pytest.skip(f"the jars of the JVM connector cannot be had: {failure}")
    stage = Stage(broker, spark)
    yield stage
    stage.close()


def each(scenarios: tuple[Scenario, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "scenario",
        [
            pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.slow else [])
            for one in scenarios
        ],
    )


@each(SCENARIOS)
def test_parity(spark: SparkSession, shared: Stage, tmp_path: Path, scenario: Scenario) -> None:
    """`kafka` does what the table says of it, and `keyrange` the same or what is listed."""
    outcomes = play_both(scenario, spark, shared, tmp_path)
    kafka, keyrange = outcomes["kafka"], outcomes["keyrange"]

    assert kafka.result == scenario.expect
    if scenario.tasks:
        assert kafka.fact("tasks") == scenario.tasks
    assert differing(scenario, kafka, keyrange) == listed(scenario.name)


@each(scenarios_faults.STRESS)
def test_stress(spark: SparkSession, shared: Stage, tmp_path: Path, scenario: Scenario) -> None:
    """With failOnDataLoss=false nothing fails, and what lived to the end comes exactly once."""
    assert play(scenario, "keyrange", spark, shared, tmp_path / "home").result == scenario.expect


def test_names_are_unique() -> None:
    assert [
        name for name, count in Counter(one.name for one in SCENARIOS).items() if count > 1
    ] == []


def test_the_list_is_of_scenarios() -> None:
    """Each difference has cases, each case is a scenario, and none has two reasons."""
    cases = [name for one in DIFFERENCES for name in one.cases]

    assert all(one.cases for one in DIFFERENCES)
    assert set(cases) - {one.name for one in SCENARIOS} == set()
    assert [name for name, count in Counter(cases).items() if count > 1] == []


def test_the_guide_has_the_list() -> None:
    """Render it anew with `python -m parity.differences` in tests/."""
    text = MIGRATION.read_text()

    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()
