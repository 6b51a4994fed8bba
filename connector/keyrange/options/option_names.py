"""Which options there are: a name that none has is refused with the one that may be meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from keyrange.options.commits import STORAGE_PREFIX
from keyrange.options.given_options import by_name, near_option
from keyrange.options.kafka_properties import property_without_prefix, unknown_property
from keyrange.options.option import Option
from keyrange.options.source import OPTIONS
from keyrange.options.value_parsers import Violations
from keyrange.options.volume_checks import ADMIN_PREFIX

BY_NAME: Final = by_name(OPTIONS)
KAFKA_PREFIX: Final = "kafka."


def prefix_of(name: str) -> str:
    """The prefix of options that are passed on by their own names, which one begins with; "" for an
    option that the source has itself."""
    prefixes = (ADMIN_PREFIX, KAFKA_PREFIX, STORAGE_PREFIX)
    return next((each for each in prefixes if name.lower().startswith(each)), "")


def check_names(names: Iterable[str]) -> None:
    """Whether the source has options of these names, whatever they are given.

    For who uses a few of many. Raises one InvalidError that names all that it has not.
    """
    violations = Violations()
    for name in names:
        folded, prefix = name.lower(), prefix_of(name)
        if prefix in (ADMIN_PREFIX, KAFKA_PREFIX):
            problem = unknown_property(folded.removeprefix(prefix), prefix)
        else:
            problem = None if prefix or folded in BY_NAME else unknown(name)
        if problem is not None:
            violations.add(name, problem)
    violations.check()


def unknown(name: str, rows: Mapping[str, Option] = BY_NAME) -> str:
    """What is said of an option that does not exist: the one of `rows` that may be meant."""
    return property_without_prefix(name) or f"does not exist{near_option(name, rows)}"
