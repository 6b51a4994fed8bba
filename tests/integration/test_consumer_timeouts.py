"""`keyrange.Consumer` in a group: who is waited for, what is added, and what is left behind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from brokers.real_broker import Record, Topics, wait_until
from keyrange import Consumer
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import parse_consumer_options
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.errors import KeyrangeError
from keyrange.members.table.assignments import open_assignments
from keyrange.model.key_ranges import SPACE
from queries.consuming import GROUP
from queries.sharing_consumer import sharing_options


class Stage:
    """A topic, and consumers of it that share one table."""

    def __init__(self, topics: Topics, home: Path, partitions: int = 2) -> None:
        self.topics, self.table = topics, home / "commits"
        self.topic = topics.create_topic("timeouts", partitions)
        self.made: list[Consumer] = []
        self.done: Counter[tuple[int, int]] = Counter()
        self.sent: set[tuple[int, int]] = set()

    def options(self, name: str, **given: str) -> dict[str, str]:
        servers = self.topics.cluster.bootstrap_servers
        return sharing_options(servers, self.table, name, memberGroup=f"m-{self.topic}", **given)

    def start(self, name: str, **given: str) -> Consumer:
        consumer = Consumer(self.options(name, **given))
        self.made.append(consumer)
        consumer.subscribe([self.topic])
        return consumer

    def produce(self, count: int, partitions: int = 2) -> None:
        records = [Record(b"x", b"key-%d" % (i % 50), i % partitions) for i in range(count)]
        self.sent |= set(self.topics.produce(self.topic, records))

    def step(self, *consumers: Consumer) -> None:
        """Let each do what it has to."""
        for each in consumers:
            records = each.poll_records(20)
            each.acknowledge(records)
            self.done.update((record.partition, record.offset) for record in records)
            each.commit()

    def until(self, condition: Any, *consumers: Consumer) -> None:
        wait_until(lambda: bool(self.step(*consumers)) or condition())

    def until_done(self, *consumers: Consumer) -> None:
        """Everything once."""
        self.until(lambda: self.done.keys() >= self.sent, *consumers)
        assert self.done == dict.fromkeys(self.sent, 1)


@pytest.fixture
def stage(topics: Topics, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(topics, tmp_path)
    yield stage
    for each in stage.made:
        each.close()


def held(consumer: Consumer) -> int:
    return sum(span.size for spans in consumer.assignment().values() for span in spans)


def generation(consumer: Consumer) -> int:
    assert consumer._sharing is not None
    return consumer._sharing.member.seen.generation


def test_who_joins_is_gathered_and_who_is_away_is_waited_for(stage: Stage) -> None:
    given = {"registration__timeout__ms": "8000", "expansion__timeout__ms": "7000"}
    first = stage.start("m-0", **given)
    stage.until(lambda: held(first) == 2 * SPACE.size, first)
    began = time.monotonic()
    second, third = stage.start("m-1", **given), stage.start("m-2", **given)
    every = [first, second, third]
    stage.until(lambda: held(second) > 0 and held(third) > 0, *every)
    assert time.monotonic() - began >= 7.0
    stage.until(lambda: sum(map(held, every)) == 2 * SPACE.size, *every)
    table = open_assignments(f"{stage.table}_members", GROUP, {})
    epochs = {row.epoch for row in table.history()}
    # One reassignment for both.
    assert len(epochs) == 2

    mine = held(first), held(second)
    # A static one leaves without a word.
    third.close()
    stage.until(lambda: "ABSENT" in states(table), first, second)
    gone = time.monotonic()
    assert (held(first), held(second)) == mine
    stage.until(lambda: held(first) + held(second) == 2 * SPACE.size, first, second)
    assert time.monotonic() - gone >= 7.0
    stage.produce(300)
    stage.until_done(first, second)


def states(table: Any) -> list[str]:
    last = table.last()
    return [member.state for member in last.members] if last is not None else []


def test_partitions_that_are_added_are_taken_in_also_by_a_leader_that_came_back(
    stage: Stage,
) -> None:
    """A static leader that is back within its session is not told by Kafka that it leads."""
    given = {"session_ms": "60000", "kafka__metadata__max__age__ms": "1000"}
    first = stage.start("m-0", **given)
    stage.until(lambda: held(first) == 2 * SPACE.size, first)
    assert first._sharing is not None
    assert first._sharing.member.seen.is_leader
    first.close()
    again = stage.start("m-0", **given)
    stage.until(lambda: held(again) == 2 * SPACE.size, again)
    assert again._sharing is not None
    assert not again._sharing.member.seen.is_leader

    stage.topics.add_partitions(stage.topic, 4)
    stage.produce(200, partitions=4)
    stage.until(lambda: held(again) == 4 * SPACE.size, again)
    stage.until_done(again)


def test_dynamic_consumers_leave_no_names_behind(stage: Stage) -> None:
    options = stage.options("", memberNames="dynamic")
    del options["member.name"]
    for number in range(3):
        with Consumer(options) as consumer:
            consumer.subscribe([stage.topic])
            stage.produce(50)
            stage.until_done(consumer)
            assert number or held(consumer) == 2 * SPACE.size
    claims = CommitLog(parse_consumer_options(options), "none").claims()
    assert len(claims) == 1


def test_a_consumer_survives_that_its_broker_restarts(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        topics = Topics(broker)
        stage = Stage(topics, tmp_path)
        given = {"session_ms": "60000", "kafka__default__api__timeout__ms": "1000"}
        consumers = [stage.start(f"m-{at}", **given) for at in range(2)]
        try:
            stage.until(lambda: all(map(held, consumers)), *consumers)
            stage.produce(200)
            stage.until_done(*consumers)
            before = [each.assignment() for each in consumers]
            generations = [generation(each) for each in consumers]
            for end in (broker.nodes[0].stop, broker.nodes[0].kill):
                stage.produce(200)
                topics.close()
                end()
                back = Thread(target=broker.nodes[0].start)
                for each in consumers:
                    assert not stepped(stage, each)
                back.start()
                wait_until(lambda: all(stepped(stage, each) for each in consumers))
                back.join()
                topics = stage.topics = Topics(broker)
                stage.produce(200)
                stage.until_done(*consumers)
            assert [each.assignment() for each in consumers] == before
            assert [generation(each) for each in consumers] == generations
        finally:
            for each in consumers:
                each.close()
            topics.close()


def stepped(stage: Stage, consumer: Consumer) -> bool:
    """Whether a consumer can go on; what it cannot do yet it can later."""
    try:
        stage.step(consumer)
    except KeyrangeError as failure:
        if not failure.retriable:
            raise
        return False
    return True
