"""The benchmarks of state in their smallest form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from project.bench_runs import CI, tiny_figures

sys.path.insert(0, str(CI))

from bench.groups import state, state_reader
from bench.tables import TABLES


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tiny_benchmark_of_state_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "state")
    assert state.GROUP.targets.keys() <= figures.keys()
    assert {name for row in TABLES["state"].rows.values() for name in row} <= figures.keys()
    # What is counted and not timed holds at any size.
    assert figures["state.shuffle.bytes"]["value"] == 0
    assert figures["state.restart.restored_bytes"]["value"] == 0


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tiny_benchmark_of_moves_of_state_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "state_moves")
    assert {name for row in TABLES["state_moves"].rows.values() for name in row} == figures.keys()
    assert all(each["value"] > 0 for each in figures.values())


def test_the_tiny_benchmark_of_readers_of_state_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "state_reader")
    assert state_reader.GROUP.targets.keys() <= figures.keys()
    assert {name for row in TABLES["state_reader"].rows.values() for name in row} == figures.keys()
    assert all(each["value"] > 0 for each in figures.values())
