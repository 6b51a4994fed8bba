"""What became of the partitions: new, deleted, recreated, gone back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyrange.errors import DataLossError
from keyrange.model.checkpoint import Checkpoint
from keyrange.model.offsets import OffsetRange, TopicPartition, pending
from keyrange.model.subscription import Assign, Subscribe, SubscribePattern, Subscription
from keyrange.source.model.partition_changes import ABSENT_MAX, Findings, compare
from samples import strategies  # noqa: F401  registers the hypothesis profiles

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def conditions(findings: Findings) -> list[str]:
    assert all(isinstance(loss, DataLossError) for loss in findings.losses)
    return [loss.condition.name.removeprefix("KAFKA_DATA_LOSS.") for loss in findings.losses]


def test_nothing_changed() -> None:
    findings = compare(Checkpoint({A0: 5, A1: 0}), {A0: 9, A1: 0}, {}, ())
    assert findings == Findings({A0: 5, A1: 0}, frozenset(), (), {})


def test_a_new_partition_is_read_from_its_first_offset_on() -> None:
    findings = compare(Checkpoint({A0: 5}), {A0: 5, A1: 8}, {A1: 0}, ())
    assert findings == Findings({A0: 5, A1: 0}, frozenset(), (), {})


def test_a_new_partition_that_does_not_start_at_zero_is_a_loss() -> None:
    findings = compare(Checkpoint({A0: 5}), {A0: 5, A1: 8}, {A1: 3}, ())
    assert findings.start == {A0: 5, A1: 3}
    assert conditions(findings) == ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"]
    assert "partition a-1 starts from 3" in findings.losses[0].message


def test_deleted_partitions_are_one_loss_with_their_names() -> None:
    findings = compare(Checkpoint({B0: 1, A1: 2, A0: 5}), {A0: 5}, {}, ())
    assert findings.start == {A0: 5}
    assert conditions(findings) == ["PARTITIONS_DELETED"]
    assert findings.losses[0].message.endswith("may have been lost: partitions a-1, b-0 are gone")


@pytest.mark.parametrize(
    ("subscription", "said"),
    [
        (Subscribe(("a",)), "in topics b, c, which option 'subscribe' does not name any more"),
        (SubscribePattern("a+"), "in topics b, c, which option 'subscribePattern' does not name"),
        (Assign((A0, A1)), "in partitions b-0, c-0, c-1, which option 'assign' does not name"),
    ],
)
def test_what_the_options_do_not_name_any_more_is_not_said_to_be_gone(
    subscription: Subscription, said: str
) -> None:
    c0, c1 = TopicPartition("c", 0), TopicPartition("c", 1)
    start = Checkpoint({A0: 5, A1: 2, B0: 1, c0: 0, c1: 3}, topic_ids={"b": "id-b"})
    findings = compare(start, {A0: 5}, {}, (), subscription=subscription)
    assert conditions(findings) == ["PARTITIONS_DELETED", "PARTITIONS_DELETED"]
    unnamed, gone = (loss.message for loss in findings.losses)
    assert said in unnamed
    assert "lost" not in unnamed
    assert gone.endswith("partitions a-1 are gone")
    assert "name again what the options left out" in str(findings.losses[0])
    # Named again, it is read on.
    assert findings.absent == {B0: 1}


def test_a_pattern_that_spark_has_read_otherwise_is_named_with_its_remedy() -> None:
    """A checkpoint of Spark's own source, which looks for patterns anywhere in a name."""
    start, latest = Checkpoint({A0: 5, TopicPartition("eu.a", 0): 1}), {A0: 5}
    for by_default in (True, False):
        pattern = SubscribePattern("a", by_default=by_default)
        [loss] = compare(start, latest, {}, (), subscription=pattern).losses
        assert "in topics eu.a, which" in loss.message
        assert ("set subscribePatternMatch=search" in loss.message) == by_default


def test_a_group_of_the_users_own_is_named_with_deleted_partitions() -> None:
    findings = compare(Checkpoint({A0: 5, B0: 1}), {A0: 5}, {}, (), group_id="mine")
    assert conditions(findings) == ["PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"]
    assert "kafka.group.id is set to mine" in findings.losses[0].message


IDS = {"a": "id-a", "b": "id-b"}


def test_where_a_partition_stood_that_is_gone_is_kept_if_its_topic_has_an_id() -> None:
    start = Checkpoint({A0: 5, A1: 2, B0: 1}, topic_ids={"b": "id-b"})
    findings = compare(start, {A0: 5}, {}, ())
    assert findings.absent == {B0: 1}
    assert conditions(findings) == ["PARTITIONS_DELETED"]


def test_what_is_absent_was_told_of_and_is_no_loss_again() -> None:
    findings = compare(Checkpoint({A0: 5}, topic_ids=IDS, absent={B0: 1}), {A0: 9}, {}, ())
    assert (findings.absent, findings.losses, findings.back) == ({B0: 1}, (), ())


def test_what_is_back_goes_on_where_it_stood() -> None:
    start = Checkpoint({A0: 5}, topic_ids=IDS, absent={B0: 3, A1: 4})
    findings = compare(start, {A0: 5, A1: 4, B0: 9}, {}, ())
    assert findings == Findings({A0: 5, A1: 4, B0: 3}, frozenset(), (), {}, (A1, B0))


def test_what_is_back_is_held_to_where_it_stood() -> None:
    start = Checkpoint({}, topic_ids=IDS, absent={A0: 5, B0: 8})
    findings = compare(start, {A0: 4, B0: 20}, {}, (), truncated={B0: 6})
    assert conditions(findings) == ["PARTITION_OFFSET_CHANGED", "LOG_TRUNCATED"]
    assert findings.start == {A0: 4, B0: 6}
    assert (findings.restarted, findings.back) == ({A0, B0}, ())


def test_what_is_back_as_another_topic_is_new() -> None:
    """That the one before it went was told when it did."""
    start = Checkpoint({A0: 5}, topic_ids=IDS, absent={B0: 3, TopicPartition("b", 1): 2})
    findings = compare(start, {A0: 5, B0: 9}, {B0: 0}, ["b"])
    assert findings == Findings({A0: 5, B0: 0}, frozenset(), (), {})
    findings = compare(start, {A0: 5, B0: 9}, {B0: 7}, ["b"])
    assert conditions(findings) == ["ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"]


def test_no_more_is_kept_than_a_bound_of_what_went_long_ago() -> None:
    """What goes now is kept, however much it is."""
    absent = {TopicPartition("b", n): n for n in reversed(range(ABSENT_MAX + 2))}
    now = {TopicPartition("a", n): n for n in range(3_000)}
    findings = compare(Checkpoint({**now, A0: 0}, topic_ids=IDS, absent=absent), {A0: 0}, {}, ())
    assert findings.forgotten == tuple(absent)[:2]
    assert list(findings.absent) == [*tuple(absent)[2:], *tuple(now)[1:]]


def test_a_log_that_was_cut_back_is_read_from_where_it_parts() -> None:
    """Also where it is longer again than the position."""
    start = Checkpoint({A0: 10, A1: 4}, leader_epochs={A0: 3, A1: 3})
    findings = compare(start, {A0: 30, A1: 4}, {}, (), truncated={A0: 7})
    assert findings.start == {A0: 7, A1: 4}
    assert findings.restarted == {A0}
    assert conditions(findings) == ["LOG_TRUNCATED"]
    assert "below the position 10" in findings.losses[0].message
    assert "same up to offset 7 (leader_epoch=3)" in findings.losses[0].message


def test_an_end_that_went_back_is_a_loss_and_the_new_start() -> None:
    findings = compare(Checkpoint({A0: 10}), {A0: 7}, {}, ())
    assert findings.start == {A0: 7}
    assert findings.restarted == {A0}
    assert conditions(findings) == ["PARTITION_OFFSET_CHANGED"]
    assert "changed from 10 to 7" in findings.losses[0].message


def test_a_recreated_topic_is_read_from_its_first_offset_on() -> None:
    """The JVM connector skips what is below the old position: here nothing is."""
    start = Checkpoint({A0: 10, B0: 1}, topic_ids={"a": "old"})
    findings = compare(start, {A0: 30, A1: 3, B0: 1}, {A0: 0, A1: 0}, ["a"])
    assert findings.start == {A0: 0, A1: 0, B0: 1}
    assert findings.restarted == {A0, A1}
    assert conditions(findings) == ["TOPIC_RECREATED"]
    assert "topic a was deleted and created anew (was=old)" in findings.losses[0].message


def test_a_topic_recreated_with_fewer_partitions_is_two_losses() -> None:
    findings = compare(Checkpoint({A0: 10, A1: 4}), {A0: 3}, {A0: 0}, ["a"])
    assert findings.start == {A0: 0}
    assert conditions(findings) == ["TOPIC_RECREATED", "PARTITIONS_DELETED"]


partitions = st.sampled_from([TopicPartition(topic, n) for topic in "ab" for n in range(3)])
positions = st.dictionaries(partitions, st.integers(0, 20))


@given(positions, positions, positions, st.sets(st.sampled_from("ab")))
def test_nothing_is_skipped_or_read_twice_unless_a_loss_is_reported(
    known: dict[TopicPartition, int],
    latest: dict[TopicPartition, int],
    firsts: dict[TopicPartition, int],
    recreated: set[str],
) -> None:
    findings = compare(Checkpoint(known), latest, firsts, recreated)
    assert findings.start.keys() == latest.keys()
    if not findings.losses:
        assert known.keys() <= latest.keys()
        assert not findings.restarted
        for partition, begin in findings.start.items():
            assert begin <= latest[partition]
            assert begin == known.get(partition, 0)
    for partition in findings.restarted:
        assert partition.topic in recreated or known[partition] > latest[partition]
    changed = {p for p in latest if p in known and findings.start[p] != known[p]}
    assert changed <= findings.restarted


@given(positions, positions)
def test_pending_ranges_are_those_with_an_offset_in_order(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> None:
    ranges = pending(start, end)
    assert list(ranges) == sorted(ranges)
    assert ranges == {
        p: OffsetRange(start[p], end[p]) for p in end if p in start and start[p] < end[p]
    }


def test_ranges_and_partitions_read_as_people_write_them() -> None:
    assert str(OffsetRange(3, 7)) == "[3, 7)"
    assert OffsetRange(3, 7).size == 4
    assert OffsetRange(7, 3).size == 0
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert sorted([TopicPartition("a", 10), TopicPartition("a", 9)])[0].partition == 9
