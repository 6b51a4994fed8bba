"""What a fence says stands in columns of its own; version 2 of the table had it in `why`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from commit_contract import SOURCE, batch, condition, fence
from delta_commits import golden_rows, table_at
from keyrange.consumer.commit_log import CommitLog
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitSettings
from keyrange.individual_commits.model.range_claims import Claim, Claimed, read_claim, source_of
from keyrange.individual_commits.model.range_handovers import claim_of
from keyrange.individual_commits.table.commit_schema import SCHEMA, commits_of, rows_of
from keyrange.individual_commits.table.commit_table import LAYOUT
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import HASH_MAX, KeyRange
from keyrange.storage.delta_rs import DeltaRsStore
from keyrange.storage.table_store import Transaction

FLIGHTS = TopicPartition("flights", 0)
LOWER, UPPER = KeyRange(0, 2**62), KeyRange(2**62, HASH_MAX + 1)
A, B = source_of("orders", "a"), source_of("orders", "b")


def claim(slot: str, epoch: int, span: KeyRange) -> Claim:
    return Claim(slot, epoch, {FLIGHTS: (Claimed(span, epoch),)}, {FLIGHTS: 7})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table as version 2 left it."""
    columns = [each for each in SCHEMA if each.name not in ("group_seq", "driver", "claim")]
    layout = replace(LAYOUT, version=2, schema=pa.schema(columns), added=("leader_epoch",))
    store = DeltaRsStore(str(tmp_path / "commits"), layout, {})
    for row in golden_rows(2):
        source, seq = row["source_id"], row["commit_seq"]
        mark = Transaction(f"keyrange/{source}/commits", seq, seq - 1 or None)
        store.write(pa.Table.from_pylist([row], layout.schema), [mark], {})
    return tmp_path / "commits"


def commit_log(path: Path, slot: str) -> CommitLog:
    def begin(_: object, __: bool) -> dict[TopicPartition, int]:
        raise AssertionError("the group has begun")

    return CommitLog(DeltaRsStore(str(path), LAYOUT, {}), "orders", slot, CommitSettings(), begin)


def test_claims_of_version_2_are_read_and_claimed_on(path: Path) -> None:
    assert commit_log(path, "a").claims() == {A: claim("a", 2, LOWER), B: claim("b", 1, UPPER)}
    first, second = table_at(path, A).history()
    assert claim_of(first) == claim("a", 1, LOWER)
    assert claim_of(second) == claim("a", 2, LOWER)
    assert (first.who, first.why) == ("a", "")

    taken = commit_log(path, "b").take({FLIGHTS: [LOWER]}, {"flights": "t-1"})

    assert [piece.scanned for piece in taken.pieces[FLIGHTS]] == [40]
    claims = commit_log(path, "a").claims()
    assert claims[A].holds_nothing
    assert claims[B].held(FLIGHTS) == [LOWER]
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    last = max((row for row in rows if row["source_id"] == B), key=lambda row: row["commit_seq"])
    assert (read_claim(last["claim"]), last["why"]) == (claims[B], "")


def test_drivers_of_version_2_are_read_and_numbered_on(path: Path) -> None:
    table = table_at(path, "9a")
    assert [(each.group_seq, each.driver, each.why) for each in table.history()] == [
        (1, "9a", ""),
        (2, "1b", ""),
    ]
    found = sorted(table.fences("flights"), key=lambda each: each.seq)
    assert [(each.group_seq, each.driver) for each in found] == [(1, "9a"), (2, "1b")]
    numbered = fence(3, "run-3", "9a", group_seq=3, driver="9a")
    table.append(numbered)
    assert list(table_at(path, "9a").history(3)) == [numbered]


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
        commits_of(pa.Table.from_pylist([row | change], SCHEMA), SOURCE)
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
