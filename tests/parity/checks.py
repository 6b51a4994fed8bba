"""What is asserted of a scenario, and how its tests are named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from parity.differences import listed
from parity.harness import play_both
from parity.outcome import Scenario, differing
from parity.stage import Stage


def each(scenarios: Iterable[Scenario]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "scenario",
        [
            pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.slow else [])
            for one in scenarios
        ],
    )


def alike_but_for_the_list(
    spark: SparkSession, shared: Stage, home: Path, scenario: Scenario
) -> None:
    """`kafka` does what the table says of it, and `keyrange` the same or what is listed."""
    outcomes = play_both(scenario, spark, shared, home)
    kafka, keyrange = outcomes["kafka"], outcomes["keyrange"]

    assert kafka.result == scenario.expect
    if scenario.tasks:
        assert kafka.fact("tasks") == scenario.tasks
    assert differing(scenario, kafka, keyrange) == listed(scenario.name)
