"""Errors: what is raised, by conditions of one catalogue.

An error that a user can see has a condition. Its name is part of the text, because a Spark worker
hands only the text of an exception to the JVM. Messages never hold secrets or payloads, and what
others wrote in them is plain text in one line: it is printed by whoever catches the error.

    KeyrangeError
    ├── InvalidError       the caller must change something: options, checkpoint, environment
    ├── UnavailableError   the cluster could not be reached or did not answer; trying again may help
    ├── DeniedError        authentication or authorisation failed; trying again does not help
    ├── DataLossError      records that were asked for are not in Kafka any more
    └── CorruptError       bytes came that are not what Kafka writes
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keyrange.errors.commits import COMMIT_CONDITIONS
from keyrange.errors.condition import Condition, Kind
from keyrange.errors.kafka import KAFKA_CONDITIONS
from keyrange.errors.keyed_state import STATE_CONDITIONS
from keyrange.errors.members import MEMBER_CONDITIONS
from keyrange.errors.registry import REGISTRY_CONDITIONS
from keyrange.errors.source import SOURCE_CONDITIONS
from keyrange.errors.topics import TOPIC_CONDITIONS
from keyrange.text.escaping import one_line
from keyrange.text.masking import without_logins

__all__ = [
    "CATALOGUE",
    "Condition",
    "CorruptError",
    "DataLossError",
    "DeniedError",
    "InvalidError",
    "KeyrangeError",
    "Kind",
    "UnavailableError",
    "error",
    "invalid_options",
]

# The catalogue: every way in which keyrange refuses or fails. A row is in the module of what it is
# about. Names that Spark's Kafka connector or Kafka itself publish are kept as they are
# (`KAFKA_DATA_LOSS.*`, `UNKNOWN_TOPIC_OR_PARTITION`).
CATALOGUE: dict[str, Condition] = {
    condition.name: condition
    for condition in (
        *SOURCE_CONDITIONS,
        *KAFKA_CONDITIONS,
        *TOPIC_CONDITIONS,
        *REGISTRY_CONDITIONS,
        *COMMIT_CONDITIONS,
        *STATE_CONDITIONS,
        *MEMBER_CONDITIONS,
    )
}


class KeyrangeError(Exception):
    """An error of the catalogue.

    Raised through `error()`; `str()` reads `[CONDITION] message. To mend it: remedy.`
    """

    def __init__(self, condition: str, message: str) -> None:
        self.condition = CATALOGUE[condition]
        text = one_line(without_logins(message))
        # One that quotes another error ends as that one does; two are a directory, or a name.
        self.message = text if text.endswith("..") else text.removesuffix(".")
        super().__init__(condition, self.message)

    def __str__(self) -> str:
        return f"[{self.condition.name}] {self.message}. To mend it: {self.condition.remedy}."

    @property
    def retriable(self) -> bool:
        return self.condition.retriable


class InvalidError(KeyrangeError): ...


class UnavailableError(KeyrangeError): ...


class DeniedError(KeyrangeError): ...


class DataLossError(KeyrangeError): ...


class CorruptError(KeyrangeError): ...


_TYPES: dict[Kind, type[KeyrangeError]] = {
    Kind.INVALID: InvalidError,
    Kind.UNAVAILABLE: UnavailableError,
    Kind.DENIED: DeniedError,
    Kind.DATA_LOSS: DataLossError,
    Kind.CORRUPT: CorruptError,
}


def error(condition: str, message: str, **context: Any) -> KeyrangeError:
    """Make (not raise) the typed error of a condition.

    `context` is appended to the message as `name=value`, in the order given, so that
    topic-partition and offsets read the same everywhere.
    """
    kind = CATALOGUE[condition].kind
    detail = ", ".join(f"{name}={value}" for name, value in context.items())
    return _TYPES[kind](condition, f"{message} ({detail})" if detail else message)


def invalid_options(violations: str | Sequence[str]) -> InvalidError:
    """One error for all violations of the options, so that they are mended in one go; a text is one
    of them."""
    text = violations if isinstance(violations, str) else "; ".join(violations)
    return InvalidError("INVALID_OPTIONS", text)
