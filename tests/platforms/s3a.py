"""Spark on S3, with the jars that the guide names."""

from __future__ import annotations

from keyrange.embedded import jars
from platforms.s3_server import S3Server

# That of Spark's own Hadoop.
_VERSION = "3.5.0"
_HADOOP_AWS = jars.JarModule("org.apache.hadoop", "hadoop-aws", _VERSION)


def confs_of(server: S3Server) -> dict[str, str]:
    """What spark-submit is told."""
    s3a = jars.JarSet("s3a", _VERSION, (_HADOOP_AWS,), beside_spark=True)
    path = ":".join(map(str, jars.resolve(s3a)))
    return server.hadoop | {
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
    }
