"""The driver's version, as the readers that Spark pickles into tasks carry it.

It stands first in a reader's state and is checked as it is unpickled: what follows may already have
another form.
"""

from __future__ import annotations

from typing import Any, Final

import keyrange
from keyrange.errors import error

_FIRST: Final = "_driver_version"


class DriverVersion:
    """Unpickles in the version that pickled it, and in no other one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return check_driver_version, (keyrange.__version__,)


def check_driver_version(version: str) -> DriverVersion:
    """Raises VERSIONS_DIFFER where this process has another version than the driver."""
    if version != keyrange.__version__:
        raise error(
            "VERSIONS_DIFFER",
            f"the driver has keyrange {version}, and this executor has keyrange "
            f"{keyrange.__version__} in {keyrange.__path__[0]}",
        )
    return DriverVersion()


def with_version(state: dict[str, Any]) -> dict[str, Any]:
    """What is pickled of an object with this state."""
    return {_FIRST: DriverVersion(), **state}
