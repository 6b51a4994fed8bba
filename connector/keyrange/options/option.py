"""What a row of the option table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

Mode = Literal["batch", "stream"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Option:
    """One row. `default` is the text that stands for "not given"; None means that there is none.

    `modes` are the reads that it acts on; given to another it is refused, or, with `ignored`, there
    is a warning, where the JVM connector has one too.
    """

    name: str
    field: str
    default: str | None
    modes: tuple[Mode, ...]
    parse: Callable[[str], Any]
    values: str
    doc: str
    ignored: bool = False


BOTH: Final[tuple[Mode, ...]] = ("batch", "stream")
BATCH: Final[tuple[Mode, ...]] = ("batch",)
STREAM: Final[tuple[Mode, ...]] = ("stream",)
