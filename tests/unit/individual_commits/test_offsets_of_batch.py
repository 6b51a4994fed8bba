"""The text of a batch: where logs were cut back, and how far output was released."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.individual_commits.model.commit import (
    Commit,
    CommitKind,
    read_offsets_of_batch,
    write_offsets_of_batch,
)
from keyrange.model.offsets import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "commit-offsets-v1.json"
OFFSETS = {
    "cut_back": {TopicPartition("orders", 0): 988, TopicPartition("orders", 12): 0},
    "released": {TopicPartition("orders", 3): 1_041},
}


def written(**said: dict[TopicPartition, int]) -> str:
    return write_offsets_of_batch(Commit(1, CommitKind.BATCH, "g", "s", "q", "r", 0, 0, **said))


def test_a_text_of_version_1_is_read_and_written() -> None:
    text = GOLDEN.read_text().strip()
    assert read_offsets_of_batch(text) == OFFSETS
    assert written(**OFFSETS) == text


@pytest.mark.parametrize("name", [*OFFSETS])
def test_one_of_both(name: str) -> None:
    one = {name: OFFSETS[name]}
    assert read_offsets_of_batch(written(**one)) == one


def test_nothing_is_no_text_and_another_text_says_nothing() -> None:
    assert written() == ""
    for text in ("", "bad prices", '{"driver":"s","v":1}'):
        assert read_offsets_of_batch(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"cutBack":',
        '{"cutBack":{},"v":2}',
        '{"cutBack":{},"more":{},"v":1}',
        '{"cutBack":[],"v":1}',
        '{"cutBack":{"t":[1]},"v":1}',
        '{"cutBack":{"t":{"x":1}},"v":1}',
        '{"cutBack":{"t":{"0":-1}},"v":1}',
        '{"cutBack":{"t":{"0":true}},"v":1}',
        '{"released":{"t":{"0":"1"}},"v":1}',
        '{"cutBack":' + "[" * 100_000,
    ],
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_offsets_of_batch(text)
