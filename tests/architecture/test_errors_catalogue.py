"""The catalogue and the code agree: no condition without a row, no row without a use."""

from __future__ import annotations

import ast
from dataclasses import asdict
from functools import cache
from pathlib import Path

from keyrange import errors
from keyrange.errors import CATALOGUE
from keyrange.individual_commits.table import commit_table, dead_letters
from keyrange.members.table import assignments
from project.source_files import ROOT, parsed

CODE = sorted([*(ROOT / "connector").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")])
ERRORS = ROOT / "connector" / "keyrange" / "errors"

# Rows that nothing raises yet, with the reason.
MAKERS = {"error", "KeyrangeError"} | {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.KeyrangeError)
}


def maker(called: ast.expr) -> str:
    """What a call would make an error by: a name, or one of the module `errors`."""
    match called:
        case ast.Name(name) | ast.Attribute(ast.Name("errors"), name):
            return name
    return ""


@cache
def walked(path: Path) -> tuple[list[ast.Call], set[str]]:
    """The calls that make errors, and the texts: a walk through all code takes a second."""
    made, texts = [], set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            if node.args and maker(node.func) in MAKERS:
                made.append(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
    return made, texts


def calls(path: Path) -> list[ast.Call]:
    return walked(path)[0]


def literals(path: Path) -> set[str]:
    return walked(path)[1]


def test_every_condition_that_the_code_names_has_a_row() -> None:
    named = {
        call.args[0].value
        for path in CODE
        for call in calls(path)
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(named) > 15
    assert named - CATALOGUE.keys() == set()


def test_every_row_is_used_or_listed_with_a_reason() -> None:
    used: set[str] = set()
    for path in CODE:
        if path.parent == ERRORS:
            used |= {
                call.args[0].value for call in calls(path) if isinstance(call.args[0], ast.Constant)
            }
        else:
            used |= literals(path)
    assert CATALOGUE.keys() - used == set()


def test_errors_are_made_through_error() -> None:
    """So that type and condition cannot contradict each other."""
    direct = {
        f"{path.name}:{call.lineno}"
        for path in CODE
        if path.parent != ERRORS
        for call in calls(path)
        if not ast.unparse(call.func).endswith("error")
    }
    assert direct == set()


def test_a_store_is_reached_by_options_or_by_the_environment_and_errors_say_so() -> None:
    of_stores = [each for each in CATALOGUE.values() if "AWS_*" in each.remedy]
    assert len(of_stores) > 5
    assert [each.name for each in of_stores if "objectStore.*" not in each.remedy] == []


def test_storage_names_no_condition_of_one_kind_of_table() -> None:
    """What fails there is named by the row that the table's layout gives, and each has one."""
    of_tables = {
        condition
        for kind in (commit_table.LAYOUT, assignments.LAYOUT, dead_letters.LAYOUT)
        for condition in asdict(kind.conditions).values()
    }
    assert len(of_tables) > 10
    assert of_tables - CATALOGUE.keys() == set()
    for path in (ROOT / "connector" / "keyrange" / "storage").rglob("*.py"):
        assert literals(path) & of_tables == set(), path
