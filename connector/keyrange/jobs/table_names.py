"""A table by its name in the session's catalog: the place of its files, which a job writes by its
path."""

from __future__ import annotations

import re
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keyrange.errors import error, invalid_options
from keyrange.storage.write_by_spark import has_delta

_PART: Final = r"(?:`[^`]+`|[^\s`/.:]+)"
# With these the catalog says which version of a table is the last one, and no log at a path does.
_OF_CATALOGS: Final = frozenset(
    {"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview", "managedCommits-dev"}
)
# A topic's name with dots looks like a table's.
OR_TOPIC: Final = "; a topic of Kafka is written by into_topic"
_NAME: Final = re.compile(rf"{_PART}(?:\.{_PART})+")


def is_name(table: str) -> bool:
    """Whether it is a name with dots, such as `shop.orders` or `main.shop.orders`, and no path."""
    return _NAME.fullmatch(table) is not None


def path_of(session: SparkSession, name: str) -> str:
    """Where the files of a table are. Raises INVALID_OPTIONS where the catalog does not say so,
    SINK_UNSUITABLE where it is no table of Delta's that is written by its path."""
    if not has_delta(session):
        raise invalid_options(
            f"table {name}: where it is the session's Delta says, which this session lacks "
            "(spark.sql.extensions and spark.sql.catalog.spark_catalog); give its path"
            f"{OR_TOPIC}"
        )
    try:
        [told] = session.sql(f"DESCRIBE DETAIL {_quoted(name)}").collect()
    except PySparkException as failure:
        reason = str(failure).strip().partition("\n")[0][:300]
        text = f"table {name}: the session's catalog has no such table of Delta's: {reason}"
        raise invalid_options(text + OR_TOPIC) from None
    if told["format"] != "delta":
        raise _unsuitable(name, f"it is one of {told['format']}, and no Delta table")
    if not told["location"]:
        raise _unsuitable(name, "its catalog does not say where its files are")
    for feature in sorted(_OF_CATALOGS.intersection(told["tableFeatures"] or ())):
        raise _unsuitable(name, f"it has feature {feature}")
    return _as_path(told["location"])


def _as_path(location: str) -> str:
    """A path on this machine without Java's scheme."""
    return re.sub("^file:/+", "/", location)


def _quoted(name: str) -> str:
    """As SQL takes any name, each part by itself."""
    parts = re.findall(_PART, name)
    return ".".join(f"`{each.strip('`')}`" for each in parts)


def _unsuitable(name: str, why: str) -> Any:
    text = f"the table is not written by its path: {why}"
    return error("SINK_UNSUITABLE", text, table=name)
