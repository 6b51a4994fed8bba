"""The text of a batch that says where logs were cut back."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyrange.individual_commits.model.commit import read_cuts, write_cuts
from keyrange.model.offsets import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "commit-cuts-v1.json"
CUTS = {TopicPartition("orders", 0): 988, TopicPartition("orders", 12): 0}


def test_a_text_of_version_1_is_read_and_written() -> None:
    text = GOLDEN.read_text().strip()
    assert read_cuts(text) == CUTS
    assert write_cuts(CUTS) == text


def test_nothing_is_no_text_and_another_text_says_nothing() -> None:
    assert write_cuts({}) == ""
    assert read_cuts("") == read_cuts("bad prices") == read_cuts('{"driver":"s","v":1}') == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"cutBack":',
        '{"cutBack":{},"v":2}',
        '{"cutBack":[],"v":1}',
        '{"cutBack":{"t":[1]},"v":1}',
        '{"cutBack":{"t":{"x":1}},"v":1}',
        '{"cutBack":{"t":{"0":-1}},"v":1}',
        '{"cutBack":{"t":{"0":true}},"v":1}',
        '{"cutBack":{"t":{"0":"1"}},"v":1}',
        '{"cutBack":' + "[" * 100_000,
    ],
)
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_cuts(text)
