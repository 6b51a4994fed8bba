"""A notebook of this directory as one for Jupyter.

    python jobs/to_ipynb.py jobs/quickstart.py        # writes quickstart.ipynb

The sources are in Databricks' own form, which Databricks imports as it is: cells between lines
`# COMMAND ----------`, and `# MAGIC ` in front of every line of a cell that is not Python. Jupyter
does not read that form.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

HEADER = "# Databricks notebook source"
MAGIC = "# MAGIC"


class Cell(NamedTuple):
    """One cell. `kind` is markdown, magic (a command such as %pip) or code."""

    kind: str
    text: str


def read_cells(source: str) -> list[Cell]:
    """The cells of a notebook, without empty ones. Raises ValueError for what is none."""
    header, _, body = source.partition("\n")
    if header.strip() != HEADER:
        raise ValueError(f"it does not begin with '{HEADER}'")
    parts = re.split(r"^# COMMAND -{10}[ \t]*$", body, flags=re.MULTILINE)
    return [read_cell(part.strip("\n")) for part in parts if part.strip()]


def read_cell(text: str) -> Cell:
    lines = text.splitlines()
    magic = [line for line in lines if line.startswith(MAGIC)]
    if not magic:
        return Cell("code", text)
    if len(magic) < len(lines):
        raise ValueError(f"a cell is magic as a whole or not at all: {lines[0]}")
    plain = [line.removeprefix(MAGIC).removeprefix(" ").rstrip() for line in lines]
    if plain[0] == "%md":
        return Cell("markdown", "\n".join(plain[1:]))
    return Cell("magic", "\n".join(plain))


def notebook(cells: list[Cell]) -> dict[str, Any]:
    """The document of a notebook, format 4.5."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        },
        "cells": [document(number, cell) for number, cell in enumerate(cells)],
    }


def document(number: int, cell: Cell) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {}, "source": cell.text.splitlines(keepends=True)}
    if cell.kind == "markdown":
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", **common, "execution_count": None, "outputs": []}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write a notebook's source as a Jupyter notebook.")
    parser.add_argument("source", type=Path, metavar="NOTEBOOK.py")
    parser.add_argument("--to", type=Path, metavar="NOTEBOOK.ipynb", help="default: here")
    given = parser.parse_args(arguments)
    to = given.to or Path(given.source.with_suffix(".ipynb").name)
    try:
        cells = read_cells(given.source.read_text(encoding="utf-8"))
        # Never over a notebook that somebody has worked in.
        with to.open("x", encoding="utf-8") as file:
            json.dump(notebook(cells), file, indent=1)
            file.write("\n")
    except FileExistsError:
        raise SystemExit(f"{to} is there already; --to names another place") from None
    except (OSError, ValueError) as failure:
        raise SystemExit(f"{given.source}: {failure}") from None
    print(to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
