"""What formats ask of the columns that they write."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds


def is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    tests = (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


def below(path: str, name: str) -> str:
    """The path of a field of what is at a path."""
    return f"{path}.{name}" if path else name


def where(path: str) -> str:
    """A path as errors begin with it."""
    return f"field {path[:200]}: " if path else ""


def part_at(path: str) -> str:
    """What is at a path of a column, as errors begin with it."""
    return f"column {path[:200]}" if path else "it"
