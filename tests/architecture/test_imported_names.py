"""What files that no ordinary run imports take from this repository is there: it is renamed without
them, and they would break in the next long run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from project.source_files import ROOT, parsed

# Where imports find this repository's own modules.
PATH = [ROOT / name for name in ("connector", "tests", "tests/platforms", "tests/handed", "ci")]


@cache
def found(module: str) -> Path | None:
    """The file or the folder of a module; None for another project's."""
    place = module.replace(".", "/")
    each = [p for root in PATH for p in (root / f"{place}.py", root / place / "__init__.py")]
    folders = [root / place for root in PATH]
    return next(filter(Path.exists, [*each, *folders]), None)


@cache
def defined(module: str) -> frozenset[str] | None:
    """The names of a module; None where it makes them as they are asked for."""
    path = found(module)
    assert path is not None
    if path.is_dir():
        return frozenset()
    names = set(_bound(parsed(path).body))
    return None if "__getattr__" in names else frozenset(names)


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        for child in ast.walk(node) if not isinstance(node, _SCOPES) else [node]:
            match child:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield name
                case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                    yield name
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    yield from (each.asname or each.name.split(".")[0] for each in names)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def missing(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.ImportFrom) or node.level or found(node.module or "") is None:
            continue
        names = defined(node.module or "")
        for each in node.names if names is not None else ():
            if each.name not in (names or ()) and found(f"{node.module}.{each.name}") is None:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}.{each.name}"


def test_names_are_those_of_the_module() -> None:
    assert {"ROOT", "parsed", "ast", "Path"} <= (defined("project.source_files") or set())
    assert found("pyspark.sql") is None


def test_what_is_imported_is_there() -> None:
    rooms = ("tests/platforms", "tests/nemesis", "ci")
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(files) > 100
    assert [each for path in files for each in missing(path)] == []
