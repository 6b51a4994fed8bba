"""Dead letters to a topic on a real broker: what they carry, where they go, what is too large."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import NEEDS_TRANSACTIONS, Topics
from keyrange.errors import KeyrangeError
from keyrange.individual_commits.dead_letter_topic import DeadLetterTopic
from keyrange.individual_commits.table.dead_letters import DeadLetter, Letter, TimerLetter
from keyrange.kafka.messages.produce import partition_of
from keyrange.storage.model.sink_driver import Driver, application_of
from keyrange.work.model.outcome import Cause
from spark.sources import client

pytestmark = [
    pytest.mark.broker,
    NEEDS_TRANSACTIONS,
]

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


def send(topics: Topics, topic: str, letters: Sequence[Letter], batch_id: int = 1) -> None:
    """As a driver does that has just begun."""
    sender = DeadLetterTopic(client(topics.cluster), topic)
    sender.send(f"{application_of('q', 's')}-{topic}", batch_id, letters, {}, None)


def records_in(topics: Topics, topic: str, partitions: int = 1) -> list[Any]:
    wait_until_all_are_over(topics, topic)
    return [each for part in committed_records(topics, topic, partitions) for each in part]


def test_letters_carry_the_record_and_what_is_known_of_it(topics: Topics) -> None:
    topic = topics.create_topic("dead", partitions=4)
    letters = [
        letter(1, b"a", b"v", (("h", b"1"), ("h", None))),
        letter(2, None, None),
        letter(3, b"c", b""),
    ]
    send(topics, topic, letters)
    found = {record.headers[-4][1]: record for record in records_in(topics, topic, 4)}
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
    assert (found[b"2"].key, found[b"2"].value) == (None, None)


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
    send(topics, topic, [timer])
    [found] = records_in(topics, topic, 4)
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
    send(topics, topic, letters)
    found = sorted(int(record.key) for record in records_in(topics, topic, 2))
    assert found == list(range(60))


def test_a_letter_that_is_too_large_is_left_out_with_a_line(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create_topic("dead", configs={"max.message.bytes": "2000"})
    small = [letter(at, b"a", b"x" * 100) for at in range(20, 40)]
    with caplog.at_level(logging.ERROR, "keyrange.individual_commits.dead_letter_topic"):
        send(topics, topic, [*small[:3], letter(1, b"a", b"x" * 5000), *small[3:]])
    assert "max.message.bytes of the topic is 2000" in caplog.text
    assert "xxx" not in caplog.text
    send(topics, topic, [letter(2, b"a", b"x")], batch_id=2)
    assert [record.value for record in records_in(topics, topic)] == [*[b"x" * 100] * 20, b"x"]


def test_a_topic_may_take_more_than_producers_send_by_default(topics: Topics) -> None:
    topic = topics.create_topic("dead", configs={"max.message.bytes": str(3 << 20)})
    send(topics, topic, [letter(1, b"a", b"x" * (2 << 20))])
    [found] = records_in(topics, topic)
    assert len(found.value) == 2 << 20


def test_a_topic_that_is_not_there_is_named(topics: Topics) -> None:
    with pytest.raises(KeyrangeError, match=r"\[UNKNOWN_TOPIC_OR_PARTITION\]"):
        send(topics, "nothing-there", [letter(1, b"a", b"x")])


def test_letters_of_a_batch_that_runs_again_are_not_sent_again(topics: Topics) -> None:
    topic = topics.create_topic("dead")
    for batch_id in (1, 1, 2):
        send(topics, topic, [letter(batch_id, b"a", b"%d" % batch_id)], batch_id)
    assert [record.value for record in records_in(topics, topic)] == [b"1", b"2"]


def test_who_takes_over_sends_what_the_driver_before_has_not(topics: Topics) -> None:
    """That one has letters of two batches in the table, and those of the first one are out."""
    topic = topics.create_topic("dead")
    settings = client(topics.cluster)
    given_up = [replace(letter(at, b"a", b"%d" % at), batch_id=at, query_id=topic) for at in (1, 2)]
    before, own = application_of(topic, "s"), application_of(topic, "t")
    late = DeadLetterTopic(settings, topic)
    late.send(before, 1, given_up[:1], {}, Driver("s", 1))
    driver = Driver("t", 2, frozenset("s"), {before: 0}, frozenset([before]))
    stood = {each.subject: each for each in given_up}
    again = [replace(each, source_id="t", batch_id=1) for each in given_up]
    DeadLetterTopic(settings, topic).stop_others(driver)
    with pytest.raises(KeyrangeError, match="COMMITS_FENCED"):
        late.send(before, 2, given_up[1:], {}, Driver("s", 1))
    for _ in range(2):
        DeadLetterTopic(settings, topic).send(own, 1, again, stood, driver)
    assert [record.value for record in records_in(topics, topic)] == [b"1", b"2"]
