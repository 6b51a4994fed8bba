"""The recipes of two topics: what the guide says of them, without Spark, and how short they are."""

from __future__ import annotations

from typing import Any

import keyrange
from project.snippets import ROOT, snippets

LINES_MAX = 25


def test_the_recipes_are_short_and_do_what_the_page_says() -> None:
    recipes, join, test = snippets(ROOT / "connector" / "guides" / "joins.md")
    names: dict[str, Any] = {"__name__": "joins", "keyrange": keyrange}
    for each in (recipes, join):
        lines = [line for line in each.text.splitlines() if line.strip()]
        assert len(lines) <= LINES_MAX, f"{each} has {len(lines)} lines"
        # Without the query, which needs a broker.
        exec(each.text.partition("job = ")[0], names)  # noqa: S102
    exec(test.text, names)  # noqa: S102
