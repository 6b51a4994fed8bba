"""Beside the JVM connector: batch reads: where they start and where they end."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from parity.checks import alike_but_for_the_list, each
from parity.outcome import Scenario
from parity.scenarios_batch import SCENARIOS
from parity.stage import Stage


@each(SCENARIOS)
def test_parity(spark: SparkSession, shared: Stage, tmp_path: Path, scenario: Scenario) -> None:
    alike_but_for_the_list(spark, shared, tmp_path, scenario)
