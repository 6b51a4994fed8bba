"""What a user gave: texts in, and out of them the settings dataclasses that have options."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from keyrange.options.option import Mode, Option, option_fields
from keyrange.options.value_parsers import Violations
from keyrange.text.near_names import did_you_mean, near_names

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
# What stands for the text of an option, as where Spark takes options.
OptionValue = str | int | float | bool


def by_name(rows: Iterable[Option]) -> dict[str, Option]:
    """Rows by their names in lower case."""
    return {row.name.lower(): row for row in rows}


def texts_of(options: Mapping[str, object], violations: Violations) -> dict[str, str]:
    """The texts of options, of which some are `OptionValue`s."""
    found: dict[str, str] = {}
    for name, value in options.items():
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
