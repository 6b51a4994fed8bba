"""`--option NAME=VALUE` of command lines, with `@FILE` for values that must not be seen.

Rule of this file: only the standard library and the error catalogue, so that jobs can use it too. A
value is never repeated in an error: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from keyrange.errors import invalid_options

_NAME: Final = re.compile(r"[A-Za-z0-9._-]*")


def named_values(given: Iterable[str]) -> dict[str, str]:
    """Values by name; `@FILE` stands for what the file holds, without spaces around it.

    Raises one INVALID_OPTIONS for all that cannot be taken.
    """
    values: dict[str, str] = {}
    violations = []
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            violations.append(f"--option takes NAME=VALUE, not '{_shown(name)}{separator}'")
            continue
        try:
            values[name] = _from_file(value[1:]) if value.startswith("@") else value
        except (OSError, ValueError) as failure:
            said = "the value begins with @ and so names a file, which cannot be read"
            violations.append(f"--option {name}: {said}: {_reason(failure)}")
    if violations:
        raise invalid_options(violations)
    return values


def _from_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def _shown(name: str) -> str:
    """Behind another sign than = may stand the value."""
    begin = _NAME.match(name)[0]  # type: ignore[index]  # it may be empty, and so always fits
    return begin if begin == name else f"{begin}..."


def _reason(failure: Exception) -> str:
    """Without what the failure's own text has of the value: what could not be decoded, and the name
    of the file, which is a password where that begins with @."""
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return "it is not UTF-8 text" if isinstance(failure, UnicodeError) else "it has no such name"
