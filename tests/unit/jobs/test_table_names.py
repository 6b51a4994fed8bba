"""Tables by their names: what is a name, and which tables are written by their paths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from keyrange.errors import KeyrangeError
from keyrange.jobs.table_names import is_name, path_of


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("main.shop.orders", True),
        ("shop.orders", True),
        ("`my.catalog`.shop.`orders 2`", True),
        ("orders", False),
        ("lake/t.parquet", False),
        ("/lake/a.b", False),
        ("s3://lake/a.b", False),
        ("dbfs:a.b", False),
        ("a..b", False),
        ("a.b c", False),
        (".hidden", False),
    ],
)
def test_a_name_has_dots_and_is_no_path(text: str, is_one: bool) -> None:
    assert is_name(text) is is_one


class Session:
    """A session with Delta, whose catalog tells so much of a table."""

    def __init__(self, told: Any, has_delta: bool = True) -> None:
        self.told, self.asked = told, list[str]()
        self.conf = SimpleNamespace(get=lambda name, _=None: "io.delta" if has_delta else None)

    def sql(self, text: str) -> Any:
        self.asked.append(text)
        if isinstance(self.told, Exception):
            raise self.told
        return SimpleNamespace(collect=lambda: [self.told])


def detail(**told: Any) -> dict[str, Any]:
    return {"format": "delta", "location": "file:/lake/t", "tableFeatures": ["appendOnly"], **told}


def test_the_path_is_that_of_the_catalog() -> None:
    session: Any = Session(detail())
    assert path_of(session, "main.`a shop`.orders") == "/lake/t"
    assert session.asked == ["DESCRIBE DETAIL `main`.`a shop`.`orders`"]
    session = Session(detail(location="s3a://lake/t"))
    assert path_of(session, "shop.orders") == "s3a://lake/t"


@pytest.mark.parametrize(
    ("session", "text"),
    [
        (Session(detail(), has_delta=False), "which this session lacks"),
        (Session(AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no\nplan")), "no such table.*FOUND"),
        (Session(detail(format="parquet")), "it is one of parquet, and no Delta table"),
        (Session(detail(location=None)), "does not say where its files are"),
        *(
            (Session(detail(tableFeatures=["appendOnly", name])), f"it has feature {name}")
            for name in ("catalogManaged", "catalogOwned-preview", "rowTracking", "clustering")
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_not_written_by_its_path_is_refused_by_name(session: Any, text: str) -> None:
    with pytest.raises(KeyrangeError, match=text):
        path_of(session, "shop.orders")
