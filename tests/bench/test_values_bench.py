"""The benchmark of typed values runs in its smallest form and yields every figure it promises."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from project.bench_runs import CI, tiny_figures

sys.path.insert(0, str(CI))

from bench.groups.values import GROUP
from bench.tables import TABLES

SIDES = {
    "ingest.avro.200B": ("vs_jvm", "jvm"),
    "ingest.protobuf.200B": ("vs_python", "jvm_python"),
    "ingest.json.1KB": ("vs_jvm", "jvm"),
    "process.typed": ("vs_jvm_udf", "jvm_udf"),
    "read.json.200B": ("vs_jvm", "jvm"),
    "upsert.200B": ("vs_jvm", "jvm"),
    "ingest.whole.1KB.lz4": ("vs_script", "script"),
    "ingest.whole.200B.none": ("vs_script", "script"),
}
VALUES = {
    f"{prefix}.{figure}"
    for prefix, (versus, other) in SIDES.items()
    for figure in (
        versus,
        "keyrange.mrec_per_second",
        f"{other}.mrec_per_second",
        "peak_rss.mb",
    )
}


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tiny_benchmark_of_typed_values_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "values", timeout_s=580)
    assert figures.keys() == VALUES
    assert all(each["value"] > 0 for each in figures.values())


def test_every_ratio_and_all_memory_has_a_target_and_a_place_in_the_table() -> None:
    rates = {name for name in VALUES if name.endswith(".mrec_per_second")}
    assert GROUP.targets.keys() == VALUES - rates
    assert {name for row in TABLES["values"].rows.values() for name in row} == VALUES
