"""From options to tasks: who reads what of which partition, and what is refused."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251  as Spark does with a task
from collections.abc import Mapping, Sequence

import pytest

from keyrange.errors import InvalidError
from keyrange.members.read_tasks import ReadTask
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, merge, split_evenly
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.source.planning import plan_read
from keyrange.source.tasks import TaskMaker
from queries.scripted import PATTERN, SERVERS, ScriptedCluster, planned, session

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
BY_KEY = {"splitBy": "keyRange"}
BY_OFFSET = {"splitBy": "offset"}


def plan(
    options: Mapping[str, str],
    records: Mapping[TopicPartition, int],
    places: Sequence[int] = (),
) -> list[ReadTask]:
    """The tasks for records of 100 bytes; `places` is where the keys of each sample lie."""
    cluster = ScriptedCluster(0, partitions=2)
    cluster.topics = {"t": "a" * 32, "u": "b" * 32}
    view = cluster.describe(["t", "u"])
    ranges = {partition: OffsetRange(10, 10 + count) for partition, count in records.items()}
    parsed = parse_options(SERVERS | {"subscribePattern": "t|u"} | options)
    sizes = dict.fromkeys(records, 100.0)
    maker = TaskMaker(view, view.topic_ids())
    return [maker.task(each) for each in plan_read(ranges, sizes, lambda _: places, parsed)]


def splits_of(tasks: Sequence[ReadTask]) -> list[Split]:
    return [split for task in tasks for split in task.splits]


def read_by(split: Split) -> list[KeyRange]:
    return merge(split.placement.ranges()) if split.placement else [SPACE]


def test_by_partition_nothing_is_shared() -> None:
    for keys in ({}, {"keys": '["a"]'}, {"accept.range.fetch": "false"}):
        tasks = plan({"bytesPerTask": "0", **keys}, {T0: 50, T1: 50, U0: 1})
        assert [len(task.splits) for task in tasks] == [1, 1, 1]
        assert all(split.placement is None and not split.shared for split in splits_of(tasks))


@pytest.mark.parametrize("split_by", ["keyRange", "offset"])
@pytest.mark.parametrize("accept", ["false", '{"u": false}', '{"u": false, "t": true}'])
def test_a_topic_that_keeps_its_order_is_not_split(split_by: str, accept: str) -> None:
    given = {"splitBy": split_by, "accept.range.fetch": accept}
    with pytest.raises(InvalidError) as caught:
        plan(given, {U0: 5})
    assert caught.value.condition.name == "RANGE_FETCH_NOT_ACCEPTED"
    assert "topic u in the order of its partitions" in caught.value.message
    assert f"splitBy={split_by} would not" in caught.value.message
    if accept != "false":
        assert plan(given, {T0: 5})


def test_with_partial_coverage_every_partition_is_named() -> None:
    given = BY_KEY | {"keyRanges": '{"t": {"0": [[0, 5]]}}', "keyRangesCoverage": "partial"}
    with pytest.raises(InvalidError) as caught:
        plan(given, {T0: 5, T1: 5})
    assert caught.value.condition.name == "KEY_RANGES_MISSING"
    assert "does not name partition t-1" in caught.value.message
    [task] = plan(given, {T0: 5})
    assert read_by(task.splits[0]) == [KeyRange(0, 6)]
    assert task.splits[0].shared == ""
    [task] = plan(BY_KEY | {"parallelism": "1", "keyRanges": '{"t": {"0": []}}'}, {T0: 5, T1: 5})
    assert [split.placement for split in task.splits] == [None, None]


def test_each_range_is_a_task_where_tasks_are_not_filled_up() -> None:
    given = BY_KEY | {"bytesPerTask": "0", "keyRangesPerPartition": "16", "parallelism": "2"}
    tasks = plan(given, {T0: 50, T1: 3})
    assert [len(task.splits) for task in tasks] == [1] * 32
    for partition, count in ((T0, 50), (T1, 3)):
        own = [split for split in splits_of(tasks) if split.topic_partition == partition]
        assert sorted(span for split in own for span in read_by(split)) == split_evenly(SPACE, 16)
        assert sorted(split.placement.reader for split in own) == list(range(16))
        assert {(split.from_offset, split.until_offset) for split in own} == {(10, 10 + count)}
        assert len({split.shared for split in own}) == 1


@pytest.mark.parametrize(
    ("given", "records", "count"),
    [
        ({"parallelism": "4"}, 1000, 4),
        ({"parallelism": "3"}, 1000, 3),
        ({"parallelism": "4", "minTasks": "8"}, 1000, 8),
        ({"parallelism": "4", "minPartitions": "6"}, 1000, 6),
        ({"parallelism": "4", "minTasks": "99"}, 1000, 16),
        ({"parallelism": "4"}, 2, 2),
        ({"parallelism": "1"}, 1000, 1),
    ],
)
def test_there_are_as_many_tasks_as_can_run(
    given: dict[str, str], records: int, count: int
) -> None:
    tasks = plan(BY_KEY | {"keyRangesPerPartition": "16"} | given, {T0: records})
    assert len(tasks) == count
    sizes = [sum(span.size for span in read_by(split)) for [split] in (t.splits for t in tasks)]
    assert sum(sizes) == SPACE.size
    assert max(sizes) - min(sizes) <= SPACE.size // 16 + 1


def test_without_a_number_of_tasks_it_is_the_cores_of_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cores, count in ((5, 5), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert len(plan(BY_KEY, {T0: 1000})) == len(plan(BY_OFFSET, {T0: 1000})) == count


def test_a_hot_partition_is_cut_and_the_others_stay_whole() -> None:
    splits = splits_of(plan(BY_KEY | {"parallelism": "4"}, {T0: 9000, T1: 50, U0: 50}))
    hot = [split for split in splits if split.topic_partition == T0]
    assert len(hot) == 4
    assert [split.placement for split in splits if split.topic_partition != T0] == [None, None]


def test_a_hot_key_leaves_the_other_cores_to_the_others() -> None:
    spans = split_evenly(SPACE, 16)
    places = [spans[3].from_hash] * 500 + [span.from_hash for span in spans]
    given = BY_KEY | {"parallelism": "4", "keyRangesPerPartition": "16"}
    tasks = plan(given, {T0: 9000}, places)
    assert read_by(tasks[0].splits[0]) == [spans[3]]
    assert len(tasks) == 4


def test_what_is_shared_has_a_name_of_its_plan_and_tells_nothing() -> None:
    given = BY_KEY | {"parallelism": "4", "keyRangesPerPartition": "4"}
    first, second = (
        {split.topic_partition: split.shared for split in splits_of(plan(given, {T0: 9, U0: 9}))}
        for _ in range(2)
    )
    assert len({*first.values(), *second.values()}) == 4
    assert all(len(name) == 20 and int(name, 16) for name in first.values())
    nothing = {"max.bytes.key.range.results": "0", "max.bytes.key.range.spill": "0"}
    tasks = plan(given | nothing, {T0: 9, U0: 9})
    assert [split.shared for split in splits_of(tasks)] == [""] * 4
    spill = given | {"max.bytes.key.range.results": "0"}
    assert all(split.shared for split in splits_of(plan(spill, {T0: 9, U0: 9})))


def test_pieces_by_offset_are_even_and_in_no_key_range() -> None:
    tasks = plan(BY_OFFSET | {"parallelism": "4"}, {T0: 60, T1: 20})
    held = [[(s.partition, s.from_offset, s.until_offset) for s in t.splits] for t in tasks]
    assert held == [[(0, 10, 30)], [(0, 30, 50)], [(0, 50, 70)], [(1, 10, 30)]]
    assert all(split.placement is None and not split.shared for split in splits_of(tasks))
    assert len(plan(BY_OFFSET | {"parallelism": "4"}, {T0: 3})) == 3
    assert len(plan(BY_OFFSET | {"parallelism": "4", "minTasks": "6"}, {T0: 60})) == 6


@pytest.mark.parametrize("given", [{}, BY_KEY, BY_OFFSET])
def test_nothing_to_read_is_no_task(given: dict[str, str]) -> None:
    assert plan(given, {}) == []


def test_a_task_travels_with_all_that_it_needs() -> None:
    given = BY_KEY | {"parallelism": "2", "keyRangesPerPartition": "4"}
    for task in plan(given, {T0: 40, U0: 40}):
        travelled = pickle.loads(pickle.dumps(task))
        assert vars(travelled) == vars(task)
        topics = {split.topic for split in task.splits}
        assert task.topic_ids.keys() == {topic for topic, *_ in task.leaders} == topics
        assert task.brokers == ((1, "b", 1),)


def test_queries_that_share_a_partition_by_explicit_ranges_read_all_of_it_once() -> None:
    owned: list[KeyRange] = []
    for low, high in ((0, 2**61), (2**61 + 1, 2**62), (2**62 + 1, HASH_MAX)):
        ranges = json.dumps({"t": [[low, high]]})
        run = session(
            ScriptedCluster(100),
            splitBy="keyRange",
            keyRanges=ranges,
            keyRangesCoverage="partial",
            startingOffsets="earliest",
        )
        [task] = run.plan(run.initial(), read_checkpoint(planned(run)))
        [split] = task.splits
        assert (split.from_offset, split.until_offset, split.shared) == (0, 100, "")
        owned += read_by(split)
    assert merge(owned) == [SPACE]
    assert sum(span.size for span in owned) == SPACE.size


def test_a_stream_refuses_to_split_a_topic_that_keeps_its_order() -> None:
    given = {"splitBy": "keyRange", "accept.range.fetch": "false", "startingOffsets": "earliest"}
    run = session(ScriptedCluster(100), PATTERN, **given)
    with pytest.raises(InvalidError, match=r"accept\.range\.fetch keeps topic t"):
        run.plan(run.initial(), read_checkpoint(planned(run)))


def test_all_tasks_of_a_batch_have_one_list_of_brokers() -> None:
    one, other = plan({"bytesPerTask": "0"}, {T0: 50, T1: 50})
    assert one.brokers
    assert one.brokers is other.brokers
