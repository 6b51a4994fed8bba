"""Whether a job's JVM has Delta, asked before a session is there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from keyrange.errors import KeyrangeError
from keyrange.jobs.delta_jars import check_delta
from keyrange.storage.write_by_spark import has_delta


def test_spark_is_asked_for_delta_before_it_is_to_write() -> None:
    def jvm(failure: Exception | None, spark: str = "4.2") -> Any:
        def load(_: str) -> Any:
            if failure is not None:
                raise failure
            path = f"file:/jars/io.delta_delta-spark_{spark}_2.13-4.4.0.jar"
            location = SimpleNamespace(toString=lambda: path)
            source = SimpleNamespace(getLocation=lambda: location)
            domain = SimpleNamespace(getCodeSource=lambda: source)
            return SimpleNamespace(getProtectionDomain=lambda: domain)

        thread = SimpleNamespace(getContextClassLoader=lambda: SimpleNamespace(loadClass=load))
        lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        return SimpleNamespace(java=SimpleNamespace(lang=lang))

    check_delta(jvm(None))
    missing = Py4JJavaError("no class", SimpleNamespace(_target_id="o1", _gateway_client=None))
    with pytest.raises(KeyrangeError, match=r"DELTA_NOT_FOUND.*--packages io.delta:delta-spark_"):
        check_delta(jvm(missing))
    with pytest.raises(KeyrangeError, match=r"DELTA_NOT_FOUND.*for Spark 3\.5, and Spark is 4\.2"):
        check_delta(jvm(None, "3.5"))


@pytest.mark.parametrize(
    ("name", "jars", "version", "fits"),
    [
        ("spark.jars.packages", "a:b:1,io.delta:delta-spark_4.2_2.13:4.4.0", "4.2.1", True),
        ("spark.jars.packages", "a:b:1,io.delta:delta-spark_4.2_2.13:4.4.0", "4.3.0", False),
        ("spark.jars", "file:/x/io.delta_delta-spark_4.2_2.13-4.4.0.jar", "4.3.0", False),
        ("spark.jars", "file:/x/own.jar", "4.3.0", True),
    ],
)
def test_a_session_whose_delta_is_for_another_spark_has_none(
    name: str, jars: str, version: str, fits: bool
) -> None:
    confs = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        name: jars,
    }
    assert has_delta(SimpleNamespace(conf=confs, version=version)) == fits
