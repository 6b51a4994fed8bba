"""The reader of splits where leaders change, and where a replica is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from brokers.scripted_broker import ID, Fetched, ScriptedCluster, World
from keyrange.errors import CorruptError, DataLossError, KeyrangeError, error
from keyrange.kafka.cluster_view import ClusterView, Leader, Topic
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching import data_loss
from keyrange.kafka.fetching.fetch import SplitReader
from keyrange.kafka.fetching.read_settings import ReadSettings
from keyrange.model.offset_splits import Split
from keyrange.model.offsets import TopicPartition
from keyrange.wire.chunk_decoder import DecodeSettings
from samples.strategies import Batch, Record, encode_batch

NOT_LEADER, FENCED, UNKNOWN_EPOCH = 6, 74, 75
SPLIT = Split(TopicPartition("t", 0), 0, 20, 1_000, leader_epoch=3)


def log(offset: int, epoch: int = 3) -> bytes:
    batch = Batch(offset, tuple(Record(n) for n in range(5)), leader_epoch=epoch)
    return encode_batch(batch)


def reader(
    world: World, fails: bool = True, timeout_ms: int = 10_000, **settings: Any
) -> SplitReader:
    """Its view is that of a task: who leads, and no epoch."""
    cluster: Any = ScriptedCluster(world, **settings)
    leaders = {number: Leader(1, -1) for number in range(4)}
    view = ClusterView("", world.brokers, {"t": Topic(ID, leaders)})
    return SplitReader(cluster, view, ReadSettings(DecodeSettings(), fails, timeout_ms))


def read_into(found: list[int], reader: SplitReader, *splits: Split) -> None:
    for batch in reader.read(splits):
        found += batch.column("offset").to_pylist()


def offsets(reader: SplitReader, *splits: Split) -> list[int]:
    found: list[int] = []
    read_into(found, reader, *splits)
    return found


class Ends:
    """Answers of OffsetForLeaderEpoch: until where the log of the leader is that of an epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: int) -> None:
        self.until = until
        self.asked: list[tuple[TopicPartition, int, int]] = []
        monkeypatch.setattr(data_loss, "epoch_ends", self)

    def __call__(
        self,
        cluster: Any,
        view: ClusterView,
        epochs: Mapping[TopicPartition, int],
        timeout_ms: float,
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += [(partition, at, view.epoch(partition)) for partition, at in epochs.items()]
        return {partition: (at, self.until) for partition, at in epochs.items()}


class Elections:
    """The leader in epoch 3 is broker 1, and the next epochs' are 2, 1, 2, ...: a new one at each
    of these offsets. Who is asked in another epoch than its own refuses."""

    def __init__(self, *at: int) -> None:
        self.at = list(at)
        self.world = World(self.answer, epoch=3)

    def answer(self, node: int, partition: int, offset: int) -> Fetched:
        world = self.world
        if self.at and offset >= self.at[0]:
            self.at.pop(0)
            world.epoch, world.leader = world.epoch + 1, 3 - world.leader
        told = world.epochs[len(world.asked) - 1]
        if told != world.epoch:
            return Fetched(error_code=FENCED if told < world.epoch else UNKNOWN_EPOCH)
        if node != world.leader:
            return Fetched(error_code=NOT_LEADER)
        return Fetched(log(offset, world.epoch))


def test_leaders_that_change_cost_a_request_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends(monkeypatch, until=20)
    elections = Elections(0, 5, 5, 10, 15)
    assert offsets(reader(elections.world), SPLIT) == list(range(20))
    assert elections.world.epochs[0] == 3, "the first fetch names the epoch of the plan"
    assert elections.world.epochs[-1] == elections.world.epoch == 8
    assert [epoch for _, epoch, _ in ends.asked] == [3] * len(ends.asked)


@pytest.mark.parametrize("epoch", [3, -1])
def test_a_log_that_was_cut_back_below_what_is_read_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, epoch: int
) -> None:
    """Rows of the old leader's log are never followed by rows of another."""
    Ends(monkeypatch, until=8)
    split = replace(SPLIT, leader_epoch=epoch)
    elections = Elections(10)
    elections.world.epoch = 3
    run = reader(elections.world)
    if epoch < 0:
        # Nothing is known of how the split was planned, and the first leader takes any epoch.
        elections.world.epochs = Unchecked(elections.world)
    found: list[int] = []
    with pytest.raises(DataLossError, match=r"LOG_TRUNCATED.*t-0 was cut back to 8 ") as failure:
        read_into(found, run, split)
    assert found == list(range(10))
    assert "was_leader_epoch=3, leader_epoch=4" in str(failure.value)
    assert all(offset <= 10 for _, _, offset in elections.world.asked)


class Unchecked(list[int]):
    """Epochs of fetches where -1 is any."""

    def __init__(self, world: World) -> None:
        self.world = world

    def append(self, epoch: int) -> None:
        super().append(self.world.epoch if epoch < 0 else epoch)


@pytest.mark.parametrize("until", [8, 0])
def test_what_is_lost_of_what_was_planned_is_found_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Another task of the batch has read the old log: the plan's end says that it differs. A leader
    that had none of it says that it ends at 0."""
    Ends(monkeypatch, until)
    elections = Elections(0)
    with pytest.raises(DataLossError, match=rf"was cut back to {until} while a batch up to 20 "):
        offsets(reader(elections.world), replace(SPLIT, from_offset=10))
    known = list(range(min(until, 5)))
    assert offsets(reader(elections.world), replace(SPLIT, until_offset=len(known))) == known


def test_with_losses_allowed_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next batch is planned from where the logs part."""
    ends = Ends(monkeypatch, until=8)
    assert offsets(reader(Elections(10).world, fails=False), SPLIT) == list(range(20))
    assert ends.asked == [(SPLIT.topic_partition, 3, 4)], "once for each change"


def test_a_new_leader_that_knows_nothing_of_the_epoch_is_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Ends(monkeypatch, until=-1)
    assert offsets(reader(Elections(10).world), SPLIT) == list(range(20))


def test_metadata_that_are_older_do_not_lead_back_to_a_deposed_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not know that it is none, and would serve its own log."""
    Ends(monkeypatch, until=20)
    closes = iter([True])

    def answer(node: int, partition: int, offset: int) -> Fetched:
        told, own = world.epochs[len(world.asked) - 1], {1: 3, 2: 4}[node]
        if told != own:
            return Fetched(error_code=FENCED if told < own else UNKNOWN_EPOCH)
        if offset == 10 and next(closes, False):
            raise ConnectionLost("closed")
        return Fetched(log(offset, own))

    views = iter([(1, 3)])

    def view() -> ClusterView:
        world.leader, world.epoch = next(views, (2, 4))
        return World.view(world)

    world = World(answer)
    monkeypatch.setattr(world, "view", view)
    run = reader(world)
    run._view = ClusterView("", world.brokers, {"t": Topic(ID, {0: Leader(2, -1)})})
    assert offsets(run, replace(SPLIT, leader_epoch=4)) == list(range(20))
    assert (1, 0, 10) in world.asked
    assert set(world.epochs) == {4}


def test_a_topic_that_goes_while_a_new_leader_is_asked_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elections = Elections(10)

    def gone(*_: Any) -> Any:
        elections.world.topic_exists = False
        raise error("UNKNOWN_TOPIC_OR_PARTITION", "gone")

    monkeypatch.setattr(data_loss, "epoch_ends", gone)
    with pytest.raises(DataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[10, 20\).*deleted"):
        offsets(reader(elections.world), SPLIT)


def damaged(offset: int) -> bytes:
    return log(offset)[:-1] + b"\xff"


def damaged_on(nodes: set[int], at: int = 5) -> World:
    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(damaged(offset) if node in nodes and offset == at else log(offset))

    return World(script, epoch=3)


def test_a_damaged_batch_is_read_from_another_replica_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = damaged_on({1})
    assert offsets(reader(world), SPLIT) == list(range(20))
    assert [(node, at) for node, _, at in world.asked] == [
        (1, 0),
        (1, 5),
        (2, 5),
        (1, 10),
        (1, 15),
    ]
    assert "offset=5" in caplog.text
    assert "came from the leader, and is read again from replica 2" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
def test_a_batch_that_is_damaged_everywhere_fails_with_its_offset(fails: bool) -> None:
    """Bytes that cannot be read are no records that are gone."""
    world = damaged_on({1, 2})
    found: list[int] = []
    with pytest.raises(CorruptError, match=r"CORRUPT_BATCH.*CRC32C.*offset=5\)"):
        read_into(found, reader(world, fails), SPLIT)
    assert found == list(range(5))
    assert [node for node, _, at in world.asked if at == 5] == [1, 2]


def nearby(replica: Callable[[int], bytes]) -> World:
    """A leader in another rack than the client, which names replica 2 as long as it is told the
    client's rack; `replica` has what the replica answers at an offset."""

    def script(node: int, partition: int, offset: int) -> Fetched:
        if node == 2:
            return Fetched(replica(offset))
        return Fetched(replica=2) if world.racks[-1] else Fetched(log(offset))

    world = World(script, epoch=3)
    return world


def down(_: int) -> bytes:
    raise ConnectionLost("no route")


def test_a_replica_nearby_that_cannot_be_reached_is_left_for_the_leader() -> None:
    """Told the rack again, the leader would name it again until the deadline."""
    world = nearby(down)
    assert offsets(reader(world, client_rack="b"), SPLIT) == list(range(20))
    assert [(node, at) for node, _, at in world.asked] == [
        (1, 0),
        (2, 0),
        (1, 0),
        (1, 5),
        (1, 10),
        (1, 15),
    ]


def test_a_replica_that_failed_is_not_waited_for_again_in_another_partition() -> None:
    world = nearby(down)
    other = replace(SPLIT, topic_partition=TopicPartition("t", 1))
    found = offsets(reader(world, client_rack="b"), SPLIT, other)
    assert sorted(found) == sorted([*range(20)] * 2)
    assert [node for node, _, _ in world.asked].count(2) <= 2


def test_a_replica_that_the_client_is_not_told_of_is_left_for_the_leader() -> None:
    """As where its listener has another name than the leader's."""
    world = nearby(log)
    del world.brokers[2]
    assert offsets(reader(world, client_rack="b"), SPLIT) == list(range(20))


def test_replicas_that_name_one_another_are_left_for_the_leader() -> None:
    """Only a leader names a replica: who followed each would ask for ever."""

    def script(node: int, partition: int, offset: int) -> Fetched:
        return Fetched(replica=3 - node) if world.racks[-1] else Fetched(log(offset))

    world = World(script, epoch=3)
    assert offsets(reader(world, client_rack="b"), SPLIT) == list(range(20))
    assert len(world.asked) < 10


def test_damage_of_a_replica_nearby_is_read_again_from_the_leader() -> None:
    """What comes behind it is read nearby again."""
    world = nearby(lambda offset: damaged(offset) if offset == 5 else log(offset))
    run = reader(world, client_rack="b")
    assert offsets(run, SPLIT) == list(range(20))
    assert [(node, at) for node, _, at in world.asked][:5] == [
        (1, 0),
        (2, 0),
        (2, 5),
        (1, 5),
        (1, 10),
    ]


def test_without_another_replica_the_way_here_is_tried_again() -> None:
    answers = iter([damaged(0)])
    world = World(lambda node, partition, offset: Fetched(next(answers, log(offset))), epoch=3)
    del world.brokers[2]
    assert offsets(reader(world), SPLIT) == list(range(20))


def test_a_replica_that_is_not_there_leaves_the_damage_to_be_told() -> None:
    def script(node: int, partition: int, offset: int) -> Fetched:
        if node == 2:
            raise ConnectionLost("down")
        return Fetched(damaged(offset))

    with pytest.raises(KeyrangeError, match=r"CORRUPT_BATCH.*offset=0\)"):
        offsets(reader(World(script, epoch=3)), SPLIT)


def test_a_new_leader_is_asked_once_of_all_pieces_of_a_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers that share chunks have a cursor for each of them."""
    ends = Ends(monkeypatch, until=20)
    pieces = [replace(SPLIT, from_offset=at, until_offset=at + 5) for at in (0, 5, 10, 15)]
    assert offsets(reader(Elections(0).world), *pieces) == list(range(20))
    assert ends.asked == [(SPLIT.topic_partition, 3, 4)]
