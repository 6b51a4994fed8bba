"""Group offsets, ends of epochs, topics by pattern and the lag of a stream, with real brokers."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from pyspark.sql import SparkSession

from brokers.old_brokers import OldBroker
from brokers.real_broker import Record, Topics, client_config, wait_until
from keyrange import ProgressListener
from keyrange.embedded.broker import EmbeddedBroker, EmbeddedCluster
from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.groups import commit_group_offsets, committed_offsets, epoch_ends
from keyrange.kafka.model import offset_mirror_timing
from keyrange.kafka.offset_mirror import GroupMirror, new_mark
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.query_progress import QueryProgress
from spark.sources import Collected, client, run_available_now, stream

# A coordinator takes a while to load when its topic has just been made.
PATIENCE_MS = 20_000


@pytest.fixture
def cluster(topics: Topics) -> Iterator[Cluster]:
    made = Cluster(client(topics.cluster))
    yield made
    made.close()


@contextmanager
def member(cluster: EmbeddedCluster, group_id: str, topic: str) -> Iterator[KafkaConsumer]:
    """A live member of a group, with partitions assigned."""
    config = client_config(cluster) | {"enable_auto_commit": False}
    with KafkaConsumer(topic, group_id=group_id, **config) as consumer:

        def assigned() -> bool:
            consumer.poll(timeout_ms=1_000)
            return bool(consumer.assignment())

        wait_until(assigned, timeout_s=120)
        yield consumer


def group_offsets(*given: Any, **named: Any) -> dict[TopicPartition, int]:
    return {place: at for place, (at, _) in committed_offsets(*given, **named).items()}


def committed(cluster: EmbeddedCluster, group_id: str, place: TopicPartition) -> tuple[int, int]:
    """(offset, leader epoch) of a group, as kafka-python's consumer reads them."""
    config = client_config(cluster) | {"enable_auto_commit": False}
    with KafkaConsumer(group_id=group_id, **config) as consumer:
        found = consumer.committed(KafkaPartition(*place), metadata=True)
        return found.offset, found.leader_epoch


def check_groups(topics: Topics, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The way of a group: unknown, committed to, with a member, without it again."""
    topic = topics.create_topic("groups", 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert group_offsets(cluster, topic, [first, second], PATIENCE_MS) == {}
    commit_group_offsets(cluster, topic, {first: 7}, {first: 0}, PATIENCE_MS)
    assert committed(topics.cluster, topic, first) == (7, 0)
    assert group_offsets(cluster, topic, [first, second]) == {first: 7}

    mirror = GroupMirror(cluster, topic, PATIENCE_MS)
    with member(topics.cluster, topic, topic), caplog.at_level(logging.WARNING, "keyrange"):
        for step in range(3):
            mirror.mirror({first: 8 + step}, {}, step * 60_000)
        with pytest.raises(KeyrangeError) as refusal:
            commit_group_offsets(cluster, topic, {first: 9}, {})
    said = [record.getMessage() for record in caplog.records if record.name.startswith("keyrange")]
    assert len(said) == 1
    assert f"group '{topic}' refuses offsets with UNKNOWN_MEMBER_ID; it has members" in said[0]
    assert said[0].endswith(str(refusal.value))
    assert refusal.value.condition.name == "GROUP_OFFSETS_REFUSED"
    assert (mirror.metrics()["refused"], mirror.metrics()["committed"]) == (3, 0)
    assert group_offsets(cluster, topic, [first]) == {first: 7}

    mirror.mirror({first: 11, second: 3}, {first: 0}, 240_000)
    assert mirror.metrics() == {"committed": 1, "refused": 3, "failed": 0, "lastError": ""}
    assert group_offsets(cluster, topic, [second, first]) == {first: 11, second: 3}


def test_two_queries_with_one_group_are_told(
    topics: Topics,
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the one that has committed since; a run that begins behind another one of none."""
    topic = topics.create_topic("shared")
    place = TopicPartition(topic, 0)
    monkeypatch.setattr(offset_mirror_timing, "LOOK_MS", 0)
    earlier, first, second = (
        GroupMirror(cluster, topic, PATIENCE_MS, new_mark()) for _ in range(3)
    )
    # What connecting says, which the process' first user of the client hears, is of no interest.
    caplog.clear()
    with caplog.at_level(logging.WARNING, "keyrange"):
        for at, mirror in enumerate((earlier, first, first)):
            mirror.mirror({place: at}, {}, at)
        assert caplog.messages == []
        for at, mirror in enumerate((second, first, second), 3):
            mirror.mirror({place: at}, {}, at)
    assert ["GROUP_OFFSETS_SHARED" in said for said in caplog.messages] == [True, True]
    assert f"the offset of {place} in group '{topic}'" in caplog.messages[0]
    assert group_offsets(cluster, topic, [place]) == {place: 5}


def test_a_group_of_the_broker(
    topics: Topics, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    check_groups(topics, cluster, caplog)


def test_a_group_of_the_oldest_broker(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka 2.3: older forms of the same messages; and no ids by which topics would be known."""
    with OldBroker() as broker:
        topics, cluster = Topics(broker), Cluster(client(broker))
        check_groups(topics, cluster, caplog)
        topic = topics.create_topic("epochs")
        topics.produce(topic, [b"x"] * 4)
        place = TopicPartition(topic, 0)
        view = cluster.describe_matching(lambda name: name == topic)
        assert epoch_ends(cluster, view, {place: 0}) == {place: (0, 4)}
        assert "__consumer_offsets" not in cluster.describe_matching(lambda _: True).topics
        cluster.close()
        topics.close()


def test_a_deleted_topic_is_named_and_holds_up_no_other(
    topics: Topics, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create_topic("half")
    here, gone = TopicPartition(topic, 0), TopicPartition(topics.create_topic("gone"), 0)
    topics.delete_topic(gone.topic)
    commit_group_offsets(cluster, topic, {here: 0}, {}, PATIENCE_MS)
    mirror = GroupMirror(cluster, topic, PATIENCE_MS)
    with caplog.at_level(logging.WARNING, "keyrange"):
        for step in range(1, 4):
            mirror.mirror({here: step, gone: 5}, {}, step)
            assert group_offsets(cluster, topic, [here, gone]) == {here: step}
    assert [text for text in caplog.messages if topic in text] == [
        f"offsets of group '{topic}' are left out: Kafka knows no topic {gone.topic}"
    ]
    assert (mirror.metrics()["committed"], mirror.metrics()["failed"]) == (3, 1)


def test_ends_of_epochs_and_a_group_over_a_restart() -> None:
    """A restart begins a new epoch; one that is not there yet is unknown. Connections are lost."""
    with EmbeddedBroker() as broker:
        topics, cluster = Topics(broker), Cluster(client(broker))
        topic = topics.create_topic("epochs", 2)
        place, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
        topics.produce(topic, [Record(b"x", None, 0)] * 10)
        before = cluster.describe([topic]).epoch(place)
        commit_group_offsets(cluster, topic, {place: 10}, {}, PATIENCE_MS)
        broker.stop()
        broker.start()
        topics.produce(topic, [Record(b"y", None, 0)] * 5)
        commit_group_offsets(cluster, topic, {place: 15}, {}, PATIENCE_MS)
        view = cluster.describe([topic])
        after = view.epoch(place)
        assert epoch_ends(cluster, view, {place: before}) == {place: (before, 10)}
        assert epoch_ends(cluster, view, {place: after, empty: after + 9}) == {
            place: (after, 15),
            empty: (-1, -1),
        }
        assert group_offsets(cluster, topic, [place]) == {place: 15}
        cluster.close()
        topics.close()

    assert after > before


def test_a_silent_broker_holds_the_query_up_for_a_moment_only() -> None:
    """A broker that is stopped accepts connections and says nothing. Who waits longer than the
    mirror may, as requests do for 30 s, finds it awake again and commits."""
    with EmbeddedBroker() as broker:
        topics, cluster = Topics(broker), Cluster(client(broker))
        place = TopicPartition(topics.create_topic("silent"), 0)
        mirror = GroupMirror(cluster, "silent", 500)
        commit_group_offsets(cluster, "silent", {place: 0}, {}, PATIENCE_MS)
        waker = threading.Timer(10, os.kill, (broker.pid, signal.SIGCONT))
        os.kill(broker.pid, signal.SIGSTOP)
        # On a busy machine its threads go on for a while.
        stopped = psutil.Process(broker.pid)
        wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED)
        waker.start()
        try:
            mirror.mirror({place: 1}, {}, 0)
        finally:
            waker.cancel()
            os.kill(broker.pid, signal.SIGCONT)
        counts = mirror.metrics()
        mirror = GroupMirror(cluster, "silent", PATIENCE_MS)
        mirror.mirror({place: 2}, {}, 0)
        assert group_offsets(cluster, "silent", [place]) == {place: 2}
        cluster.close()
        topics.close()

    assert (counts["committed"], counts["failed"]) == (0, 1)


def test_topics_by_their_names(topics: Topics, cluster: Cluster) -> None:
    """All that match, with their leaders; never Kafka's own; no match is no error."""
    orders = topics.create_topic("orders", 3)
    others = topics.create_topic("others")
    commit_group_offsets(cluster, "any", {TopicPartition(others, 0): 0}, {}, PATIENCE_MS)

    view = cluster.describe_matching(lambda name: name.startswith("orders-"))
    assert orders in view.topics
    assert others not in view.topics
    assert view == cluster.describe(view.topics)
    everything = cluster.describe_matching(lambda _: True)
    assert {orders, others} <= everything.topics.keys()
    assert "__consumer_offsets" in topics.admin.list_topics()
    assert "__consumer_offsets" not in everything.topics
    assert cluster.describe_matching(lambda _: False).topics == {}


def test_lag_of_a_limited_stream_goes_down_to_nothing(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """20 and 6 records, five or so a batch: what is left after each is what the listener tells."""
    topic = topics.create_topic("lag", 2)
    topics.produce(topic, [Record(b"x", None, 0)] * 20 + [Record(b"x", None, 1)] * 6)
    reports: list[QueryProgress] = []
    listener = ProgressListener(report=reports.append)
    spark.streams.addListener(listener)
    sink = Collected()
    try:
        frame = stream(spark, topics, topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
        query = run_available_now(frame, tmp_path, sink)
        wait_until(lambda: any(each.batch_id == max(sink.batches) for each in reports))
    finally:
        spark.streams.removeListener(listener)

    read, expected = 0, []
    for batch_id in sorted(sink.batches):
        read += len(sink.batches[batch_id][-1])
        expected.append((batch_id, 26 - read))
    told = {each.batch_id: each for each in reports if each.query_id == str(query.id)}
    lags = {batch_id: each.sources[0].lag for batch_id, each in sorted(told.items())}
    totals = [(batch_id, lag.total_offsets) for batch_id, lag in lags.items() if lag]
    assert totals == expected
    assert len(expected) > 3
    assert totals[-1][1] == 0
    assert all(
        lag and lag.min_offsets <= lag.avg_offsets <= lag.max_offsets for lag in lags.values()
    )
