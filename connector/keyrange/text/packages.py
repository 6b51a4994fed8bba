"""How keyrange is installed, for the errors that name a package which is not there."""

from __future__ import annotations

import re


def install_line(extra: str) -> str:
    """The line that installs an extra. No package index has keyrange, so no line asks one for it by
    its name: it could be somebody else's."""
    return f"pip install '.[{extra}]' in a clone, or with a wheel's path in place of the dot"


def unfit_delta(place: str, spark_version: str) -> str | None:
    """What is wrong with Delta's jars for a Spark, where `place`, coordinates or paths, names some:
    each is for one minor version, and in another Spark they end with NoSuchMethodError."""
    found = re.search(r"delta-spark_(\d+\.\d+)_", place)
    if found is None or f"{spark_version}.".startswith(f"{found[1]}."):
        return None
    return f"Delta's jars are those for Spark {found[1]}, and Spark is {spark_version}"
