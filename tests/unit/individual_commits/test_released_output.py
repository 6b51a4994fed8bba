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
from keyrange.individual_commits.transactional_output import (
    Release,
    SetBack,
    Span,
    is_released,
    left_of,
)
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import OFFSET_MAX, TopicPartition

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
        (30, 40, [Span("t", 0, 30, 40, 40)]),
        (49, 60, [Span("t", 0, 49, 60, 60)]),
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


def test_of_a_batch_itself_rows_of_timers_may_stand_behind_what_is_out_already() -> None:
    # It has read nothing, and timers have fired behind the last record.
    assert Release(3, {TP: (50, 50)}, {"t": "id"}, {}).spans(batch(50)) == [
        Span("t", 0, -1, 50, 50)
    ]


@pytest.mark.parametrize(
    ("behind", "span"),
    [
        # Somebody has set the partition back behind the batch: all from there on is made again.
        (3, Span("t", 0, 30, 40, 40)),
        # While it was worked on: its records of key ranges that stay where they are are not.
        (2, Span("t", 0, 30, OFFSET_MAX, 40)),
    ],
)
def test_what_fired_behind_where_a_partition_was_set_back_fires_again(
    behind: int, span: Span
) -> None:
    left = left_of([batch(50)], batch(50), {TP: 30}, [SetBack(behind, {TP: 40})])
    assert left == {3: (span,)}
    [after] = Release(5, {TP: (20, 60)}, {"t": "id"}, left).spans(batch(50))
    assert after == Span("t", 0, 30, min(span.high, 60), 40)
