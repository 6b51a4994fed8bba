"""Beside the JVM connector: topics that change under a query."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from parity.checks import alike_but_for_the_list, each
from parity.harness import play
from parity.outcome import Scenario
from parity.scenarios_faults import SCENARIOS, STRESS
from parity.stage import Stage


@each(SCENARIOS)
def test_parity(spark: SparkSession, shared: Stage, tmp_path: Path, scenario: Scenario) -> None:
    alike_but_for_the_list(spark, shared, tmp_path, scenario)


@each(STRESS)
def test_stress(spark: SparkSession, shared: Stage, tmp_path: Path, scenario: Scenario) -> None:
    """With failOnDataLoss=false nothing fails, and what lived to the end comes exactly once."""
    assert play(scenario, "keyrange", spark, shared, tmp_path / "home").result == scenario.expect
