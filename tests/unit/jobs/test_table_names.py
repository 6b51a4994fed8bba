"""What a catalog says of a table that is given by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from keyrange.errors import KeyrangeError
from keyrange.jobs.table_names import path_of


def session(**told: Any) -> Any:
    """One with Delta, which answers so."""
    row = {"format": "delta", "location": "file:/lake/orders", "tableFeatures": [], **told}
    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    return SimpleNamespace(
        conf=conf, version="4.2.0", sql=lambda _: SimpleNamespace(collect=lambda: [row])
    )


def test_the_place_of_a_table() -> None:
    assert path_of(session(), "shop.orders") == "/lake/orders"
    s3 = session(location="s3://lake/orders", tableFeatures=["rowTracking", "columnMapping"])
    assert path_of(s3, "main.shop.orders") == "s3://lake/orders"


def test_a_topic_in_the_place_of_a_table_is_told_where_it_goes() -> None:
    def unknown(_: str) -> Any:
        raise AnalysisException("no such table")

    known, lacks = session(), SimpleNamespace(conf={})
    known.sql = unknown
    for each in (known, lacks):
        with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*written by into_topic"):
            path_of(each, "shop.orders")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"format": "parquet"}, "it is one of parquet, and no Delta table"),
        ({"location": None}, "does not say where its files are"),
        ({"tableFeatures": ["catalogManaged"]}, "it has feature catalogManaged"),
        ({"tableFeatures": ["catalogOwned-preview"]}, "it has feature catalogOwned-preview"),
    ],
)
def test_a_table_that_is_not_at_a_path(told: dict[str, Any], why: str) -> None:
    with pytest.raises(KeyrangeError, match=rf"SINK_UNSUITABLE.*by its path: .*{why}"):
        path_of(session(**told), "main.shop.orders")
