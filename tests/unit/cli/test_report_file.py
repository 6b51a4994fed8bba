"""The file that `keyrange report` writes: how open it is, and where it may be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from obstore.store import LocalStore

from commands.commanding import run
from keyrange.cli.report import commands as command
from keyrange.storage import directory
from samples.report_samples import one_batch, small_checkpoint

pytestmark = pytest.mark.ordinary


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_checkpoint(tmp_path_factory.mktemp("query"))


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without the 5 MB of plotly.js."""
    monkeypatch.setattr(command, "load_library", lambda: "window.Plotly = {};")


def made(checkpoint: Path, out: Path) -> bool:
    return run("report", checkpoint, "--out", out).exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_page_is_as_open_as_the_umask_says(
    checkpoint: Path, tmp_path: Path, umask: int, mode: int
) -> None:
    out = tmp_path / "page.html"
    before = os.umask(umask)
    try:
        assert made(checkpoint, out)
    finally:
        os.umask(before)
    assert out.stat().st_mode & 0o777 == mode


@pytest.mark.skipif(sys.platform == "win32", reason="it has no such modes")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
def test_a_page_that_is_written_over_stays_as_open_as_it_was(
    checkpoint: Path, tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is never more open on the way, when it is put in place whole."""
    out = tmp_path / "page.html"
    out.write_text("old")
    out.chmod(mode)
    seen = []

    def replacing(draft: Path, place: Path) -> None:
        assert out.read_text() == "old"
        seen.append(draft.stat().st_mode & 0o777)
        replace(draft, place)

    replace = os.replace
    monkeypatch.setattr(os, "replace", replacing)
    assert made(checkpoint, out)
    assert seen == [mode]
    assert out.stat().st_mode & 0o777 == mode
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_page_and_progress_are_in_a_store_as_options_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def open_store(uri: str, settings: Mapping[str, str]) -> LocalStore:
        asked.append((uri, settings["aws_region"]))
        return LocalStore(tmp_path / uri.partition("://")[2], mkdir=True)

    monkeypatch.setattr(directory, "open_store", open_store)
    query = one_batch(tmp_path / "query")
    (tmp_path / "pond" / "query").mkdir(parents=True)
    shutil.copy(query["progress"], tmp_path / "pond" / "query" / "progress")
    given = ("--progress", "s3a://pond/query/progress", "--out", "s3://pond/page.html")
    result = run("report", query["checkpoint"], *given, "--option", "objectStore.aws_region=north")
    assert result.exit_code == 0, (result.output, result.exception)
    assert {*asked} == {("s3://pond/query", "north"), ("s3://pond", "north")}
    assert "s3://pond/page.html: 0." in result.stderr
    assert (tmp_path / "pond" / "page.html").read_text().rstrip().endswith("</html>")
