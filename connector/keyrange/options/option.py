"""Options as fields of the dataclasses that the source reads: each is written in one place.

    splits: int = option("splits", int_between(1, 9, "a number"), "What it does.", default="1")

is the option's name, its parser, its help, its default and the field that it fills. It takes what
its parser does unless `values` says it more closely, and acts on the reads that its dataclass does
unless `modes` says otherwise. mypy holds the parser to the type of the field; validation and the
reference are made of the rows. `GivenOptions` is what a user gave: texts in, and out of them these
dataclasses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

from keyrange.errors import invalid_options
from keyrange.options.value_parsers import Violations, taken_by
from keyrange.text.near_names import did_you_mean, near_names

Mode = Literal["batch", "stream"]

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
BOTH: Final[tuple[Mode, ...]] = ("batch", "stream")
BATCH: Final[tuple[Mode, ...]] = ("batch",)
STREAM: Final[tuple[Mode, ...]] = ("stream",)

# What stands for the text of an option, as where Spark takes options.
OptionValue = str | int | float | bool

_log = logging.getLogger(__name__)
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


def text_option(name: str, parse: Callable[[str], str], doc: str, **more: Unpack[_More]) -> str:
    """The same of a text, which is "" without the option."""
    return option(name, parse, doc, unset="", **more)


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


def by_name(rows: Iterable[Option]) -> dict[str, Option]:
    """Rows by their names in lower case."""
    return {row.name.lower(): row for row in rows}


def texts_of(options: object, violations: Violations) -> dict[str, str]:
    """The texts of options, of which some are `OptionValue`s. Names count in any case, as Spark has
    it: of two the last one would, without a word."""
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise invalid_options(f"options must be a dictionary of texts, and is of type {kind}")
    found: dict[str, str] = {}
    spelled: dict[str, str] = {}
    for name, value in options.items():
        if (first := spelled.setdefault(str(name).lower(), name)) != name:
            violations.add(name, f"is given twice: {first} is the same option")
        if isinstance(value, bool):
            found[name] = str(value).lower()
        elif isinstance(value, OptionValue):
            found[name] = str(value)
        else:
            kind = "None" if value is None else f"of type {type(value).__name__}"
            violations.add(name, f"must be a text, a number or a bool, and is {kind}")
    return found


def near_option(name: str, known: Mapping[str, Option]) -> str:
    """The nearest of the known names, as the end of a sentence; "" where none is near."""
    return did_you_mean(known[each].name for each in near_names(name.lower(), known))


class GivenOptions:
    """The options that were given, parsed; what is wrong with them goes to `violations`."""

    def __init__(
        self, known: Mapping[str, Option], violations: Violations, mode: Mode | None = None
    ) -> None:
        self._known = known
        self._violations = violations
        self._mode = mode
        self._named: set[str] = set()
        self._values: dict[str, object] = {}

    def take(self, name: str, value: str) -> bool:
        """Parse an option; False where there is none of this name."""
        row = self._known.get(name.lower())
        if row is None:
            return False
        self._named.add(row.name)
        if self._mode is not None and self._mode not in row.modes:
            reading = "batch reads" if self._mode == "batch" else "streaming queries"
            if not row.ignored:
                self._violations.add(row.name, f"is not valid in {reading}")
            else:
                _log.warning("option '%s' is ignored in %s", row.name, reading)
        with self._violations.collecting(row.name):
            self._values[row.name] = row.parse(value)
        return True

    def names(self, name: str) -> bool:
        """Whether an option was given, with whatever value."""
        return self._known[name.lower()].name in self._named

    def has(self, name: str) -> bool:
        """Whether an option was given with a value that it takes."""
        return self._known[name.lower()].name in self._values

    def settings(self, kind: type[_T], **made: object) -> _T:
        """A settings dataclass with what was given; the rest is as it is without its options.

        `made` are fields that no option fills.
        """
        names = option_fields(kind).items()
        values = {field: self._values[name] for field, name in names if name in self._values}
        make: Callable[..., _T] = kind
        return make(**values, **made)
