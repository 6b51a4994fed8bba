"""What a fence says stands in columns of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_schema import (
    SAME,
    SCHEMA,
    commits_of,
    rows_of,
)
from keyrange.individual_commits.table.row_checksum import sealed
from tables.commit_contract import SOURCE, batch, condition, fence


def test_a_fence_has_columns_and_no_text() -> None:
    [row] = rows_of(fence(1, group_seq=7, driver="a")).to_pylist()
    assert (row["group_seq"], row["driver"], row["claim"], row["why"]) == (7, "a", None, "")
    [row] = rows_of(fence(1, claim="{}")).to_pylist()
    assert (row["group_seq"], row["driver"], row["claim"], row["why"]) == (None, None, "{}", "")


@pytest.mark.parametrize(
    "change",
    [
        {"driver": None},
        {"driver": ""},
        {"group_seq": None},
        {"group_seq": 0},
        {"group_seq": -1},
        {"kind": "batch", "batch_id": 4},
    ],
    ids=str,
)
def test_half_a_number_is_damage(change: Mapping[str, Any]) -> None:
    [row] = rows_of(fence(1, group_seq=7, driver="a")).to_pylist()
    with pytest.raises(KeyrangeError, match="which driver wrote it") as raised:
        commits_of(sealed(pa.Table.from_pylist([row | change], SCHEMA), SAME), SOURCE)
    assert condition(raised) == "COMMITS_DAMAGED"


@pytest.mark.parametrize("change", [{"group_seq": 8}, {"driver": "b"}, {"claim": "{}"}], ids=str)
def test_rows_of_one_commit_say_the_same_of_its_fence(change: Mapping[str, Any]) -> None:
    states = batch(2).states
    rows = rows_of(fence(2, group_seq=7, driver="a", states=states)).to_pylist()
    assert len(rows) > 1
    rows[1] |= change
    with pytest.raises(KeyrangeError, match="two commits have the same number") as raised:
        commits_of(pa.Table.from_pylist(rows, SCHEMA), SOURCE)
    assert condition(raised) == "COMMITS_DAMAGED"
