"""Kafka's messages, built by kafka-python; nothing else imports it.

kafka-python's package imports all of its clients, which takes longer than all that a query asks of
the cluster before its first batch. Here it begins empty: its modules can be imported, and whoever
asks it for anything else has it import what it always does.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

_LOCK: Final = RLock()


class _Package(ModuleType):
    """A package whose own code runs when somebody asks for a name that it does not have yet."""

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            given = vars(self)
            if name not in given:
                loader = given.pop("__lazy__", None)
                if loader is not None:
                    loader.exec_module(self)
            if name in given:
                return given[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def _begin_empty(name: str) -> None:
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    package = module_from_spec(spec)
    package.__class__ = _Package
    vars(package)["__lazy__"] = spec.loader
    sys.modules[name] = package


_begin_empty("kafka")
