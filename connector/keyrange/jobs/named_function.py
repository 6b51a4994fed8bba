"""A function of the user's that a command line names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def named_function(name: str) -> Callable[..., Any]:
    """The function that is named as MODULE:NAME. Raises ValueError, which begins with the name."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as failure:
        raise ValueError(f"{name}: {failure}") from None
    if not callable(found):
        raise ValueError(f"{name}: it cannot be called")
    return found  # type: ignore[no-any-return]
