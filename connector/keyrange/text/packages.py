"""How keyrange is installed, for the errors that name a package which is not there."""

from __future__ import annotations


def install_line(extra: str) -> str:
    """The line that installs an extra. No package index has keyrange, so no line asks one for it by
    its name: it could be somebody else's."""
    return f"pip install '.[{extra}]' in a clone, or with a wheel's path in place of the dot"
