"""`keyrange report` of a cluster whose volumes cannot all be observed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from brokers.scripted_admin import HOST, Told, scripted_brokers
from keyrange.cli.main import app
from keyrange.cli.report import commands as command
from samples.report_samples import Lake

pytestmark = pytest.mark.ordinary


def report(lake: Lake, servers: str, out: Path) -> Result:
    given = ["--option", servers, "--out", str(out)]
    return CliRunner().invoke(app, ["report", *lake.options(), *given])


def test_volumes_that_were_not_observed_end_it_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page without the 5 MB of plotly.js.
    monkeypatch.setattr(command, "load_library", lambda: "window.Plotly = {};")
    lake, out = Lake(tmp_path / "lake"), tmp_path / "page.html"
    with scripted_brokers(1) as brokers:
        servers = f"kafka.admin.bootstrap.servers={HOST}:{brokers.ports[1]}"
        assert report(lake, servers, out).exit_code == 0
        brokers.told[1] = Told((), error_code=31)
        result = report(lake, servers, out)
    assert result.exit_code == 1
    text = "broker 1: CLUSTER_AUTHORIZATION_FAILED: the principal needs DESCRIBE on the cluster"
    assert f"not observed: volumes: {text}" in result.stderr
    assert text in out.read_text()
