"""Partitions as the keys of JSON: what is written is read, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.model.offsets import PARTITION_MAX, TopicPartition, by_partition, nested

PARTITIONS = st.builds(TopicPartition, st.text(max_size=3), st.integers(0, PARTITION_MAX))


@given(flat=st.dictionaries(PARTITIONS, st.integers()))
def test_what_is_written_is_read(flat: dict[TopicPartition, int]) -> None:
    assert dict(by_partition(json.loads(json.dumps(nested(flat))))) == flat


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"t": [1]},
        {"t": None},
        *({"t": {number: 1}} for number in ("", "x", "-1", "01", "1_0", " 1", "٣", str(2**31))),
        {"t": {"9" * 5_000: 1}},
    ],
)
def test_what_is_no_partition_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"it is not by|is no partition of|int"):
        list(by_partition(document))
