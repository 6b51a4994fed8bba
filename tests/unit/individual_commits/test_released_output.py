"""Which output of earlier batches waits, where rows above a pending record are held back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyrange.individual_commits.model.partition_progress import (
    KeyRangeState,
    PartitionState,
    PendingRecord,
)
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.individual_commits.model.verdict_manifest import Manifest
from keyrange.individual_commits.transactional_output import Release, Span, is_released
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition

TP = TopicPartition("t", 0)
PENDING = KeyRangeState(SPACE, 50, (PendingRecord(40, 7, 1, 500),))
STATES = columns_of({TP: PartitionState("id", 50, (PENDING,))})


def batch(end: int, topic_id: str = "id") -> Manifest:
    """One that ends at an offset, and has output."""
    return Manifest(3, files={"part-0": 10}, end=Checkpoint({TP: end}, {"t": topic_id}).to_json())


@pytest.mark.parametrize(("end", "is_out"), [(39, True), (40, True), (41, False), (50, False)])
def test_a_batch_is_out_up_to_the_first_pending_record(end: int, is_out: bool) -> None:
    assert is_released(batch(end), STATES) is is_out


def test_a_batch_without_output_and_one_of_another_topic_wait_for_nothing() -> None:
    assert is_released(replace(batch(50), files={}), STATES)
    assert is_released(batch(50, "another"), STATES)
    assert is_released(batch(50), columns_of({}))


@pytest.mark.parametrize(
    ("before", "after", "spans"),
    [
        (30, 40, [Span("t", 0, 30, 40)]),
        (49, 60, [Span("t", 0, 49, 60)]),
        (50, 60, []),
        (40, 40, []),
    ],
)
def test_only_a_batch_that_reaches_what_is_released_is_looked_at(
    before: int, after: int, spans: list[Span]
) -> None:
    release = Release(5, {TP: (before, after)}, {"t": "id"}, {})
    assert release.spans(batch(50)) == spans
    assert Release(5, {TP: (before, after)}, {"t": "another"}, {}).spans(batch(50)) == []
