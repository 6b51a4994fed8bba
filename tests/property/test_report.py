"""What a report cuts and draws, against naive oracles."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from keyrange.report.chart_shapes import Path
from keyrange.report.sections.offsets import runs_not_done
from keyrange.report.sections.ring import pieces
from keyrange.report.wording import escaped, label

SPACE = 24


@st.composite
def owned(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The owners of a space of a few hashes."""
    cuts = sorted(draw(st.sets(st.integers(1, SPACE - 1))))
    bounds = [0, *cuts, SPACE]
    return [
        {"range": [low, until - 1], "slot": draw(st.sampled_from("abc"))}
        for low, until in pairwise(bounds)
    ]


def by_hash(rows: list[dict[str, Any]]) -> list[str]:
    return [row["slot"] for row in rows for _ in range(row["range"][0], row["range"][1] + 1)]


@given(owned(), owned())
def test_every_hash_has_the_owner_that_it_has_and_had(
    after: list[dict[str, Any]], before: list[dict[str, Any]]
) -> None:
    found = [
        (each.slot, each.before)
        for each in pieces(after, before)
        for _ in range(each.range[0], each.range[1] + 1)
    ]
    assert found == list(zip(by_hash(after), by_hash(before), strict=True))


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.integers(1, 40))
def test_what_is_not_done_is_all_that_no_run_says_is_done(
    scanned: int, pending: set[int], most: int
) -> None:
    """As a piece of a partition's state has it: committed is the first pending record."""
    inside = sorted(record for record in pending if record < scanned)
    committed = inside[0] if inside else scanned
    borders = [*inside, scanned]
    done = [[record + 1, until] for record, until in pairwise(borders) if record + 1 < until]
    row = {"committed": committed, "scanned": scanned, "done_above": done}
    runs = runs_not_done(row, most)
    found = {at for begin, until in runs for at in range(begin, until)}
    assert len(runs) <= most + 1
    if len(done) <= most:
        assert found == set(inside)
    else:
        assert found > set(inside)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_a_band_has_the_area_of_its_rectangles(bounds: list[tuple[int, int]]) -> None:
    cells = [
        (float(x), float(max(x, u)), float(y), float(y + 1)) for y, (x, u) in enumerate(bounds)
    ]
    path = Path()
    path.band(cells)
    corners = list(zip(path.x, path.y, strict=True))
    twice = sum(
        x0 * y1 - x1 * y0  # type: ignore[operator]
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], *corners[:1]], strict=True)
    )
    assert abs(twice) / 2 == sum(x1 - x0 for x0, x1, _, _ in cells)


@given(st.text())
def test_no_text_is_markup(text: str) -> None:
    for made in (escaped(text), label(text)):
        assert "<" not in made
        assert ">" not in made
    assert "%{" not in label(text)
    assert '"' not in escaped(text)
