"""The benchmark that counts calls of an object store: which calls count, and that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from platforms.s3_server import Call
from project.bench_runs import CI, tiny_figures

sys.path.insert(0, str(CI))

from bench.groups import commits_s3
from bench.registry import Bench
from bench.tables import TABLES

KINDS = ("", ".get", ".head", ".list", ".put", ".delete")
S3 = {f"commits.s3.calls_per_batch.{way}{kind}" for way in commits_s3.WAYS for kind in KINDS}
S3 |= {f"commits.s3.batch.p50.individual{part}" for part in ("", ".calls")}


def of(client: str, *kinds: str) -> list[Call]:
    return [Call(kind, "lake/x", client, False) for kind in kinds]


def finished(batch_id: int) -> Call:
    return Call("PUT", f"lake/x/checkpoint/commits/{batch_id}", "Spark", False)


def test_calls_of_the_first_batches_and_behind_the_last_one_do_not_count() -> None:
    calls = [
        *of("keyrange", "LIST", "LIST"),
        finished(0),
        *of("delta-rs", "GET"),
        finished(1),
        *of("keyrange", "LIST"),
        *of("delta-rs", "PUT", "GET", "GET"),
        finished(2),
        *of("Spark", "LIST"),
        *of("keyrange", "LIST"),
        finished(3),
        *of("keyrange", "DELETE"),
    ]
    counted = commits_s3._per_batch(calls, 4)
    found = {name: count for name, count in counted.items() if count}
    assert found == {"": 2.5, ".list": 1, ".put": 0.5, ".get": 1}
    with pytest.raises(RuntimeError, match="batch 4"):
        commits_s3._per_batch(calls, 5)


def test_the_table_has_every_figure() -> None:
    tables = (TABLES[name] for name in ("commits_s3", "commits_s3_waits"))
    rows = [row for table in tables for row in table.rows.values()]
    assert {name for row in rows for name in row} == S3
    assert commits_s3.GROUP.targets.keys() <= S3


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not commits_s3.PYTHON.exists(), reason="ci/platforms.sh was not run")
def test_the_tiny_benchmark_of_calls_yields_its_figures(tmp_path: Path) -> None:
    figures = tiny_figures(tmp_path, "commits_s3", timeout_s=580)
    assert figures.keys() == S3
    # What is counted and not timed holds at any size.
    counted = [name for name in commits_s3.GROUP.targets if name.startswith(commits_s3.NAME)]
    assert len(counted) == 3
    for name in counted:
        assert commits_s3.GROUP.targets[name].met(figures[name]["value"]), figures[name]


def test_calls_are_not_counted_where_there_is_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commits_s3, "PYTHON", tmp_path / "python")
    assert list(commits_s3.run(Bench("commits_s3", "tiny", "", tmp_path))) == []
    assert "left out" in capsys.readouterr().err
