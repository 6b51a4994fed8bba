"""The reader of splits against scripted brokers: answers that are late, lost or odd."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.kafka.model.offsets import EARLIEST, LATEST
from keyrange.ranges.model.offset_splits import Split
from keyrange.wire.decode import DecodeSettings
from scripted_broker import Fetched, ScriptedCluster, World
from strategies import Batch, Record, encode_batch


def reader(
    world: World, fail_on_data_loss: bool = True, timeout_ms: int = 10_000, **settings: Any
) -> SplitReader:
    how = ReadSettings(DecodeSettings(), fail_on_data_loss, timeout_ms)
    cluster: Any = ScriptedCluster(world, **settings)
    view = world.view()
    # What a task knows is what the driver put into it.
    return SplitReader(cluster, ClusterView("", {1: view.brokers[1]}, view.topics), how)


def offsets(batches: Iterable[Any]) -> list[tuple[int, int]]:
    return [
        place
        for batch in batches
        for place in zip(
            batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True
        )
    ]


def log(offset: int, count: int = 5) -> bytes:
    return encode_batch(Batch(offset, tuple(Record(n) for n in range(count))))


def small(partition: int, until: int = 10) -> Split:
    return Split("t", partition, 0, until, 1_000)


def test_a_lost_connection_costs_every_split_on_it_one_more_request() -> None:
    """The answers that were under way are asked for again, and nothing is read twice."""
    lost = iter([True])

    def script(node: int, partition: int, offset: int) -> Fetched:
        if next(lost, False):
            raise ConnectionLost("reset")
        return Fetched(log(offset))

    world = World(script)
    found = offsets(reader(world).read([small(n) for n in range(4)]))

    assert sorted(found) == [(p, n) for p in range(4) for n in range(10)]
    assert len(world.asked) == 1 + 8


def test_pieces_of_one_partition_stay_in_order_where_one_is_asked_again() -> None:
    """A piece that overtook another would change the order of a key's records."""
    refused = iter([True, False, True])

    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(error_code=6) if next(refused, False) else Fetched(log(offset))

    pieces = [Split("t", 0, at, at + 5, 100) for at in range(0, 20, 5)]
    found = offsets(reader(World(script)).read([*pieces, small(1, until=5)]))

    assert [offset for partition, offset in found if partition == 0] == list(range(20))
    assert [offset for partition, offset in found if partition == 1] == list(range(5))


def test_a_connection_that_breaks_again_and_again_ends_by_the_deadline() -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        raise ConnectionLost("reset")

    began = time.monotonic()
    with pytest.raises(
        KeyrangeError, match=r"REQUEST_TIMED_OUT.*reset \(broker=broker-1:9092\).*topic=t"
    ):
        offsets(reader(World(script), timeout_ms=300).read([small(0), small(1)]))
    assert time.monotonic() - began < 60


def test_a_replica_that_the_task_does_not_know_is_looked_up() -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(replica=2) if node == 1 else Fetched(log(offset))

    world = World(script)
    found = offsets(reader(world, client_rack="b").read([small(0)]))

    assert found == [(0, n) for n in range(10)]
    assert [node for node, _, _ in world.asked] == [1, 1, 2, 2]


def test_a_replica_that_nobody_knows_ends_by_the_deadline() -> None:
    world = World(lambda node, partition, offset: Fetched(replica=7))
    with pytest.raises(KeyrangeError, match=r"REQUEST_TIMED_OUT.*replica 7"):
        offsets(reader(world, timeout_ms=300, client_rack="b").read([small(0)]))


def test_what_lies_above_the_high_watermark_is_not_handed_out_yet() -> None:
    """The broker notes the mark before it reads: what lies below it counts, whatever is behind."""
    marks = iter([7, 7, 9])
    world = World(
        lambda node, partition, offset: Fetched(log(offset) + log(offset + 5), next(marks, 1_000))
    )
    assert offsets(reader(world).read([small(0)])) == [(0, n) for n in range(10)]
    assert [offset for _, _, offset in world.asked] == [0, 5, 5, 5]

    world = World(lambda node, partition, offset: Fetched(log(offset), 2))
    with pytest.raises(KeyrangeError, match=r"REQUEST_TIMED_OUT.*up to 5.*up to 2.*offset=0"):
        offsets(reader(world, timeout_ms=300).read([small(0)]))


@pytest.mark.parametrize("records", [b"", log(5)], ids=["nothing", "records"])
def test_a_high_watermark_that_lags_is_waited_for(records: bytes) -> None:
    """A new leader has no high watermark of its own before its followers have fetched: for as long
    as the deadline allows it reports less than what was read from the leader before it."""
    lagging = iter([True] * 20)

    def script(node: int, partition: int, offset: int) -> Fetched:
        if offset == 5 and next(lagging, False):
            return Fetched(records, 4)
        return Fetched(log(offset))

    world = World(script)
    assert offsets(reader(world).read([small(0)])) == [(0, n) for n in range(10)]
    assert len(world.asked) == 1 + 20 + 1


def test_work_on_the_rows_is_not_waiting_for_the_broker() -> None:
    """A slow consumer may take longer than the timeout; the next failure is still tried again."""
    failing = iter([False, True, False])

    def script(node: int, partition: int, offset: int) -> Fetched:
        if next(failing, False):
            raise ConnectionLost("closed while idle")
        return Fetched(log(offset))

    batches = reader(World(script), timeout_ms=200).read([small(0)])
    found = offsets([next(batches)])
    time.sleep(0.4)
    assert found + offsets(batches) == [(0, n) for n in range(10)]


def test_a_throttled_client_waits_and_keeps_its_connection() -> None:
    answers = iter([Fetched(throttle_time_ms=30, empty=True)])
    world = World(lambda node, partition, offset: next(answers, Fetched(log(offset))))
    began = time.monotonic()
    assert len(offsets(reader(world).read([small(0)]))) == 10
    assert time.monotonic() - began >= 0.03
    assert len(world.asked) == 3


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


def test_a_reader_that_is_closed_early_closes_its_connection() -> None:
    """An answer that is under way would be taken for that of a later request."""
    world = World(lambda node, partition, offset: Fetched(log(offset)))
    split_reader = reader(world)
    batches = split_reader.read([small(0), small(1)])
    next(batches)
    cluster: Any = split_reader._cluster
    kept = cluster.connection("b1", 9092, ahead=True)
    assert kept.busy
    batches.close()
    assert not kept.open


def test_time_before_a_chunk_is_not_waiting_for_the_broker() -> None:
    """Who shares chunks may have waited long for another; the next failure is still tried again."""
    failing = iter([True])

    def script(node: int, partition: int, offset: int) -> Fetched:
        if next(failing, False):
            raise ConnectionLost("closed while idle")
        return Fetched(log(offset))

    split_reader = reader(World(script), timeout_ms=200)
    time.sleep(0.4)
    split = small(0)
    found = split_reader.next_chunk(Cursor(split, 0, split_reader.decoder(split)))
    assert found is not None
    assert (found[0].next_offset, found[1]) == (5, 0)


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
    split = Split("t", 0, from_offset, 30, 1_000)
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
    found = offsets(reader(world).read([Split("t", 0, EARLIEST, 20, 1_000)]))
    assert found == [(0, n) for n in expected]
    retention(world := World(lambda *_: Fetched(), latest=20), {0: first})
    with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[0, 20\)"):
        offsets(reader(world).read([Split("t", 0, 0, LATEST, 1_000)]))


def test_what_goes_once_a_read_from_the_earliest_offset_has_begun_is_a_loss() -> None:
    world = World(lambda *_: Fetched())
    retention(world, {10: 12})
    with pytest.raises(KeyrangeError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[10, 20\)"):
        offsets(reader(world).read([Split("t", 0, EARLIEST, 20, 1_000)]))
