"""Secrets: values that never show themselves, and references to where they are kept.

A secret is given as it is, or as a reference that stays one in plans, pickles and memory until a
connection is made: `env:NAME` is an environment variable and `file:PATH` a file of the process that
connects, on driver and executors alike. `literal:TEXT` is TEXT, whatever it begins with.
"""

from __future__ import annotations

import os
import re
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.options.allowlist import NotAllowed, check_path
from keyrange.options.value_parsers import takes

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FILE_BYTES_MAX: Final = 1 << 20


class UnseenText(str):
    """Text that is used as any other, and stays out of what shows local values: tracebacks of
    tools, debuggers, a dict's repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


class UnseenBytes(bytes):
    """The same of bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "b'***'"


class Secret:
    """A string that does not show itself in repr, str, logs or errors."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def is_reference(self) -> bool:
        return self._value.startswith(("env:", "file:"))

    def reveal(self) -> UnseenText:
        """The secret itself. What is referred to is looked up at every call: it may be rotated.

        Raises SECRET_NOT_FOUND that names the reference.
        """
        kind, _, rest = self._value.partition(":")
        if kind == "literal" and self._value.startswith("literal:"):
            return UnseenText(rest)
        if not self.is_reference:
            return UnseenText(self._value)
        found = os.environ.get(rest, "") if kind == "env" else _read(rest)
        if not found:
            raise _missing(self._value, "is not set" if kind == "env" else "is empty")
        return UnseenText(found)

    def __repr__(self) -> str:
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)


NO_SECRET: Final = Secret("")


@takes("a text, env:NAME or file:PATH")
def parse_secret(value: str) -> Secret:
    """A secret or a reference. ValueError, without the value, for a reference to nothing."""
    kind, _, rest = value.partition(":")
    if (value.startswith("env:") and not _NAME.fullmatch(rest)) or (
        value.startswith("file:") and (not rest.strip("/ ") or "\0" in rest)
    ):
        raise ValueError(
            f"must name what {kind}: refers to, as env:NAME or file:PATH; a secret that itself "
            f"begins so is written literal:{kind}:..."
        )
    if value.startswith("file:"):
        check_path(referred_path(value))
    return Secret(value)


def referred_path(reference: str) -> str:
    """The path of file:PATH; file:///path is the same as file:/path."""
    path = reference[len("file:") :]
    return path[2:] if path.startswith("///") else path


def _read(path: str) -> str:
    local = referred_path(f"file:{path}")
    try:
        # Here too: in an executor a path may lead elsewhere.
        check_path(local)
    except NotAllowed as failure:
        raise error("OPTION_NOT_ALLOWED", f"a secret's reference {failure}") from None
    try:
        with open(local, "rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise _missing(f"file:{path}", f"has more than {_FILE_BYTES_MAX} bytes")
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as failure:
        raise _missing(f"file:{path}", f"cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise _missing(f"file:{path}", "is no text in UTF-8") from None


def _missing(reference: str, why: str) -> KeyrangeError:
    return error("SECRET_NOT_FOUND", f"{reference} {why} in the process that connects")
