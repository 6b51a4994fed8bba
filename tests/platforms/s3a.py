"""Spark on S3, with the jars that the guide names, and Python by options alone."""

from __future__ import annotations

import pytest

from keyrange.embedded import jars
from platforms.s3_server import S3Server

# That of Spark's own Hadoop.
_VERSION = "3.5.0"
_HADOOP_AWS = jars.JarModule("org.apache.hadoop", "hadoop-aws", _VERSION)

# obstore's and delta-rs's names of what the environment says.
_SETTINGS = ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_REGION")


def confs_of(server: S3Server) -> dict[str, str]:
    """What spark-submit is told."""
    s3a = jars.JarSet("s3a", _VERSION, (_HADOOP_AWS,), beside_spark=True)
    path = ":".join(map(str, jars.resolve(s3a)))
    return server.hadoop | {
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
    }


def told_by_options(server: S3Server, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """What the environment says of the store, as options: of all processes of the job none finds
    more there than the secret, by a name of its own."""
    settings = server.environment
    for name in settings:
        patch.delenv(name)
    patch.setenv("SECRET_OF_STORE", settings["AWS_SECRET_ACCESS_KEY"])
    settings = {name: settings[name] for name in _SETTINGS}
    settings |= {"AWS_SECRET_ACCESS_KEY": "env:SECRET_OF_STORE"}
    options = (f"objectStore.{name.lower()}={value}" for name, value in settings.items())
    return tuple(part for each in options for part in ("--option", each))
