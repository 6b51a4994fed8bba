"""What is wrong with rows of the commit table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from keyrange.errors import KeyrangeError, error

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Faults:
    """Says where something contradicts itself."""

    source_id: str

    def damaged(self, message: str, **where: Any) -> KeyrangeError:
        return error("COMMITS_DAMAGED", message, source_id=self.source_id, **where)

    def parsed(self, read: Callable[[Any], _T], value: Any, **where: Any) -> _T:
        try:
            return read(value)
        except (TypeError, ValueError) as fault:
            raise self.damaged(str(fault), **where) from None
