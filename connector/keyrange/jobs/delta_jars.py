"""Whether the JVM of a job has a Delta that fits it, where Spark is to write a table."""

from __future__ import annotations

from typing import Any, Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from keyrange.embedded import jars
from keyrange.errors import error
from keyrange.text.packages import unfit_delta

_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def check_delta(jvm: Any = None) -> None:
    """Raises DELTA_NOT_FOUND; without Delta Spark says so at length, and with the first batch."""
    if jvm is None:
        SparkContext._ensure_initialized()
        jvm = SparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        source = loader.loadClass(_CATALOG).getProtectionDomain().getCodeSource()
    except Py4JJavaError:
        [module] = jars.delta().modules
        coordinates = f"{module.organisation}:{module.name}:{module.revision}"
        raise error(
            "DELTA_NOT_FOUND",
            f"Spark is to write the table, and its JVM has no class {_CATALOG}, which "
            f"--packages {coordinates} brings",
        ) from None
    unfit = unfit_delta(source.getLocation().toString(), pyspark.__version__)
    if unfit is not None:
        raise error("DELTA_NOT_FOUND", f"Spark is to write the table, and {unfit}")
