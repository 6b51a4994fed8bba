"""The rooms of the house: who may import whom, said by rules and not by a list of rooms.

A room is a folder below `keyrange`. What is in a folder `model` is pure; the rest of a room is its
edges. Contracts of import-linter in pyproject.toml say what neither may import of other packages.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import keyrange
from source_files import ROOT, imported, module_of, parsed

PACKAGE = ROOT / "connector" / "keyrange"
# What models stand on besides one another: errors to raise, and text that goes into them.
BELOW_MODELS = {"errors", "text"}
# What users import. Everything else is in a room.
PUBLIC = {"__init__.py", "__main__.py", "testing.py", "volumes.py"}


@cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in PACKAGE.rglob("*.py")}


def room_of(module: str) -> str:
    return module.split(".")[1]


def is_model(module: str) -> bool:
    return "model" in module.split(".")


def imports() -> Iterator[tuple[str, str]]:
    """(importer, imported), of modules in rooms."""
    rooms = {name for name in modules() if name.count(".") and room_of(name) in packages()}
    for module in sorted(rooms):
        for each in sorted(imported(modules()[module])):
            if each in rooms:
                yield module, each


@cache
def packages() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}


def in_order(edges: dict[str, set[str]]) -> list[str]:
    """The rooms, each behind those that it imports. Raises CycleError where they go in a circle."""
    return list(TopologicalSorter(edges).static_order())


def between(models: bool) -> dict[str, set[str]]:
    """Which rooms each room imports: their models, or their edges."""
    found: dict[str, set[str]] = defaultdict(set)
    for importer, target in imports():
        same_side = is_model(importer) == models and is_model(target) == models
        if same_side and room_of(importer) != room_of(target):
            found[room_of(importer)].add(room_of(target))
    return found


def test_everything_but_what_users_import_is_in_a_room() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == PUBLIC
    without_text = [
        room for room in packages() if not ast.get_docstring(parsed(PACKAGE / room / "__init__.py"))
    ]
    assert without_text == []


def test_no_room_hides_what_users_import() -> None:
    """A package takes the name of whatever `keyrange` has under it as soon as it is imported."""
    assert packages() & set(keyrange.__all__) == set()


def test_a_model_imports_models_and_errors() -> None:
    edges = [
        (importer, target)
        for importer, target in imports()
        if is_model(importer) and not is_model(target) and room_of(target) not in BELOW_MODELS
    ]
    assert edges == []


def test_no_rooms_models_import_each_other() -> None:
    order = in_order(between(models=True))
    assert {"ranges", "individual_commits", "members"} <= set(order)


def test_no_rooms_edges_import_each_other() -> None:
    order = in_order(between(models=False))
    assert order.index("wire") < order.index("kafka") < order.index("source") < order.index("cli")
