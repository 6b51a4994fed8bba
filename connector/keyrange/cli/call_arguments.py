"""Which public calls have an argument of some name, by their signatures: people look for it among
the options of the source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keyrange


def calls_with(argument: str) -> list[str]:
    """The calls as a program writes them, `keyrange.EventTime(delay=...)`, in the order of their
    names; of `argument` neither case nor `_`, `.` and `-` count. Those that need a package that is
    not installed are left out."""
    wanted = _folded(argument)
    return [
        f"{name}({each}=...)"
        for name, call in _public_calls()
        for each in _arguments(call)
        if _folded(each) == wanted
    ]


def _folded(name: str) -> str:
    return name.strip().lower().translate({ord(each): None for each in "_.-"})


def _arguments(call: Callable[..., Any]) -> list[str]:
    try:
        given = inspect.signature(call).parameters.values()
    except ValueError:  # of a class that is made of C
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in given if each.kind not in kinds and each.name != "self"]


def _public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in keyrange.__all__:
        try:
            found = getattr(keyrange, name)
        except ImportError:
            continue
        if inspect.ismodule(found):
            for each in found.__all__:
                yield from _calls_of(f"keyrange.{name}.{each}", getattr(found, each))
        elif callable(found):
            yield from _calls_of(f"keyrange.{name}", found)


def _calls_of(name: str, call: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The call itself, and the methods of what it makes, where that is of a class of keyrange's."""
    yield name, call
    made = call if inspect.isclass(call) else _returned(call)
    if made is not None and made.__module__.startswith("keyrange."):
        for method, each in inspect.getmembers(made, inspect.isfunction):
            if not method.startswith("_"):
                yield f"{name}(...).{method}", each


def _returned(call: Callable[..., Any]) -> type | None:
    """The class that a function says that it returns, where its module knows it."""
    annotation = inspect.signature(call).return_annotation
    found = getattr(call, "__globals__", {}).get(annotation)
    return found if inspect.isclass(found) else None
