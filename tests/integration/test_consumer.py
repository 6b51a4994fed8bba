"""`keyrange.Consumer` with ranges that it was given: what it hands out, commits and finds again."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pyarrow as pa
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from brokers.real_broker import Record, Topics, client_config, wait_until
from keyrange import Consumer, KeyRangeListener, TopicPartition
from keyrange.errors import InvalidError, KeyrangeError
from keyrange.model.key_ranges import HASH_MAX, SPACE, hash_of, split_evenly, write_ranges
from queries.consuming import GROUP, consumer_options

RECORDS, KEYS = 600, 40


@pytest.fixture
def topic(topics: Topics) -> str:
    """600 records of 40 keys; a value is a number."""
    made = topics.create_topic("consumer")
    topics.produce(made, [Record(b"%d" % i, b"key-%d" % (i % KEYS)) for i in range(RECORDS)])
    return made


@pytest.fixture
def options(topics: Topics, tmp_path: Path) -> dict[str, str]:
    return consumer_options(topics.cluster.bootstrap_servers, tmp_path / "commits")


def drained(consumer: Consumer, until: int = RECORDS) -> list[pa.RecordBatch]:
    """What a consumer hands out until there is nothing more."""
    batches: list[pa.RecordBatch] = []
    while found := consumer.poll(500):
        batches += found
    return batches


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def by_key(batches: list[pa.RecordBatch]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for batch in batches:
        for key, offset in zip(
            batch.column("key").to_pylist(), batch.column("offset").to_pylist(), strict=True
        ):
            found.setdefault(key, []).append(offset)
    return found


@pytest.mark.parametrize(
    "pieces",
    [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(16, marks=pytest.mark.slow)],
)
def test_consumers_share_a_partition_and_every_key_is_in_order(
    topic: str, options: dict[str, str], pieces: int
) -> None:
    partition = TopicPartition(topic, 0)
    seen: list[int] = []
    for number, span in enumerate(split_evenly(SPACE, pieces)):
        with Consumer(options | {"member.name": f"one-{number}"}) as consumer:
            consumer.assign({partition: [tuple(*write_ranges([span]))]})
            batches = drained(consumer)
            for key, found in by_key(batches).items():
                assert span.contains(hash_of(key))
                assert found == sorted(found)
            seen += offsets(batches)
    assert sorted(seen) == list(range(RECORDS))


def test_what_was_acknowledged_is_not_handed_out_again(topic: str, options: dict[str, str]) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(options) as consumer:
        consumer.assign({partition: []})
        records = [each for batch in drained(consumer) for each in offsets([batch])]
        assert consumer.acknowledge(partition, 2 * [each for each in records if each % 3]) == 400
        assert consumer.acknowledge(partition, [each for each in records if each % 3]) == 0
        assert consumer.commit() == {partition: 0}
    with Consumer(options) as consumer:
        consumer.assign({partition: []})
        batches = drained(consumer)
        assert offsets(batches) == list(range(0, RECORDS, 3))
        assert [consumer.acknowledge(batch) for batch in batches] == [200]
        assert consumer.commit() == {partition: RECORDS}


def test_records_that_come_later_are_read(
    topics: Topics, topic: str, options: dict[str, str]
) -> None:
    with Consumer(options) as consumer:
        consumer.assign({TopicPartition(topic, 0): []})
        assert len(offsets(drained(consumer))) == RECORDS
        topics.produce(topic, [Record(b"late", b"key-1")])
        [record] = consumer.poll_records(10_000)
        assert (record.offset, record.key, record.value) == (RECORDS, b"key-1", b"late")
        assert record.key_hash == hash_of(b"key-1")
        consumer.acknowledge(record)


def test_the_kafka_group_has_the_least_offset_of_all_ranges(
    topics: Topics, topic: str, options: dict[str, str]
) -> None:
    partition, half = TopicPartition(topic, 0), HASH_MAX // 2
    with KafkaConsumer(group_id=GROUP, **client_config(topics.cluster)) as kafka:
        key_hash = KafkaPartition(topic, 0)
        low, high = (Consumer(options | {"member.name": name}) for name in ("low", "high"))
        low.assign({partition: [(0, half)]})
        high.assign({partition: [(half + 1, HASH_MAX)]})
        for batch in drained(low):
            low.acknowledge(batch)
        low.close()
        first = min(offsets(found := drained(high)))
        assert kafka.committed(key_hash) == first
        for batch in found:
            high.acknowledge(batch)
        # Nobody has the first keys any more.
        high.close()
        assert kafka.committed(key_hash) == RECORDS


def test_it_commits_by_itself_with_many_ranges(topic: str, options: dict[str, str]) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(options | {"max.num.ranges.to.commit": "100"}) as consumer:
        consumer.assign({partition: []})
        drained(consumer)
        consumer.acknowledge(partition, range(300))
        consumer.acknowledge(partition, range(301, 498, 2))
        assert consumer._holding.commit_log.committed([partition], {}) == {partition: 0}
        consumer.acknowledge(partition, [499])
        assert consumer._holding.commit_log.committed([partition], {}) == {partition: 300}


def test_what_is_handed_out_is_bounded(
    topic: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    bounded = {"max.unacknowledged": "100", "maxBatchRows": "50", "gap.timeout.ms": "700"}
    with Consumer(options | bounded) as consumer, caplog.at_level(logging.WARNING):
        consumer.assign({TopicPartition(topic, 0): []})
        first = [batch for _ in range(6) for batch in consumer.poll(20)]
        assert offsets(first) == list(range(100))
        assert "100 records wait" in caplog.text
        # What has waited too long comes again, and nothing new with it.
        wait_until(lambda: bool(first.extend(consumer.poll(50)) or len(offsets(first)) > 100))
        assert set(offsets(first)) == set(range(100))
        consumer.acknowledge(TopicPartition(topic, 0), range(100))
        assert offsets(consumer.poll(5_000))[0] == 100


def test_who_takes_ranges_over_ends_what_the_one_before_commits(
    topic: str, options: dict[str, str]
) -> None:
    partition = TopicPartition(topic, 0)
    lost: list[object] = []

    class Listener(KeyRangeListener):
        def on_key_ranges_lost(self, ranges: object) -> None:
            lost.append(ranges)

    zombie, heir = (Consumer(options | {"member.name": name}) for name in ("zombie", "heir"))
    zombie.assign({partition: []}, Listener())
    drained(zombie)
    zombie.acknowledge(partition, range(100))
    zombie.commit()
    zombie.acknowledge(partition, range(100, 200))
    heir.assign({partition: [(0, HASH_MAX // 2)]})
    with pytest.raises(KeyrangeError, match="RANGES_LOST"):
        zombie.commit()
    assert lost == [{partition: [SPACE]}]
    assert zombie.acknowledge(partition, [200]) == 0
    handed = offsets(drained(heir))
    assert min(handed) >= 100
    assert {each for each in handed if each < 200}
    assert zombie.poll(10) == []
    zombie.close()
    # The keys that nobody took are where the zombie's last commit left them.
    with Consumer(options | {"member.name": "rest"}) as rest:
        rest.assign({partition: [(HASH_MAX // 2 + 1, HASH_MAX)]})
        others = offsets(drained(rest))
        assert sorted(handed + others) == list(range(100, RECORDS))
    heir.close()


def test_a_gap_that_waits_too_long_comes_again_with_its_key(
    topic: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    partition, given_up = TopicPartition(topic, 0), []

    class Listener(KeyRangeListener):
        def on_deliveries_spent(self, records: pa.RecordBatch) -> None:
            given_up.extend(records.column("offset").to_pylist())

    settings = options | {"gap.timeout.ms": "300", "maxDeliveries": "3"}
    with Consumer(settings) as consumer, caplog.at_level(logging.WARNING):
        consumer.assign({partition: []}, Listener())
        handed = offsets(consumer.poll(10_000))
        # Of one key the first and the third record wait, of another key nothing.
        waits = [0, 2 * KEYS]
        consumer.acknowledge(partition, [each for each in handed if each not in waits])
        again: list[list[int]] = []
        wait_until(lambda: bool(given_up) or again.append(offsets(consumer.poll(50))) is not None)
        assert [each for each in again if each] == [waits, waits]
        assert given_up == waits
        assert consumer.commit() == {partition: RECORDS}
    assert "2 records" in caplog.text


def test_without_a_listener_a_spent_record_is_an_error_until_it_is_acknowledged(
    topic: str, options: dict[str, str]
) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(options | {"gap.timeout.ms": "100", "maxDeliveries": "1"}) as consumer:
        consumer.assign({partition: []})
        handed = offsets(consumer.poll(10_000))
        consumer.acknowledge(partition, handed[1:])
        time.sleep(0.15)
        for _ in range(2):
            with pytest.raises(InvalidError, match=r"GAP_TIMED_OUT.*offsets=\[0\]"):
                consumer.poll(100)
        assert consumer.acknowledge(partition, [0]) == 1
        assert consumer.poll(50) == []


@pytest.mark.parametrize(
    ("ranges", "condition"),
    [
        ({}, "INVALID_KEY_RANGES"),
        ({("t", 0): [(5, 4)]}, "INVALID_KEY_RANGES"),
        ({("t", 0): [(0, 5), (5, 6)]}, "INVALID_KEY_RANGES"),
        ({("t", 0): [(0, HASH_MAX + 1)]}, "INVALID_KEY_RANGES"),
        ({("t", 0): [0]}, "INVALID_KEY_RANGES"),
        ({("no-such-topic", 0): []}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_wrong_ranges_are_refused(
    options: dict[str, str], ranges: dict[object, object], condition: str
) -> None:
    with Consumer(options) as consumer, pytest.raises(KeyrangeError, match=condition):
        consumer.assign(ranges)  # type: ignore[arg-type]


def test_what_cannot_be_is_refused(topic: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidError, match=r"'subscribe' is not valid.*'gab' does not exist"):
        Consumer(options | {"subscribe": topic, "gab": "1"})
    consumer = Consumer(options)
    with pytest.raises(KeyrangeError, match="CONSUMER_STATE"):
        consumer.poll()
    with pytest.raises(KeyrangeError, match=r"UNKNOWN_TOPIC_OR_PARTITION.*-1"):
        consumer.assign({TopicPartition(topic, 1): []})
    consumer.assign({TopicPartition(topic, 0): []})
    for wrong, condition in ((0, "NOT_DELIVERED"), (-1, "INVALID_OFFSET")):
        with pytest.raises(KeyrangeError, match=condition):
            consumer.acknowledge(TopicPartition(topic, 0), [wrong])
    consumer.close()
    with pytest.raises(KeyrangeError, match="CONSUMER_STATE"):
        consumer.poll()
