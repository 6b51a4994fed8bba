"""What a program may acknowledge, and of which partitions it is."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from keyrange.consumer.records import ConsumerRecord, offsets_of
from keyrange.errors import KeyrangeError
from keyrange.model.offsets import TopicPartition

PLACES = [("a", 1, 7), ("b", 0, 7), ("a", 0, 3), ("a", 1, 2), ("b", 0, 7), ("a", 0, 4)]
WANTED = {("a", 0): [3, 4], ("a", 1): [2, 7], ("b", 0): [7]}


def batch(*places: tuple[str, int, int]) -> pa.RecordBatch:
    topics, numbers, offsets = zip(*places, strict=True)
    return pa.record_batch(
        {
            "topic": pa.array(topics),
            "partition": pa.array(numbers, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )


def record(topic: str, partition: int, offset: int) -> ConsumerRecord:
    return ConsumerRecord(topic, partition, offset, None, None, None, None, 0)


@pytest.mark.parametrize(
    "what",
    [
        batch(*PLACES),
        pa.Table.from_batches([batch(*PLACES[:2]), batch(*PLACES[2:])]),
        [batch(each) for each in PLACES],
        [pa.table(batch(*PLACES[:4])), batch(*PLACES[4:])],
        [record(*each) for each in PLACES],
        (record(*each) for each in PLACES),
    ],
    ids=["a batch", "a table", "batches", "a table and a batch", "records", "as they come"],
)
def test_offsets_are_those_of_each_partition(what: Any) -> None:
    found = {tuple(p): offsets.tolist() for p, offsets in offsets_of(what).items()}
    assert found == WANTED


def test_what_is_empty_acknowledges_nothing() -> None:
    assert not offsets_of(batch(*PLACES).slice(0, 0))
    assert not offsets_of([])


def test_offsets_that_are_given_are_of_one_partition() -> None:
    assert offsets_of(("a", 1), [5, 3, 5])[TopicPartition("a", 1)].tolist() == [3, 5]


@pytest.mark.parametrize(
    ("what", "offsets", "said"),
    [
        (("a", 1), None, "of a topic-partition offsets are to be given"),
        (TopicPartition("a", 1), None, "of a topic-partition offsets are to be given"),
        ("a", None, "neither a batch nor a record"),
        (7, None, "7 is neither a batch nor a record"),
        (batch(*PLACES).select(["topic", "offset"]), None, "no column partition"),
        ("a-1", [3], "'a-1' is no topic-partition"),
        (("a", 1), [2.5], "2.5 is no offset"),
    ],
)
def test_anything_else_is_refused(what: Any, offsets: Any, said: str) -> None:
    with pytest.raises(KeyrangeError, match=rf"\[INVALID_OFFSET\].*{said}"):
        offsets_of(what, offsets)
