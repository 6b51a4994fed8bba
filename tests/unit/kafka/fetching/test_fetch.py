"""The reader of splits against scripted brokers: answers that are late, lost or odd."""

from __future__ import annotations

import time
from typing import Any

import pytest

from brokers.scripted_broker import Fetched, World
from brokers.split_reads import log, offsets, reader, small
from keyrange.errors import KeyrangeError
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition


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

    pieces = [Split(TopicPartition("t", 0), at, at + 5, 100) for at in range(0, 20, 5)]
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
