"""Records that are gone before a task has read them: a loss, or late, or not promised."""

from __future__ import annotations

import re

import pytest

from brokers.scripted_broker import Fetched, World
from brokers.split_reads import log, offsets, reader, small
from keyrange.errors import KeyrangeError
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import EARLIEST, LATEST, TopicPartition


@pytest.mark.parametrize("fails", [True, False])
def test_a_deleted_topic_is_data_loss(fails: bool) -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        if offset == 0:
            return Fetched(log(0))
        world.topic_exists = False
        return Fetched(error_code=100)

    world = World(script)
    batches = reader(world, fail_on_data_loss=fails).read([small(0)])
    if fails:
        with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[5, 10\).*deleted"):
            offsets(batches)
    else:
        assert offsets(batches) == [(0, n) for n in range(5)]


@pytest.mark.parametrize("gone", [7, 40])
@pytest.mark.parametrize("fails", [True, False])
def test_a_split_that_is_read_again_when_its_records_are_gone(
    fails: bool, gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As a task that is retried: the rows of the attempt before, or a loss that is named; with
    failOnDataLoss=false what is left, and never a row from outside the split."""

    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(error_code=1) if offset < world.earliest else Fetched(log(offset))

    world = World(script)
    again = reader(world, fail_on_data_loss=fails)
    before = offsets(again.read([small(0)]))
    assert before == [(0, n) for n in range(10)]
    assert offsets(again.read([small(0)])) == before
    world.earliest = gone
    named = rf"COULD_NOT_READ_OFFSET_RANGE.*\[0, 10\).*t-0.*holds \[{gone}, 1000\)"
    if fails:
        with pytest.raises(KeyrangeError, match=named):
            offsets(again.read([small(0)]))
    else:
        assert offsets(again.read([small(0)])) == before[gone:]
        assert re.search(named, caplog.text)


def test_records_that_are_late_are_not_taken_for_lost() -> None:
    """The leader knows them: that is a timeout under both settings of failOnDataLoss."""
    world = World(lambda node, partition, offset: Fetched(high_watermark=0), latest=10)
    with pytest.raises(KeyrangeError, match="REQUEST_TIMED_OUT"):
        offsets(reader(world, fail_on_data_loss=False, timeout_ms=300).read([small(0)]))


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_was_cut_back_is_data_loss(fails: bool) -> None:
    world = World(
        lambda node, partition, offset: Fetched(log(0), 5) if offset == 0 else Fetched(b"", 5),
        latest=5,
    )
    batches = reader(world, fail_on_data_loss=fails, timeout_ms=300).read([small(0)])
    if fails:
        with pytest.raises(KeyrangeError, match=r"\[5, 10\).*the log ends at 5"):
            offsets(batches)
    else:
        assert offsets(batches) == [(0, n) for n in range(5)]


def retention(world: World, moves: dict[int, int]) -> None:
    """When an offset is asked for, the log begins where `moves` says from then on."""

    def script(node: int, partition: int, offset: int) -> Fetched:
        world.earliest = moves.pop(offset, world.earliest)
        if offset < world.earliest:
            return Fetched(error_code=1)
        return Fetched(log(offset))

    world.script = script


@pytest.mark.parametrize("from_offset", [0, 15])
def test_a_log_that_begins_behind_all_that_is_to_be_read_is_a_loss(from_offset: int) -> None:
    """Whether it was so from the start, or became so while it was read."""
    split = Split(TopicPartition("t", 0), from_offset, 30, 1_000)
    for at in (from_offset, from_offset + 5):
        world = World(lambda *_: Fetched())
        retention(world, {at: 500})
        with pytest.raises(KeyrangeError, match=rf"\[{at}, 30\).*holds \[500, 1000\)"):
            offsets(reader(world).read([split]))
        retention(world := World(lambda *_: Fetched()), {at: 500})
        found = offsets(reader(world, fail_on_data_loss=False).read([split]))
        assert found == [(0, n) for n in range(from_offset, at)]


@pytest.mark.parametrize(("first", "expected"), [(3, range(3, 20)), (500, range(0))])
def test_a_read_from_the_earliest_offset_begins_where_the_log_does_by_then(
    first: int, expected: range
) -> None:
    """Retention that goes on between the question and the first fetch takes nothing that was
    promised."""
    world = World(lambda *_: Fetched(), latest=20)
    retention(world, {0: first})
    found = offsets(reader(world).read([Split(TopicPartition("t", 0), EARLIEST, 20, 1_000)]))
    assert found == [(0, n) for n in expected]
    retention(world := World(lambda *_: Fetched(), latest=20), {0: first})
    with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[0, 20\)"):
        offsets(reader(world).read([Split(TopicPartition("t", 0), 0, LATEST, 1_000)]))


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_ends_before_a_read_up_to_its_end_begins_is_named(fails: bool) -> None:
    """As of a DataFrame that is used again when its topic was created anew, with fewer records; as
    with the JVM connector whatever failOnDataLoss says."""
    world = World(lambda *_: Fetched(log(10)), latest=20)
    read = reader(world, fail_on_data_loss=fails)
    split = Split(TopicPartition("t", 0), 15, LATEST, 1_000)
    world.latest = 15
    assert offsets(read.read([split])) == []
    world.latest = 10
    with pytest.raises(KeyrangeError, match=r"start offset 15 is greater than .* end offset 10"):
        offsets(read.read([split]))


def test_a_read_of_all_that_there_is_goes_on_with_a_topic_that_was_created_anew() -> None:
    """As of a DataFrame from earliest to latest that is used again: the leader tells of the new
    topic's bounds by its name. A read of something else is of the topic that it was planned on."""
    at = TopicPartition("t", 0)
    world = World(lambda *_: Fetched(log(0)), latest=20)
    read = reader(world)
    world.topic_id, world.latest = "0" * 31 + "2", 5
    assert offsets(read.read([Split(at, EARLIEST, LATEST, 1_000)])) == [(0, n) for n in range(5)]
    for first, last in ((0, LATEST), (EARLIEST, 5)):
        world.topic_id = world.topic_id[:-1] + chr(ord(world.topic_id[-1]) + 1)
        with pytest.raises(KeyrangeError, match="the topic was recreated"):
            offsets(read.read([Split(at, first, last, 1_000)]))


def test_what_goes_once_a_read_from_the_earliest_offset_has_begun_is_a_loss() -> None:
    world = World(lambda *_: Fetched())
    retention(world, {10: 12})
    with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[10, 20\)"):
        offsets(reader(world).read([Split(TopicPartition("t", 0), EARLIEST, 20, 1_000)]))
