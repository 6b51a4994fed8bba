"""`--option NAME=VALUE` of command lines, with `@FILE` for values that must not be seen.

Rule of this file: only the standard library and the error catalogue, so that jobs can use it too. A
value is never repeated in an error: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from keyrange.errors import invalid_options


def named_values(given: Iterable[str]) -> dict[str, str]:
    """Values by name; `@FILE` stands for what the file holds, without spaces around it.

    Raises one INVALID_OPTIONS for all that cannot be taken.
    """
    values: dict[str, str] = {}
    violations = []
    for each in given:
        name, separator, value = each.partition("=")
        if not separator or not name:
            violations.append(f"--option takes NAME=VALUE, not '{name}{separator}'")
            continue
        try:
            values[name] = _from_file(value[1:]) if value.startswith("@") else value
        except (OSError, ValueError) as failure:
            violations.append(f"--option {name}: the file cannot be read: {_reason(failure)}")
    if violations:
        raise invalid_options(violations)
    return values


def _from_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def _reason(failure: Exception) -> str:
    # Text of other encodings: what could not be decoded is part of the failure's own text.
    return "it is not UTF-8 text" if isinstance(failure, UnicodeError) else str(failure)
