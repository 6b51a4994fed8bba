"""Which sources of a commit table somebody means."""

from __future__ import annotations

import pytest

from keyrange.individual_commits.model.range_claims import source_of, sources_named

ONE, TEN = source_of("prices", "prices-1"), source_of("prices", "prices-10")
SOURCES = [ONE, TEN, source_of("other", "prices-1"), "4b1c", "4b1c2f"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (ONE, {ONE}),
        ("4b1c", {"4b1c"}),
        ("4b", {"4b1c", "4b1c2f"}),
        ("prices-10", {TEN}),
        ("prices-1", {ONE, SOURCES[2]}),
        ("consumer/prices/", {ONE, TEN}),
        ("", {*SOURCES}),
        ("-10", set()),
        ("1", set()),
    ],
)
def test_an_id_a_slot_or_how_it_begins(name: str, meant: set[str]) -> None:
    assert sources_named(SOURCES, name) == meant
