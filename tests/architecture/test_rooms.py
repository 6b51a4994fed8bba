"""The rooms of the house: who may import whom, said by rules and not by a list of rooms.

A room is a folder below `keyrange`. What is in a folder `model` is pure; the rest of a room is its
edges. Contracts of import-linter in pyproject.toml say what neither may import of other packages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import keyrange
from project.source_files import ROOT, imported, module_of, parsed

PACKAGE = ROOT / "connector" / "keyrange"
# What models stand on besides one another: errors to raise, and text that goes into them.
BELOW_MODELS = {"errors", "text"}
# What users import. Everything else is in a room.
PUBLIC = {"__init__.py", "__main__.py", "testing.py", "volumes.py", "windows.py"}

# Rooms of which the map names every file.
WHOLE = {"consumer", "individual_commits"}


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


def the_map() -> dict[str, str]:
    """What ARCHITECTURE.md says of each room, from those that call to those that are called."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Rooms")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)/` \| (.*)$", text, re.M))


def rooms_of_the_map() -> list[str]:
    return list(the_map())


def test_everything_but_what_users_import_is_in_a_room() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == PUBLIC
    without_text = [
        room for room in packages() if not ast.get_docstring(parsed(PACKAGE / room / "__init__.py"))
    ]
    assert without_text == []


def test_the_map_names_what_is_in_a_room() -> None:
    for room, said in the_map().items():
        files = {path.relative_to(PACKAGE / room) for path in (PACKAGE / room).rglob("*.py")}
        here = {file.stem for file in files} | {str(file.with_suffix("")) for file in files}
        here |= {part for file in files for part in file.parts[:-1]}
        named = {name.rstrip("/") for name in re.findall(r"`([a-z_/]+)(?:\.py)?`", said)}
        assert named - here - packages() <= {"keyrange"}, room
        if room in WHOLE:
            assert {file.stem for file in files} - {"__init__"} <= named, room


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


def test_the_map_has_every_room_once() -> None:
    folders = [path.name for path in PACKAGE.iterdir() if path.is_dir()]
    assert sorted(rooms_of_the_map()) == sorted(set(folders) - {"__pycache__"})


def test_imports_go_down_the_map() -> None:
    place = {room: at for at, room in enumerate(rooms_of_the_map())}
    edges = [(importer, target) for importer, target in imports()]
    assert len(edges) > 500
    assert [
        f"{importer} -> {target}"
        for importer, target in edges
        if place[room_of(target)] < place[room_of(importer)]
    ] == []
