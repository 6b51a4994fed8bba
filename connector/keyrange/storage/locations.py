"""One place under the names that Spark, Arrow and delta-rs have for it."""

from __future__ import annotations

import re


def as_object_store_names(location: str) -> str:
    """A path or URI as obstore and delta-rs know it: Hadoop's `s3a://` and `s3n://` are `s3://`.
    `file:/x` and `file:///x` are the path, which Hadoop takes as it is written: delta-rs would
    decode it, and a table lie in two directories.
    """
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?(?=/)", "", location))


def as_spark_names(location: str, checkpoint: str) -> str:
    """A place in S3 by the scheme that Spark's filesystem has: that of the query's checkpoint.

    Outside of EMR and Databricks, Hadoop knows `s3a://` alone, and delta-rs and the pages of S3 say
    `s3://`, as a commit table does, beside which verdicts lie.
    """
    is_hadoops = checkpoint.startswith("s3a://") and location.startswith("s3://")
    return f"s3a{location[2:]}" if is_hadoops else location
