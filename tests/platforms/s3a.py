"""Spark on S3, with the jars that the guide names."""

from __future__ import annotations

from typing import Final

from keyrange.embedded import jars
from platforms.s3_server import S3Server

# What the guide names for --packages.
_S3A: Final = jars.JarSet(
    name="s3a",
    version="3.5.0",
    modules=(jars.JarModule("org.apache.hadoop", "hadoop-aws", "3.5.0"),),
    beside_spark=True,
)


def confs_of(server: S3Server) -> dict[str, str]:
    """What spark-submit is told."""
    path = ":".join(map(str, jars.resolve(_S3A)))
    return server.hadoop | {
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
    }
