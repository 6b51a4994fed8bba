"""Small parsers for option values, and the list that collects everything that is wrong with them.

A parser takes the option's text and returns its value or raises ValueError with a message that
begins with "must", so that it reads on from the option's name. Messages never repeat the value of a
secret: parsers of secrets do not fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from keyrange.errors import error, invalid_options
from keyrange.options.allowlist import NotAllowed, check_module, check_path

_T = TypeVar("_T")
_Word = TypeVar("_Word", bound=str)
_Parser = TypeVar("_Parser", bound=Callable[[str], Any])

# Python's int() takes more: other scripts' digits, underscores, and thousands of digits.
_WHOLE_NUMBER = re.compile(r"^-?[0-9]{1,19}$", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def takes(values: str) -> Callable[[_Parser], _Parser]:
    """Marks a parser with what it takes, as the reference of the options says it."""

    def mark(parse: _Parser) -> _Parser:
        _TAKEN[parse] = values
        return parse

    return mark


def taken_by(parse: Callable[[str], Any]) -> str:
    return _TAKEN[parse]


_TAKEN: dict[Callable[[str], Any], str] = {}


class Violations:
    """What is wrong with a set of options, all of it, in the order found."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.unparsed: set[str] = set()
        self.not_allowed: list[str] = []

    def add(self, name: str, message: str) -> None:
        self.messages.append(f"option '{name}' {message}")

    def check(self) -> None:
        """Raises OPTION_NOT_ALLOWED or INVALID_OPTIONS, with everything that was found."""
        if self.not_allowed:
            raise error("OPTION_NOT_ALLOWED", "; ".join(self.not_allowed))
        if self.messages:
            raise invalid_options(self.messages)

    @contextmanager
    def collecting(self, name: str) -> Iterator[None]:
        """Take a parser's ValueError as a violation of the option and go on; the option is among
        `unparsed` then, which were given and have no value."""
        try:
            yield
        except ValueError as failure:
            self.unparsed.add(name)
            wrong = self.not_allowed if isinstance(failure, NotAllowed) else self.messages
            wrong.append(f"option '{name}' {failure}")


def text(value: str) -> str:
    return value


# A string of Kafka's messages has its length in two bytes.
NAME_BYTES_MAX = 2**15 - 1


def name_up_to(most_bytes: int) -> Callable[[str], str]:
    """Text that goes into Kafka's messages as it is."""

    @takes("a name")
    def parse(value: str) -> str:
        if len(value.encode(errors="replace")) > most_bytes:
            raise ValueError(f"must have {most_bytes} bytes at the most")
        return value

    return parse


@takes("an absolute path or a URI")
def path_or_uri(value: str) -> str:
    """A path or a URI, which is not looked at any closer."""
    if not value.strip("/ "):
        raise ValueError("must be a path or a URI")
    check_path(value.strip())
    return value.strip()


@takes("a path")
def local_path(value: str) -> str:
    """A path of the process that opens it; "" for none."""
    if value:
        check_path(value)
    return value


def not_empty(value: str) -> str:
    """A text without blanks around it."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def group_up_to(most_bytes: int) -> Callable[[str], str]:
    """The name of a group, without blanks around it."""

    @takes("a name")
    def parse(value: str) -> str:
        return name_up_to(most_bytes)(not_empty(value))

    return parse


@takes("a variable")
def variable(value: str) -> str:
    """The name of a variable of the environment."""
    if not _VARIABLE.fullmatch(value.strip()):
        raise ValueError("must be the name of an environment variable")
    return value.strip()


@takes("true, false")
def boolean(value: str) -> bool:
    """true or false in any case, as Spark reads its own options."""
    folded = value.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError(f"must be true or false, not '{value}'")
    return folded == "true"


def int_between(least: int, most: int, what: str = "") -> Callable[[str], int]:
    """A whole number with limits, both inclusive; `what` says of what, or in which unit."""

    @takes(what)
    def parse(value: str) -> int:
        if not _WHOLE_NUMBER.match(value.strip()):
            raise ValueError(f"must be a whole number, not '{value[:40]}'")
        number = int(value)
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most}, not {number}")
        return number

    return parse


_UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


def size_between(least: int, most: int, example: str = "64m") -> Callable[[str], int]:
    """Bytes, with an optional unit as Spark writes them: 512k, 8m, 1g (powers of 1,024)."""

    @takes(f"bytes, such as {example}")
    def parse(value: str) -> int:
        folded = value.strip().lower()
        digits = folded.rstrip("kmgb")
        unit = folded[len(digits) :]
        if not _WHOLE_NUMBER.match(digits) or unit not in _UNITS:
            raise ValueError(
                f"must be a number of bytes such as 1048576, 512k or 8m, not '{value[:40]}'"
            )
        number = int(digits) * _UNITS[unit]
        if not least <= number <= most:
            raise ValueError(f"must be between {least} and {most} bytes, not {number}")
        return number

    return parse


_TIMES_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
# Behind a time of today what is longer may be no time any more.
DURATION_MAX_US: Final = 365_000 * 86_400_000_000
_TIME = re.compile(r"^([0-9]{1,15}) *([a-z]+)$", re.ASCII)


class _NamedTwice(ValueError): ...


def json_document(value: str, form: str) -> Any:
    """A JSON document. Raises ValueError for what is none, and for an object in which a name stands
    twice: readers of JSON drop all but the last."""

    def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _NamedTwice
        return found

    try:
        return json.loads(value, object_pairs_hook=each_once)
    except _NamedTwice:
        raise ValueError("must name every topic and partition once") from None
    except (ValueError, RecursionError):  # ValueError also for numbers of thousands of digits
        raise ValueError(f"must be JSON, {form}") from None


@takes("a time with its unit, such as 10s or 1 day")
def duration_ms(value: str) -> int:
    """Milliseconds of a number with its unit: 500ms, 10s, 15m, 2h, 1 day; only 0 needs none.
    What is shorter is one: 0 often stands for no limit."""
    micros = _duration_us(value)
    return micros // 1000 or int(micros > 0)


def _duration_us(value: str) -> int:
    text = value.strip().lower()
    time = _TIME.match("0 ms" if text == "0" else text)
    # A word may be a plural, and no letter is one.
    unit = time[2].removesuffix("s") if time is not None and len(time[2]) > 3 else time and time[2]
    if time is None or unit not in _TIMES_US:
        raise ValueError(
            "must be a time, a number with its unit (us, ms, s, m, min, h, d, or in words such "
            f"as 10 minutes, 1 day or 2 weeks), not '{value[:40]}'"
        )
    return int(time[1]) * _TIMES_US[unit]


def argument_us(name: str, text: str, is_positive: bool = False) -> int:
    """A duration that is an argument of a call, such as "1h", in microseconds. Raises ValueError
    that names it for what is none; with `is_positive` also for none at all."""
    try:
        # Also of a number, which says no unit.
        found = _duration_us(str(text))
    except ValueError as failure:
        raise ValueError(f"{name} {failure}") from None
    if is_positive and found <= 0:
        raise ValueError(f"{name} must be longer than nothing")
    if found > DURATION_MAX_US:
        raise ValueError(f"{name} must not be longer than 1,000 years (365000d)")
    return found


def duration_or_ms(value: str) -> int:
    """As `duration_ms`, and a bare number is in milliseconds: for names that say so, and where
    Spark's own option has it so."""
    return duration_ms(f"{value}ms" if value.strip().isdecimal() else value)


def ms_between(least: int, most: int) -> Callable[[str], int]:
    """`duration_or_ms` with limits, both inclusive: of an option whose name ends with ms."""

    @takes("ms, or a time such as 10s")
    def parse(value: str) -> int:
        found = duration_or_ms(value)
        if not least <= found <= most:
            raise ValueError(f"must be between {least} and {most} ms, not {found}")
        return found

    return parse


_NAMES = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_IMPORTABLE = re.compile(rf"({_NAMES}):({_NAMES})", re.ASCII)


def importable(kind: str) -> Callable[[str], tuple[str, str]]:
    """A name that Python imports, package.module:kind, as module and name."""

    def parse(value: str) -> tuple[str, str]:
        names = _IMPORTABLE.fullmatch(value.strip())
        if names is None:
            raise ValueError(
                f"must be package.module:{kind}, a name that Python imports, not '{value[:40]}'"
            )
        check_module(names[1])
        return names[1], names[2]

    return parse


_ISO_TIME = re.compile(
    r"^P(?=[0-9T])(?:([0-9]{1,6})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,3}))?S)?)?$",
    re.ASCII | re.IGNORECASE,
)


@takes("an ISO 8601 duration")
def iso_duration_ms(value: str) -> int:
    """Milliseconds of an ISO 8601 duration in days and smaller, as Java reads it: PT1M, P1DT2H."""
    time = _ISO_TIME.match(value.strip())
    if time is None:
        raise ValueError(
            "must be an ISO 8601 duration of days, hours, minutes and seconds such as PT5M or "
            f"PT1H30M, not '{value[:40]}'"
        )
    days, hours, minutes, seconds = (int(each or 0) for each in time.groups()[:4])
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 1_000 + int((time[5] or "0").ljust(3, "0"))


_DECIMAL = re.compile(r"^[0-9]{1,18}(\.[0-9]{1,18})?$|^\.[0-9]{1,18}$", re.ASCII)


@takes("0.0 to 1.0")
def part_of_one(value: str) -> float:
    """A number from 0 to 1, both included."""
    if not _DECIMAL.match(value.strip()) or not 0 <= float(value) <= 1:
        raise ValueError(f"must be a number from 0.0 to 1.0, not '{value[:40]}'")
    return float(value)


def one_of(*allowed: _Word, upper: bool = False, shown: bool = True) -> Callable[[str], _Word]:
    """One of some words. Where a secret may be given in their place the error has no value."""

    @takes(", ".join(allowed))
    def parse(value: str) -> _Word:
        folded = value.strip().upper() if upper else value.strip()
        for each in allowed:
            if each == folded:
                return each
        found = f", not '{value[:40]}'" if shown else ""
        raise ValueError(f"must be one of {', '.join(allowed)}{found}")

    return parse


def is_one(meant: str, *allowed: str) -> Callable[[str], bool]:
    """One of some words, as whether it is the one that is meant."""
    word = one_of(*allowed)
    return takes(taken_by(word))(lambda value: word(value) == meant)


@dataclass(frozen=True, slots=True)
class Property:
    """One row: a `kafka.*` name without the prefix, and either its field or why it has none."""

    name: str
    field: str = ""
    parse: Callable[[str], Any] = text
    ignored: str = ""
    refused: str = ""

    def fill(self, fields: dict[str, Any], name: str, value: str, violations: Violations) -> None:
        """Take a value, which was given under a name, into the field."""
        if self.refused:
            violations.add(name, f"is not supported: {self.refused}")
            return
        with violations.collecting(name):
            parsed = self.parse(value)
            if self.field:
                fields[self.field] = parsed


_PROPERTIES = "properties"


def prop(name: str, default: _T, parse: Callable[[str], _T], *, also: str = "") -> _T:
    """A field of client settings that a property fills, by either of its names."""
    rows = tuple(Property(each, parse=parse) for each in (name, also) if each)
    filled: _T = field(default=default, metadata={_PROPERTIES: rows})
    return filled


def properties_of(settings: type) -> tuple[Property, ...]:
    """The properties that fill fields of a dataclass."""
    return tuple(
        replace(row, field=each.name)
        for each in fields(settings)
        for row in each.metadata[_PROPERTIES]
    )
