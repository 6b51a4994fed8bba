"""Dead letters to a topic on a real broker: what they carry, where they go, what is too large."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from brokers.real_broker import Topics, client_config
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.table.dead_letter_topic import send_dead_letters
from keyrange.individual_commits.table.dead_letters import DeadLetter, TimerLetter
from keyrange.kafka.messages.produce import partition_of
from keyrange.work.model.outcome import Cause
from spark.sources import client

OF_BATCH: dict[str, Any] = {
    "group": "g",
    "source_id": "s",
    "query_id": "q",
    "batch_id": 1,
    "topic": "orders",
    "topic_id": "",
    "partition": 3,
}


def letter(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> DeadLetter:
    return DeadLetter(
        **OF_BATCH,
        offset=offset,
        key=key,
        value=value,
        headers=headers,
        timestamp_ms=1_700_000_000_000,
        error="ValueError: \u00e4",
        cause=Cause.TIMED_OUT,
        attempts=5,
    )


def records_in(topics: Topics, topic: str) -> list:  # type: ignore[type-arg]
    with KafkaConsumer(**client_config(topics.cluster)) as consumer:
        places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            for records in consumer.poll(timeout_ms=1000).values():
                found += records
        return found


def test_letters_carry_the_record_and_what_is_known_of_it(topics: Topics) -> None:
    topic = topics.create_topic("dead", partitions=4)
    letters = [
        letter(1, b"a", b"v", (("h", b"1"), ("h", None))),
        letter(2, None, None),
        letter(3, b"c", b""),
    ]
    send_dead_letters(client(topics.cluster), topic, letters)
    found = {record.headers[-4][1]: record for record in records_in(topics, topic)}
    assert set(found) == {b"1", b"2", b"3"}
    one = found[b"1"]
    assert (one.key, one.value, one.timestamp) == (b"a", b"v", 1_700_000_000_000)
    assert [(name, value) for name, value in one.headers] == [
        ("h", b"1"),
        ("h", None),
        ("keyrange.topic", b"orders"),
        ("keyrange.partition", b"3"),
        ("keyrange.offset", b"1"),
        ("keyrange.error", "ValueError: \u00e4".encode()),
        ("keyrange.cause", b"timed_out"),
        ("keyrange.attempts", b"5"),
    ]
    assert one.partition == partition_of(b"a", 4)
    assert (found[b"2"].key, found[b"2"].value, found[b"2"].partition) == (None, None, 2)


def test_a_timer_has_its_key_and_when_it_was_due(topics: Topics) -> None:
    topic = topics.create_topic("dead", partitions=4)
    timer = TimerLetter(
        **OF_BATCH,
        key=b"a",
        timer_at_us=1_700_000_000_000_007,
        error="ValueError",
        attempts=5,
        last_at_ms=1_700_000_001_000,
    )
    send_dead_letters(client(topics.cluster), topic, [timer])
    [found] = records_in(topics, topic)
    assert (found.key, found.value, found.timestamp) == (b"a", None, 1_700_000_001_000)
    assert found.partition == partition_of(b"a", 4)
    assert found.headers == [
        ("keyrange.topic", b"orders"),
        ("keyrange.partition", b"3"),
        ("keyrange.timer_at", b"2023-11-14T22:13:20.000007+00:00"),
        ("keyrange.error", b"ValueError"),
        ("keyrange.cause", b"rejected"),
        ("keyrange.attempts", b"5"),
    ]


def test_many_letters_go_out_in_several_batches(topics: Topics) -> None:
    topic = topics.create_topic("dead", partitions=2)
    letters = [letter(at, b"%d" % at, b"x" * 50_000) for at in range(60)]
    send_dead_letters(client(topics.cluster), topic, letters)
    found = sorted(int(record.key) for record in records_in(topics, topic))
    assert found == list(range(60))


def test_a_letter_that_is_too_large_is_left_out_with_a_line(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create_topic("dead", configs={"max.message.bytes": "2000"})
    small = [letter(at, b"a", b"x" * 100) for at in range(20, 40)]
    with caplog.at_level(logging.ERROR, "keyrange.individual_commits.table.dead_letter_topic"):
        send_dead_letters(
            client(topics.cluster), topic, [*small[:3], letter(1, b"a", b"x" * 5000), *small[3:]]
        )
    assert "larger than" in caplog.text
    assert "xxx" not in caplog.text
    send_dead_letters(client(topics.cluster), topic, [letter(2, b"a", b"x")])
    assert [record.value for record in records_in(topics, topic)] == [*[b"x" * 100] * 20, b"x"]


def test_a_topic_that_is_not_there_is_named(topics: Topics) -> None:
    with pytest.raises(KeyrangeError, match=r"\[UNKNOWN_TOPIC_OR_PARTITION\]"):
        send_dead_letters(client(topics.cluster), "nothing-there", [letter(1, b"a", b"x")])
