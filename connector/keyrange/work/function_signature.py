"""Whether a user's function can be called as tasks will call it.

Rule of this file: only the standard library, and the function is not called. What a task finds out
record by record would be the error of each record, and give all of them up.
"""

from __future__ import annotations

import inspect
from typing import Any


def call_mistake(function: object, mode: str, keeps_state: bool = False) -> str | None:
    """Why a function cannot be called as tasks do in a mode, record or arrow; None where it can,
    or where Python does not know."""
    arguments = ["record"] if mode == "record" else ["records"]
    if keeps_state:
        arguments += ["state"] if mode == "record" else ["groups", "state"]
    return _mistake("function", function, arguments)


def timer_call_mistake(function: object, mode: str) -> str | None:
    """As `call_mistake`, of a function that is called for timers."""
    names = ["key", "at", "state"] if mode == "record" else ["timers", "groups", "state"]
    return _mistake("on_timer", function, names)


def apply_call_mistake(function: object) -> str | None:
    """As `call_mistake`, of a function of windows."""
    return _mistake("the function of apply", function, ["rows", "groups", "windows"])


def function_mistake(name: str, function: Any) -> str | None:
    """Why something is no function that answers with rows, whatever it is called with."""
    if not callable(function):
        return f"{name} must be a function, and is of type {type(function).__name__}"
    is_named = inspect.isfunction(function) or inspect.isclass(function)
    if is_named and function.__module__.partition(".")[0] == "keyrange":
        # `keyrange.last` would be called with each record.
        return f"{name} is keyrange's own {function.__name__}: call it, and give what it makes"
    if inspect.isgeneratorfunction(function):
        return f"{name} is a generator: return a list of rows in the place of yield"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{name} is async, and nobody awaits it: let it return rows"
    return None


def _mistake(name: str, function: Any, arguments: list[str]) -> str | None:
    if (mistake := function_mistake(name, function)) is not None:
        return mistake
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        # Of a builtin.
        return None
    try:
        signature.bind(*arguments)
    except TypeError as failure:
        return f"{name} cannot be called with ({', '.join(arguments)}): {failure}"
    return None
