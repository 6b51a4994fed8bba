"""Notebooks for Jupyter out of Databricks' form."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from spark.notebooks import JOBS, load_job

to_ipynb = load_job("to_ipynb")

SOURCE = """# Databricks notebook source
# MAGIC %md
# MAGIC # Title
# MAGIC
# MAGIC Text

# COMMAND ----------

# MAGIC %pip install "..[commits]"

# COMMAND ----------

# COMMAND ----------

a = 1
# a comment
b = 2
"""


def test_cells_are_text_commands_and_code() -> None:
    cells = to_ipynb.read_cells(SOURCE)
    assert cells == [
        ("markdown", "# Title\n\nText"),
        ("magic", '%pip install "..[commits]"'),
        ("code", "a = 1\n# a comment\nb = 2"),
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a = 1\n", "does not begin with"),
        ("# Databricks notebook source\n# MAGIC %md\na = 1\n", "as a whole or not at all: # MAGIC"),
    ],
)
def test_what_is_no_notebook_is_refused(source: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        to_ipynb.read_cells(source)


def test_the_file_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text(SOURCE)

    assert to_ipynb.main(["one.py"]) == 0

    document = json.loads((tmp_path / "one.ipynb").read_text())
    assert document["nbformat"] == 4
    kinds = [(cell["cell_type"], "".join(cell["source"])) for cell in document["cells"]]
    assert kinds[0] == ("markdown", "# Title\n\nText")
    assert kinds[2] == ("code", "a = 1\n# a comment\nb = 2")
    assert len({cell["id"] for cell in document["cells"]}) == len(kinds) == 3
    (tmp_path / "one.ipynb").write_text("somebody's work")
    with pytest.raises(SystemExit, match="there already"):
        to_ipynb.main(["one.py"])
    assert (tmp_path / "one.ipynb").read_text() == "somebody's work"


@pytest.mark.parametrize("name", ["quickstart.py", "inspect_query.py"])
def test_every_cell_of_a_notebook_is_code_by_itself(name: str) -> None:
    cells = to_ipynb.read_cells((JOBS / name).read_text())
    assert {cell.kind for cell in cells} == {"markdown", "magic", "code"}
    for cell in cells:
        if cell.kind == "code":
            ast.parse(cell.text)
        if cell.kind == "magic":
            assert cell.text.startswith("%pip install ")


def test_no_job_hides_a_module_of_python() -> None:
    """A script's directory comes first in sys.path: jobs/inspect.py would be what dataclasses
    import, in every job."""
    assert sorted({path.stem for path in JOBS.iterdir()} & sys.stdlib_module_names) == []
