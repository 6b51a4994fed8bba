"""Spark on S3, with the jars that the guide names."""

from __future__ import annotations

from keyrange.embedded import jars
from platforms.s3_server import S3Server


def confs_of(server: S3Server) -> dict[str, str]:
    """What spark-submit is told."""
    path = ":".join(map(str, jars.resolve(jars.s3a())))
    return server.hadoop | {
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
    }
