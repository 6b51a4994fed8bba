"""A function of the user's that a command line names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from keyrange.text.near_names import did_you_mean, near_names


def named_function(name: str) -> Callable[..., Any]:
    """The function that is named as MODULE:NAME. Raises ValueError, which begins with the name."""
    module, _, function = name.partition(":")
    try:
        there = importlib.import_module(module)
    # The user's module runs here, and may raise anything.
    except Exception as failure:
        raise ValueError(f"{name}: {type(failure).__name__}: {failure}") from None
    try:
        found = getattr(there, function)
    except AttributeError as failure:
        meant = [each for each, value in vars(there).items() if callable(value)]
        said = did_you_mean(near_names(function, meant))
        raise ValueError(f"{name}: {failure}{said}") from None
    if not callable(found):
        raise ValueError(f"{name}: it cannot be called")
    return found  # type: ignore[no-any-return]
