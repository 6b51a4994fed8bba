"""Text that fits a width, word by word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keyrange.text.wrapping import as_entry, as_paragraph, fitted

WIDTHS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 60)).map(lambda both: (both[0], sum(both))),
    min_size=1,
    max_size=8,
)


@given(columns=WIDTHS, room=st.integers(0, 200))
def test_columns_fit_and_none_is_less_wide_than_its_longest_word(
    columns: list[tuple[int, int]], room: int
) -> None:
    least, natural = [low for low, _ in columns], [wide for _, wide in columns]
    found = fitted(natural, least, room)
    if found is None:
        assert sum(least) > room
        return
    assert sum(found) <= room
    assert all(low <= at <= wide for low, at, wide in zip(least, found, natural, strict=True))
    if sum(natural) <= room:
        assert found == natural


def test_the_widest_column_loses_first() -> None:
    assert fitted([10, 50], [5, 5], 40) == [10, 30]
    assert fitted([30, 50], [5, 5], 40) == [20, 20]


def test_a_row_that_is_too_wide_is_a_paragraph() -> None:
    columns, row = ["check", "state", "", "detail"], ["java", "ok", "", "Java 17 is there"]
    assert list(as_paragraph(columns, row, 24)) == [
        "  check java",
        "      state ok, detail",
        "      Java 17 is there",
    ]
    assert list(as_entry("value", "{\n  1\n\n}", 20)) == ["  value: {", "        1", "", "      }"]
