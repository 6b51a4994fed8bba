"""The rows of the catalogue about Java, jars and the broker of `keyrange broker`."""

from __future__ import annotations

from typing import Final

from keyrange.errors.condition import Rows

_rows = Rows()

EMBEDDED_CONDITIONS: Final = (
    _rows.invalid(
        "JAVA_NOT_FOUND",
        "install Java 17 or newer, or set JAVA_HOME",
        "No Java was found, or one that is too old, for the broker of `keyrange broker`, for "
        "fetching jars, or for a job of `jobs/` that was started without spark-submit.",
        "`keyrange doctor`",
    ),
    _rows.invalid(
        "PYSPARK_NOT_FOUND",
        "install pyspark beside keyrange, or set SPARK_HOME",
        "A command needs the jars that pyspark brings, and there is no pyspark.",
        "`keyrange doctor`; extra `spark`, which brings pyspark",
    ),
    _rows.unavailable(
        "JARS_NOT_RESOLVED",
        "check that there is such a version and that a Maven repository can be reached; Ivy's own "
        "log is named above",
        "keyrange could not fetch the jars that it needs.",
        "Ivy's log, which the message names; a proxy or a mirror that Ivy's settings lack",
    ),
    _rows.invalid(
        "BROKER_DIRECTORY_UNUSABLE",
        "name a directory with --dir that can be made and written here; without --dir it is in "
        "the user's cache, or where KEYRANGE_CACHE says",
        "The directory of the broker of `keyrange broker` cannot be made or written. No broker was "
        "started.",
        "the path in the message: its owner, its permissions, and whether the disk has room",
    ),
    _rows.unavailable(
        "BROKER_NOT_STARTED",
        "read the end of the broker's log, named above",
        "The broker of `keyrange broker start` did not start, or did not end.",
        "the log that the message names",
    ),
)
