"""What a fence says stands in columns of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.commit_schema import (
    CLAIM_COLUMNS,
    SAME,
    SCHEMA,
    claims_of,
    commits_of,
    fence_bounds,
    rows_of,
)
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.individual_commits.table.row_checksum import sealed
from keyrange.storage.delta_store import DeltaStore
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


def bytes_of(column: str, path: Path) -> range:
    """Where a file with one group has the pages of a column."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    [chunk] = [
        each
        for each in map(group.column, range(group.num_columns))
        if each.path_in_schema == column
    ]
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    return range(begin, begin + chunk.total_compressed_size)


@pytest.mark.ordinary
def test_claims_of_which_a_bit_has_changed_are_damage(tmp_path: Path) -> None:
    """Others read some columns of them, for which the checksum of the rows says nothing."""
    made = fence(1, claim='{"ranges": [[0, 4611686018427387903]]}')

    def read() -> Mapping[str, Any]:
        store = DeltaStore(str(tmp_path), LAYOUT, {})
        assert store.refresh()
        return claims_of(store.read(fence_bounds(made.group), CLAIM_COLUMNS))

    DeltaStore(str(tmp_path), LAYOUT, {}).write(rows_of(made), (), {})
    [path] = tmp_path.glob("part-*")
    raw, found = path.read_bytes(), read()
    refused = set()
    for at in bytes_of("claim", path):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        try:
            assert read() == found
        except KeyrangeError as failure:
            refused.add(failure.condition.name)
    assert "COMMITS_DAMAGED" in refused
    assert refused <= {"COMMITS_DAMAGED", "COMMITS_UNREADABLE"}
