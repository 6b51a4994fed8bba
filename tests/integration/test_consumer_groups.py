"""`keyrange.Consumer` in a group that shares partitions: joins, restarts, zombies."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.real_broker import Record, Topics, wait_until
from keyrange import Consumer, KeyRangeListener, TopicPartition
from keyrange.errors import KeyrangeError
from keyrange.model.key_ranges import SPACE, merge
from queries.consuming import read_journal
from queries.forked import start_forked
from queries.sharing_consumer import SHORT_SESSION_MS, share, sharing_options

# The hash spaces of the three partitions.
ALL = 3 * SPACE.size


class Process:
    """A consumer in a process of its own, by what it has written."""

    def __init__(self, arguments: list[str], journal: Path) -> None:
        self.journal = journal
        self.process = start_forked(share, *arguments, str(journal))

    def lines(self, what: str) -> list[dict[str, Any]]:
        lines = read_journal(self.journal) if self.journal.exists() else []
        return [line for line in lines if line["what"] == what]

    def send(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)
        if number is signal.SIGKILL:
            self.process.join()

    def committed(self) -> list[tuple[int, int]]:
        return [tuple(place) for line in self.lines("committed") for place in line["places"]]

    def held(self) -> int:
        """How much of the hash spaces it has, by what it was told."""
        signs = {"assigned": 1, "revoked": -1, "lost": -1}
        return sum(
            sign * line["hashes"] for what, sign in signs.items() for line in self.lines(what)
        )


Start = Callable[..., Process]


def share_all(*processes: Process) -> bool:
    """Whether each has something, and together they have all: one that was first has all alone, for
    a while."""
    held = [each.held() for each in processes]
    return min(held) > 0 and sum(held) == ALL


@pytest.fixture
def start(topics: Topics, tmp_path: Path) -> Iterator[Start]:
    """Starts a consumer of `start.topic` by its name."""
    started: list[Process] = []
    topic = topics.create_topic("shared", partitions=3)

    def begin(name: str, session_ms: int = SHORT_SESSION_MS) -> Process:
        table = str(tmp_path / "commits")
        servers = topics.cluster.bootstrap_servers
        arguments = [servers, table, topic, name, str(session_ms)]
        process = Process(arguments, tmp_path / f"{name}-{len(started)}")
        started.append(process)
        return process

    begin.topic = topic  # type: ignore[attr-defined]
    yield begin
    for each in started:
        each.process.kill()
        each.process.join()


def produced(topics: Topics, start: Start, count: int) -> set[tuple[int, int]]:
    records = [Record(b"%d" % i, b"key-%d" % (i % 90)) for i in range(count)]
    return set(topics.produce(start.topic, records))  # type: ignore[attr-defined]


def until_done(processes: list[Process], wanted: set[tuple[int, int]]) -> None:
    """Wait until all is committed, and look whether anything is twice."""
    found = lambda: [place for each in processes for place in each.committed()]  # noqa: E731
    wait_until(lambda: set(found()) >= wanted)
    assert [place for place, times in Counter(found()).items() if times > 1] == []


def test_a_static_consumer_that_is_killed_and_comes_back_finds_its_ranges(
    topics: Topics, start: Start
) -> None:
    first, second = (start(name, 60_000) for name in ("group-0", "group-1"))
    wait_until(lambda: share_all(first, second))
    until_done([first, second], before := produced(topics, start, 900))
    held, told = second.held(), first.lines("generation")
    second.send(signal.SIGKILL)
    # While it is away, the other one has its own keys only.
    later = produced(topics, start, 900)
    again = start("group-1", 60_000)
    wait_until(lambda: again.held() == held)
    until_done([first, second, again], before | later)
    assert first.lines("generation") == told
    assert first.held() + again.held() == ALL


def test_a_consumer_that_was_paused_comes_back_and_changes_nothing(
    topics: Topics, start: Start
) -> None:
    first, second = start("group-0"), start("group-1")
    wait_until(lambda: share_all(first, second))
    second.send(signal.SIGSTOP)
    try:
        wanted = produced(topics, start, 900)
        wait_until(lambda: first.held() == ALL)
        until_done([first], wanted)
    finally:
        second.send(signal.SIGCONT)
    wait_until(lambda: bool(second.lines("lost")))
    wait_until(lambda: share_all(first, second))
    until_done([first, second], wanted | produced(topics, start, 300))


class Slow(KeyRangeListener):
    """Is not ready when it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_key_ranges_announced(self, ranges: Any) -> bool:
        self.told.append("announced")
        return False

    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self.told.append("assigned")

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        self.told.append("revoked")


def test_ranges_are_announced_and_move_when_the_heir_is_ready(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create_topic("warm")
    topics.produce(topic, [Record(b"%d" % i, b"key-%d" % (i % 90), 0) for i in range(300)])
    servers, table = topics.cluster.bootstrap_servers, tmp_path / "commits"
    old, new = Slow(), Slow()
    options = [
        sharing_options(servers, table, f"warm-{at}", memberGroup=f"m-{topic}") for at in (0, 1)
    ]
    with Consumer(options[0]) as first, Consumer(options[1]) as second:
        first.subscribe([topic], old)
        wait_until(lambda: first.poll(100) == [] and bool(first.assignment()))
        second.subscribe([topic], new)
        wait_until(lambda: not [first.poll(100), second.poll(100)] or bool(new.told))
        began = time.monotonic()
        while time.monotonic() < began + 1.5:
            first.poll(100)
            assert second.poll(100) == []
        assert (old.told, new.told) == (["announced", "assigned"], ["announced"])
        second.ready()
        wait_until(
            lambda: not [first.poll(100)] or bool(second.poll(100)) or bool(second.assignment())
        )
        assert (old.told[2:], new.told) == (["revoked"], ["announced", "assigned"])
        partition = TopicPartition(topic, 0)
        shared = [each.assignment()[partition] for each in (first, second)]
        assert merge([*shared[0], *shared[1]]) == [SPACE]
        assert not set(shared[0]) & set(shared[1])


def test_two_consumers_of_one_name_are_told(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("twins")
    options = sharing_options(
        topics.cluster.bootstrap_servers, tmp_path / "commits", "twin", memberGroup=f"m-{topic}"
    )
    first, second = Consumer(options), Consumer(options)
    first.subscribe([topic])
    wait_until(lambda: first.poll(100) == [] and bool(first.assignment()))
    second.subscribe([topic])
    with pytest.raises(KeyrangeError, match=r"DUPLICATE_STATIC_MEMBER.*FENCED_INSTANCE_ID"):
        wait_until(lambda: bool(first.poll(100)) or second.poll(100) is None)
    wait_until(lambda: second.poll(100) == [] and bool(second.assignment()))
    with pytest.raises(KeyrangeError, match="MEMBERSHIP_ENDED"):
        first.poll(0)
    second.close()
    first.close()


def test_topics_are_checked_when_they_are_subscribed(topics: Topics, tmp_path: Path) -> None:
    options = sharing_options(topics.cluster.bootstrap_servers, tmp_path / "commits", "one")
    with Consumer(options) as consumer:
        with pytest.raises(KeyrangeError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            consumer.subscribe(["no-such-topic"])
        with pytest.raises(KeyrangeError, match="CONSUMER_STATE"):
            consumer.subscribe("a")
    with (
        Consumer(options | {"session.timeout.ms": "3600000"}) as patient,
        pytest.raises(KeyrangeError, match=r"SESSION_TIMEOUT_REFUSED"),
    ):
        patient.subscribe([topics.create_topic("patient")])


def test_topics_of_a_pattern_are_shared_whenever_they_come(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create_topic("pattern")
    later = f"{topic}-later"
    servers, table = topics.cluster.bootstrap_servers, tmp_path / "commits"
    given = {"memberGroup": f"m-{topic}", "kafka__metadata__max__age__ms": "1000"}
    consumers = [Consumer(sharing_options(servers, table, f"p-{at}", **given)) for at in (0, 1)]

    def are_shared(*names: str) -> bool:
        """Whether each has some of each topic, and both have all."""
        for each in consumers:
            for batch in each.poll(100):
                each.acknowledge(batch)
            each.commit()
        held = [each.assignment() for each in consumers]
        parts = [[spans.get(TopicPartition(name, 0), []) for spans in held] for name in names]
        return all(all(each) and merge([*each[0], *each[1]]) == [SPACE] for each in parts)

    try:
        for each in consumers:
            each.subscribe(pattern=f"{topic}.*")
        wait_until(lambda: are_shared(topic))
        topics.create_named(later)
        topics.produce(later, [Record(b"%d" % i, b"key-%d" % i) for i in range(90)])
        wait_until(lambda: are_shared(topic, later))
        assert [each.subscription() for each in consumers] == [{topic, later}] * 2
        wait_until(lambda: are_shared(later) and consumers[0].committed((later, 0)) == 90)
    finally:
        for each in consumers:
            each.close()


def test_who_unsubscribes_may_subscribe_again(topics: Topics, tmp_path: Path) -> None:
    topic, other = topics.create_topic("again"), topics.create_topic("again")
    for each in (topic, other):
        topics.produce(each, [Record(b"%d" % i, b"key-%d" % i) for i in range(20)])
    servers, table = topics.cluster.bootstrap_servers, tmp_path / "commits"
    options = sharing_options(servers, table, "again", memberGroup=f"m-{topic}")

    def read(consumer: Consumer) -> set[str]:
        """The topics of what comes, as soon as something does."""
        found: list[Any] = []
        wait_until(lambda: bool(found.extend(consumer.poll_records(100)) or found))
        consumer.acknowledge(found)
        return {record.topic for record in found}

    with Consumer(options) as consumer:
        consumer.subscribe([topic])
        assert read(consumer) == {topic}
        consumer.unsubscribe()
        assert consumer.assignment() == {}
        consumer.subscribe([other])
        assert read(consumer) == {other}
        consumer.unsubscribe()
        consumer.assign({TopicPartition(topic, 0): [], TopicPartition(other, 0): []})
        assert consumer.poll(200) == []
