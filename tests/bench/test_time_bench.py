"""Windows, timers, Nexmark: their tiny benchmarks yield what tables and targets name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from project.bench_runs import CI, tiny_figures

sys.path.insert(0, str(CI))

from bench.groups import nexmark, windows
from bench.tables import TABLES

GROUPS = {"windows": windows.GROUP, "nexmark": nexmark.GROUP}
# Of so few records a difference of processor times is nothing, or below it.
SMALL = {
    "timers.idle.added_core_share",
    *(f"timers.idle.{each}core_share" for each in ("", "without.")),
}


def in_tables(group: str) -> set[str]:
    tables = [table for table in TABLES.values() if table.group == group]
    return {name for table in tables for row in table.rows.values() for name in row}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_the_tiny_benchmark_yields_its_figures(tmp_path: Path, group: str) -> None:
    """Which also compares the rows of all sides."""
    figures = tiny_figures(tmp_path, group, timeout_s=580)
    assert in_tables(group) <= figures.keys()
    assert all(each["value"] > 0 for name, each in figures.items() if name not in SMALL)


@pytest.mark.parametrize("group", GROUPS)
def test_every_target_has_a_place_in_a_table(group: str) -> None:
    assert GROUPS[group].targets.keys() <= in_tables(group)
