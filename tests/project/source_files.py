"""Files of this repository as source: their texts, and which modules they import."""

from __future__ import annotations

import ast
import gc
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def parsed(path: Path) -> ast.Module:
    # The collector would go through what was parsed before again and again: of five seconds four.
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.enable()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "connector").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> set[str]:
    """Modules that a file imports, or names as text to run them."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant):
            names.update(re.findall(r"^keyrange(?:\.\w+)+$", str(node.value)))
    return names
