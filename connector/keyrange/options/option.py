"""Options as fields of the dataclasses that the source reads: each is written in one place.

    splits: int = option("splits", int_between(1, 9, "a number"), "What it does.", default="1")

is the option's name, its parser, its help, its default and the field that it fills. It takes what
its parser does unless `values` says it more closely, and acts on the reads that its dataclass does
unless `modes` says otherwise. mypy holds the parser to the type of the field; validation and the
reference are made of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from keyrange.options.value_parsers import taken_by

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

    `modes` are the reads that it acts on; given to another it is refused. With `ignored` it acts on
    streams, and there is a warning, where the JVM connector has one too.
    """

    name: str
    parse: Callable[[str], Any]
    values: str
    doc: str
    default: str | None
    modes: tuple[Mode, ...]
    ignored: bool


class _More(TypedDict, total=False):
    values: str
    modes: tuple[Mode, ...]
    ignored: bool
    part: bool
    shown: bool


@overload
def option(
    name: str, parse: Callable[[str], _T], doc: str, *, default: str, **more: Unpack[_More]
) -> _T: ...


@overload
def option(name: str, parse: Callable[[str], _T], doc: str, **more: Unpack[_More]) -> _T | None: ...


@overload
def option(
    name: str, parse: Callable[[str], _T], doc: str, *, unset: _U, **more: Unpack[_More]
) -> _T | _U: ...


def option(
    name: str,
    parse: Callable[[str], Any],
    doc: str,
    *,
    default: str | None = None,
    unset: Any = None,
    values: str = "",
    modes: tuple[Mode, ...] = (),
    ignored: bool = False,
    part: bool = False,
    shown: bool = True,
) -> Any:
    """A field of a settings dataclass that an option fills; `unset` is its value without the option
    where no text stands for it.

    A `part` says something only together with others, from which another field is made: it is
    neither compared nor shown.
    """
    row = Option(name, parse, values or taken_by(parse), doc, default, modes, ignored)
    value = unset if default is None else parse(default)
    return field(
        default_factory=lambda: value,
        repr=shown and not part,
        compare=not part,
        metadata={_ROW: row},
    )


def made_of(parts: type, value: _T, modes: tuple[Mode, ...] = STREAM) -> _T:
    """A field whose value is made of the options of another dataclass; `value` until it is. `modes`
    are the reads that these act on."""
    made: _T = field(default_factory=lambda: value, metadata={_PARTS: (parts, modes)})
    return made


def rows_of(settings: type, modes: tuple[Mode, ...] = STREAM) -> tuple[Option, ...]:
    """The options of a settings dataclass, and of those that its fields are made of, in order."""
    found: list[Option] = []
    for each in fields(settings):
        if row := each.metadata.get(_ROW):
            own = STREAM if row.ignored else row.modes
            found.append(replace(row, modes=own or modes))
        elif parts := each.metadata.get(_PARTS):
            found += rows_of(*parts)
    return tuple(found)


def option_fields(settings: type) -> dict[str, str]:
    """The names of the fields that options fill, each with its option's name."""
    rows = ((each.name, each.metadata.get(_ROW)) for each in fields(settings))
    return {name: row.name for name, row in rows if row is not None}
