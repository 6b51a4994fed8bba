"""What options may name: the modules that they run, and the paths that they read or write.

An option can run any function that can be imported, and send any file's content to a broker as a
password. Whoever starts processes in which others set options says by two variables of the
environment which of both are allowed, each a list of prefixes with commas between. Without a
variable everything is, with an empty one nothing. No option changes that, and no conf that a
session can set.

A prefix ends where a name or a step of a path ends: `jobs` allows `jobs.orders`, not `jobs2`.
Paths are compared as they really are, with links and `..` resolved, in the process that looks.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final
from urllib.parse import unquote

from keyrange.errors import KeyrangeError, error

MODULES: Final = "KEYRANGE_ALLOWED_MODULES"
PATHS: Final = "KEYRANGE_ALLOWED_PATHS"
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


class NotAllowed(ValueError):
    """An option names what the environment does not allow; begins with "must"."""


def check_module(module: str) -> None:
    """Raises NotAllowed."""
    prefixes = _listed(MODULES)
    if prefixes is not None and not any(_within(module, each, ".") for each in prefixes):
        raise NotAllowed(f"must not name {module}: {MODULES} of the environment does not allow it")


def check_found(found: Any) -> None:
    """Where what was found by a name is defined counts too: a module that is allowed imports
    others, which could be named through it. Raises NotAllowed."""
    if _listed(MODULES) is not None:
        check_module(str(getattr(found, "__module__", None) or f"what {type(found).__name__} is"))


def check_path(path: str) -> None:
    """A path or a URI. Raises NotAllowed."""
    prefixes = _listed(PATHS)
    if prefixes is None:
        return
    forms = _forms(path)
    allowed = [form for each in prefixes for form in _forms(each)]
    if not forms or not all(any(_within(form, each, "/") for each in allowed) for form in forms):
        raise NotAllowed(f"must not name {path}: {PATHS} of the environment does not allow it")


def not_allowed(option: str, failure: NotAllowed) -> KeyrangeError:
    """The error for what is found where it is used, and not when options are read."""
    return error("OPTION_NOT_ALLOWED", f"option '{option}' {failure}")


def _listed(variable: str) -> list[str] | None:
    if variable not in os.environ:
        return None
    return [each for part in os.environ[variable].split(",") if (each := part.strip())]


def _within(name: str, prefix: str, step: str) -> bool:
    return name == prefix or name.startswith(prefix.rstrip(step) + step)


def _forms(path: str) -> set[str]:
    """All that a place may mean to who opens it; empty where it cannot be told.

    What is escaped in a URI is read by some as it is, and by others as what it stands for.
    """
    if "\0" in path:
        return set()
    uri = _URI.fullmatch(path)
    if uri is None:
        return {os.path.realpath(path)}
    scheme, rest = uri[1].lower(), uri[2]
    spelled = {rest, unquote(rest)}
    if scheme == "file":
        # file:///a and file:/a are the same; another host is none that is looked at.
        return {os.path.realpath(re.sub(r"^//[^/]*(?=/)", "", each)) for each in spelled}
    if any(".." in re.split(r"[/\\]", each) for each in spelled):
        return set()
    return {f"{scheme}:{each}" for each in spelled}
