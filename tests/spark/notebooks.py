"""Runs the source of a notebook as Databricks does: cell by cell, in one namespace.

    notebooks.py NOTEBOOK...     one after the other, as where no Databricks is

Text and commands such as %pip are left out.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from spark.worker_python import WORKER_PYTHON

JOBS = Path(__file__).parents[2] / "jobs"


def load_job(name: str) -> ModuleType:
    """A module of jobs/, whose own imports from there work too."""
    if str(JOBS) not in sys.path:
        sys.path.append(str(JOBS))
    spec = importlib.util.spec_from_file_location(name, JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_alone(
    script: Path, *arguments: str, directory: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A script that has a session of its own; fails where the script does."""
    ended = subprocess.run(
        [sys.executable, "-P", str(script), *arguments],
        env={**os.environ, "PYSPARK_PYTHON": WORKER_PYTHON, **environment},
        cwd=directory,
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended


class Databricks:
    """What a notebook finds there, with values that somebody has typed into its widgets."""

    def __init__(self, spark: Any, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self.pages: list[str] = []
        self.restarts = 0
        self.namespace = {"spark": spark, "dbutils": self, "displayHTML": self.pages.append}
        self.widgets = self.library = self

    def text(self, name: str, default: str) -> None:
        self.values.setdefault(name, default)

    def get(self, name: str) -> str:
        return self.values[name]

    def restartPython(self) -> None:  # Databricks' name
        self.restarts += 1


def run_notebook(name: str, databricks: Databricks | None = None) -> dict[str, Any]:
    """Run a notebook of jobs/; its namespace at the end. A restart forgets all that is in it."""

    def begin() -> dict[str, Any]:
        # Functions of __main__ are pickled whole, as those of notebooks are.
        return {"__name__": "__main__", **(databricks.namespace if databricks else {})}

    path = JOBS / name
    namespace = begin()
    for number, cell in enumerate(load_job("to_ipynb").read_cells(path.read_text())):
        if cell.kind != "code":
            continue
        restarts = databricks.restarts if databricks else 0
        exec(compile(cell.text, f"{name}, cell {number}", "exec"), namespace)  # noqa: S102
        if databricks and databricks.restarts > restarts:
            namespace = begin()
    return namespace


if __name__ == "__main__":
    for notebook in sys.argv[1:]:
        run_notebook(notebook)
