"""Which key ranges a query owns: read, written, compared."""

from __future__ import annotations

import json

import pytest

from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.query_ranges import EVERY, first_change, owned, read_ownership, write_ownership

HALF = 2**62
LOW, HIGH = KeyRange(0, HALF), KeyRange(HALF, HASH_MAX + 1)
T0, T1, ALL = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", EVERY)


def test_partitions_and_topics_are_read() -> None:
    document = json.loads(f'{{"t": {{"0": [[0, {HALF - 1}]], "1": []}}, "u": [[5, 9]]}}')

    assert read_ownership(document) == {
        T0: (LOW,),
        T1: (SPACE,),
        TopicPartition("u", EVERY): (KeyRange(5, 10),),
    }


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "no|not a JSON object"),
        ({"t": 5}, "topic t has neither"),
        ({"t": {"x": []}}, "'x' is not a partition of topic t"),
        ({"t": {"-1": []}}, "'-1' is not a partition of topic t"),
        ({"t": {"0": [[5, 4]]}}, r"topic t: \[5, 4\] does not lie in"),
        ({"t": [[0, 9], [9, 12]]}, r"topic t: \[0, 9\] and \[9, 12\] overlap"),
        ({"t": [[0, True]]}, "two whole numbers"),
        ({"t": [[0, HASH_MAX + 1]]}, "does not lie in"),
    ],
)
def test_what_is_wrong_is_said(document: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_ownership(document)


@pytest.mark.parametrize("ownership", [{}, {T0: (LOW,)}, {ALL: (LOW,)}, {T0: (LOW,), T1: (HIGH,)}])
def test_what_is_written_is_read_again(ownership: dict[TopicPartition, tuple[KeyRange]]) -> None:
    assert read_ownership(write_ownership(ownership)) == ownership


def test_a_partition_goes_before_its_topic() -> None:
    ownership = {ALL: (LOW,), T1: (HIGH,)}

    assert owned(ownership, T0) == (LOW,)
    assert owned(ownership, T1) == (HIGH,)
    assert owned(ownership, TopicPartition("u", 0)) is None


def test_only_other_hashes_are_a_change() -> None:
    cut = (KeyRange(0, 7), KeyRange(7, HALF))

    assert first_change({T0: (LOW,)}, {ALL: cut}, [T0]) is None
    assert first_change({}, {T0: (LOW, HIGH)}, [T0]) is None
    assert first_change({T0: (LOW,)}, {T0: (LOW,), T1: (LOW,)}, [T0]) is None
    assert first_change({T0: (LOW,)}, {T0: (LOW,), T1: (LOW,)}, [T0, T1]) == T1
    assert first_change({T0: (LOW,)}, {T0: (HIGH,)}, [T0]) == T0
    assert first_change({T0: (LOW,)}, {}, [T0]) == T0
    assert first_change({}, {T0: (LOW,)}, [T0]) == T0
