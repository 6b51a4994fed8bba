"""Options as fields of the dataclasses that the source reads: each is written in one place.

    splits: int = option("splits", int_between(1, 9), "a number", "What it does.", default="1")

is the option's name, its parser, its help, its default and the field that it fills; it acts on
streams unless `modes` says otherwise. mypy holds the parser to the type of the field; validation
and the reference are made of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeVar, overload

Mode = Literal["batch", "stream"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
BOTH: Final[tuple[Mode, ...]] = ("batch", "stream")
BATCH: Final[tuple[Mode, ...]] = ("batch",)
STREAM: Final[tuple[Mode, ...]] = ("stream",)

_ROW: Final = "option"
_PARTS: Final = "parts"
_T = TypeVar("_T")
_U = TypeVar("_U")


@dataclass(frozen=True, slots=True)
class Option:
    """One row. `default` is the text that stands for "not given"; None means that there is none.

    `modes` are the reads that it acts on; given to another it is refused, or, with `ignored`, there
    is a warning, where the JVM connector has one too.
    """

    name: str
    parse: Callable[[str], Any]
    values: str
    doc: str
    default: str | None
    modes: tuple[Mode, ...]
    ignored: bool


@overload
def option(
    name: str,
    parse: Callable[[str], _T],
    values: str,
    doc: str,
    *,
    default: str,
    modes: tuple[Mode, ...] = STREAM,
    ignored: bool = False,
    part: bool = False,
) -> _T: ...


@overload
def option(
    name: str,
    parse: Callable[[str], _T],
    values: str,
    doc: str,
    *,
    modes: tuple[Mode, ...] = STREAM,
    ignored: bool = False,
    part: bool = False,
    shown: bool = True,
) -> _T | None: ...


@overload
def option(
    name: str,
    parse: Callable[[str], _T],
    values: str,
    doc: str,
    *,
    modes: tuple[Mode, ...] = STREAM,
    unset: _U,
) -> _T | _U: ...


def option(
    name: str,
    parse: Callable[[str], Any],
    values: str,
    doc: str,
    *,
    default: str | None = None,
    modes: tuple[Mode, ...] = STREAM,
    unset: Any = None,
    ignored: bool = False,
    part: bool = False,
    shown: bool = True,
) -> Any:
    """A field of a settings dataclass that an option fills; `unset` is its value without the option
    where no text stands for it.

    A `part` says something only together with others, from which another field is made: it is
    neither compared nor shown.
    """
    row = Option(name, parse, values, doc, default, modes, ignored)
    value = unset if default is None else parse(default)
    return field(
        default_factory=lambda: value,
        repr=shown and not part,
        compare=not part,
        metadata={_ROW: row},
    )


def made_of(parts: type, value: _T) -> _T:
    """A field whose value is made of the options of another dataclass; `value` until it is."""
    made: _T = field(default_factory=lambda: value, metadata={_PARTS: parts})
    return made


def rows_of(settings: type) -> tuple[Option, ...]:
    """The options of a settings dataclass, and of those that its fields are made of, in order."""
    found: list[Option] = []
    for each in fields(settings):
        if _ROW in each.metadata:
            found.append(each.metadata[_ROW])
        elif _PARTS in each.metadata:
            found += rows_of(each.metadata[_PARTS])
    return tuple(found)


def option_fields(settings: type) -> dict[str, str]:
    """The names of the fields that options fill, each with its option's name."""
    rows = ((each.name, each.metadata.get(_ROW)) for each in fields(settings))
    return {name: row.name for name, row in rows if row is not None}
