"""Whether the JVM of a job has Delta, where Spark is to write a table."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from keyrange.embedded import jars
from keyrange.errors import error

_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def check_delta(jvm: Any = None) -> None:
    """Raises DELTA_NOT_FOUND; without Delta Spark says so at length, and with the first batch."""
    if jvm is None:
        SparkContext._ensure_initialized()
        jvm = SparkContext._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CATALOG)
    except Py4JJavaError:
        [module] = jars.delta().modules
        coordinates = f"{module.organisation}:{module.name}:{module.revision}"
        raise error(
            "DELTA_NOT_FOUND",
            f"Spark is to write the table, and its JVM has no class {_CATALOG}, which "
            f"--packages {coordinates} brings",
        ) from None
