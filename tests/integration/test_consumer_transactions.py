"""Transactions of a consumer on a real broker: output and acknowledgements stand or fall together,
as kafka-python reads the output with read_committed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from brokers.committed_records import committed_records, wait_until_all_are_over
from brokers.real_broker import NEEDS_TRANSACTIONS, Record, Topics, wait_until
from keyrange import Consumer, KeyRangeListener
from keyrange.consumer.transactional_commits import TransactionalCommits
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.offset_reset import rewind
from keyrange.individual_commits.table.commit_admin import open_commits, write_reset
from keyrange.individual_commits.table.commit_table import DeltaCommitTable
from keyrange.individual_commits.table.prepared_commits import PreparedCommits
from keyrange.model.offsets import TopicPartition
from keyrange.sending.marked_sender import MarkedSender
from project.forms import by_form
from queries.consuming import GROUP, consumer_options
from queries.forked import run_forked
from queries.transacting import send_on, send_some, transact

pytestmark = [
    pytest.mark.broker,
    NEEDS_TRANSACTIONS,
]

RECORDS = 300


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def topic(topics: Topics) -> str:
    made = topics.create_topic("transacting")
    topics.produce(made, [Record(b"%d" % i, b"key-%d" % (i % 30)) for i in range(RECORDS)])
    return made


@pytest.fixture
def output(topics: Topics) -> str:
    return topics.create_topic("transacted", partitions=3)


@pytest.fixture
def options(topics: Topics, tmp_path: Path) -> dict[str, str]:
    servers = topics.cluster.bootstrap_servers
    return consumer_options(servers, tmp_path / "commits", member__name="a", maxBatchRows="100")


def sent(topics: Topics, output: str, in_order: bool = True) -> list[int]:
    """The numbers that are in the output, those of a key in its order."""
    wait_until_all_are_over(topics, output)
    partitions = committed_records(topics, output, 3)
    by_key: dict[bytes, list[int]] = {}
    for each in (record for partition in partitions for record in partition):
        by_key.setdefault(each.key, []).append(int(each.value))
    assert not in_order or all(found == sorted(found) for found in by_key.values())
    return sorted(number for found in by_key.values() for number in found)


def one_block(consumer: Consumer, output: str, before_its_end: Callable[[], object]) -> None:
    with consumer.transaction() as transaction:
        for batch in consumer.poll(5_000):
            transaction.send(batch.select(["key", "value"]), topic=output)
            consumer.acknowledge(batch)
        before_its_end()


def in_kafka_and_not_in_the_table(
    options: dict[str, str], topic: str, output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumer `a` sends 100 records on, and is killed where it sends another 100, between Kafka
    and the table."""
    consumer = Consumer(options)
    consumer.assign({(topic, 0): []})
    send_on(consumer, output, until_rows=100)
    write = DeltaCommitTable.append

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    monkeypatch.setattr(DeltaCommitTable, "append", killed)
    with pytest.raises(Killed):
        send_on(consumer, output, until_rows=100)
    monkeypatch.setattr(DeltaCommitTable, "append", write)


def test_output_and_acknowledgements_are_committed_together(
    topics: Topics, topic: str, output: str, options: dict[str, str]
) -> None:
    at = datetime(2024, 2, 3, tzinfo=UTC)
    with Consumer(options, {"kafka.compression.type": "gzip"}) as consumer:
        consumer.assign({(topic, 0): []})
        with consumer.transaction() as transaction:
            for batch in consumer.poll(5_000):
                consumer.acknowledge(batch)
                rows = batch.to_pylist()
                named = [{"key": r["key"], "value": r["value"], "topic": output} for r in rows[:50]]
                transaction.send(named)
                transaction.send(batch.slice(50).select(["key", "value"]), topic=output)
            transaction.send(
                [{"key": "z", "value": "999", "partition": 2, "timestamp": at}], topic=output
            )
            transaction.send(
                [{"key": "h", "value": b"998", "headers": [{"key": "x", "value": b"1"}]}],
                topic=output,
            )
            assert committed_records(topics, output, 3) == [[], [], []]
        assert consumer.committed((topic, 0)) == 100
        assert sent(topics, output) == [*range(100), 998, 999]
    [last] = [each for each in committed_records(topics, output, 3)[2] if each.key == b"z"]
    assert last.timestamp == int(at.timestamp() * 1000)
    every = [each for partition in committed_records(topics, output, 3) for each in partition]
    assert {each.key: each.headers for each in every}[b"h"] == [("x", b"1")]


def test_a_block_that_fails_leaves_nothing(
    topics: Topics, topic: str, output: str, options: dict[str, str]
) -> None:
    with Consumer(options) as consumer:
        consumer.assign({(topic, 0): []})
        send_on(consumer, output, until_rows=100)

        with pytest.raises(ZeroDivisionError):
            one_block(consumer, output, lambda: 1 // 0)
        assert consumer.position((topic, 0)) == 100
        assert send_on(consumer, output) == RECORDS - 100
        assert consumer.committed((topic, 0)) == RECORDS
    assert sent(topics, output) == list(range(RECORDS))


@pytest.mark.parametrize("step", [0, *range(1, by_form(8, 46, 70), by_form(3, 11, 1))])
def test_a_kill_at_any_step_sends_each_record_once(
    topics: Topics, topic: str, output: str, tmp_path: Path, step: int
) -> None:
    """Of two consumers in turn that take each other's ranges; the last one is not killed."""
    servers, table = topics.cluster.bootstrap_servers, str(tmp_path / "commits")
    arguments = [servers, table, topic, output, str(RECORDS)]
    ends = [
        run_forked(transact, *arguments, name, str(at))
        for name, at in (("a", step), ("b", step + 1))
    ]
    assert step == 0 or step > 40 or -signal.SIGKILL in ends
    if step % 2:
        run_forked(transact, *arguments, "b", str(step + 2))
    assert run_forked(transact, *arguments, "a", "0") == 0
    assert sent(topics, output) == list(range(RECORDS))


def test_a_group_sends_each_record_once_while_ranges_move(
    topics: Topics, topic: str, output: str, options: dict[str, str]
) -> None:
    """A second consumer comes when the first one has begun, and the first one ends in a block."""
    given = {name: each for name, each in options.items() if name != "member.name"}
    given |= {"memberNames": "dynamic", "expansion.timeout.ms": "500", "warmup.timeout.ms": "100"}
    first, second = (Consumer(given | {"maxBatchRows": "10"}) for _ in range(2))
    first.subscribe([topic])
    wait_until(lambda: send_some(first, output) > 0)
    second.subscribe([topic])
    first.pause((topic, 0))
    wait_until(lambda: not first.poll(50) and send_some(second, output) > 0)
    assert first.assignment()
    assert second.assignment()
    first.resume((topic, 0))
    with pytest.raises(ZeroDivisionError):
        one_block(first, output, lambda: 1 // 0)
    first.close()
    wait_until(lambda: send_some(second, output) < 0 or second.committed((topic, 0)) == RECORDS)
    second.close()
    assert sent(topics, output) == list(range(RECORDS))


def test_whoever_takes_the_ranges_has_what_kafka_has(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_kafka_and_not_in_the_table(options, topic, output, monkeypatch)
    with Consumer(options | {"member.name": "b"}) as consumer:
        consumer.assign({(topic, 0): [(0, 2**62)]})
        send_on(consumer, output)
    with Consumer(options | {"member.name": "c"}) as consumer:
        consumer.assign({(topic, 0): []})
        send_on(consumer, output)
        assert consumer.committed((topic, 0)) == RECORDS
    assert sent(topics, output) == list(range(RECORDS))


@pytest.mark.parametrize("when", ["open", "prepared", "in kafka"])
def test_a_consumer_that_lives_on_sends_nothing_twice(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    when: str,
) -> None:
    """Another one takes its ranges within its block, or at a step of the end."""
    old, new = Consumer(options), Consumer(options | {"member.name": "b"})
    old.assign({(topic, 0): []})
    send_on(old, output, until_rows=100)
    lost: list[object] = []
    listener = KeyRangeListener()
    monkeypatch.setattr(listener, "on_key_ranges_lost", lost.append)
    old._listener = listener

    def taken(write: Callable[..., None]) -> Callable[..., None]:
        def before(*given: Any, **named: Any) -> None:
            monkeypatch.undo()
            new.assign({(topic, 0): []})
            write(*given, **named)

        return before

    def happens() -> None:
        if when == "open":
            new.assign({(topic, 0): []})
            return
        place: Any = PreparedCommits if when == "prepared" else DeltaCommitTable
        name = "write" if when == "prepared" else "append"
        monkeypatch.setattr(place, name, taken(getattr(place, name)))

    with pytest.raises(KeyrangeError, match="RANGES_LOST"):
        one_block(old, output, happens)
    done = {"open": 100, "prepared": 100, "in kafka": 200}[when]
    assert new.committed((topic, 0)) == done
    assert not old.assignment()
    send_on(new, output)
    assert send_on(old, output) == 0
    for each in (old, new):
        each.close()
    assert sent(topics, output) == list(range(RECORDS))


@pytest.mark.parametrize(("choice", "again"), [("send", True), ("skip", False)])
def test_what_kafka_has_forgotten_is_not_guessed(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    again: bool,
) -> None:
    in_kafka_and_not_in_the_table(options, topic, output, monkeypatch)
    topics.admin.delete_groups([f"keyrange:{GROUP}:a"])
    with (
        Consumer(options | {"member.name": "b"}) as consumer,
        pytest.raises(KeyrangeError, match="TRANSACTION_FORGOTTEN"),
    ):
        consumer.assign({(topic, 0): []})
    with Consumer(options | {"member.name": "b", "if.forgotten": choice}) as consumer:
        consumer.assign({(topic, 0): []})
        send_on(consumer, output)
    times = Counter(sent(topics, output, in_order=not again))
    assert times == Counter(range(RECORDS)) + Counter(range(100, 200) if again else ())


def test_what_was_set_by_hand_stays(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_kafka_and_not_in_the_table(options, topic, output, monkeypatch)
    commits = open_commits(options["commitTable"], GROUP, "", {})
    known, partition = commits.table.known(), TopicPartition(topic, 0)
    back = rewind(known.states[partition], 50).state
    write_reset(commits, known, {partition: back}, "me", "once more", time.time_ns() // 10**6)
    with Consumer(options) as consumer:
        consumer.assign({(topic, 0): []})
        assert consumer.committed((topic, 0)) == 50


def test_an_end_that_nobody_hears_of_is_asked_for(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka has committed, and its answer is lost."""
    send = MarkedSender.send
    left = [1]

    def lost(self: MarkedSender, batches: Any, mark: Any) -> None:
        send(self, batches, mark)
        if batches and left:
            left.pop()
            self._producer = None
            raise error("RECORDS_NOT_DELIVERED", "no answer")

    monkeypatch.setattr(MarkedSender, "send", lost)
    with Consumer(options) as consumer:
        consumer.assign({(topic, 0): []})
        assert send_on(consumer, output) == RECORDS
        assert consumer.committed((topic, 0)) == RECORDS
    assert not left
    assert sent(topics, output) == list(range(RECORDS))


def test_a_broker_that_is_away_at_the_end_leaves_it_to_the_next_claim(
    topics: Topics,
    topic: str,
    output: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it is committed cannot be asked: the consumer has nothing any more, until it claims
    its ranges again."""

    def away(*_: object) -> None:
        raise error("RECORDS_NOT_DELIVERED", "no broker")

    with Consumer(options) as consumer:
        consumer.assign({(topic, 0): []})
        send_on(consumer, output, until_rows=100)
        with monkeypatch.context() as patched:
            write = TransactionalCommits._send

            def sends(self: Any, *given: Any) -> None:
                send = MarkedSender.send

                def then_away(sender: MarkedSender, *given: Any) -> None:
                    send(sender, *given)
                    sender._producer = None
                    away()

                patched.setattr(MarkedSender, "send", then_away)
                patched.setattr(MarkedSender, "start", away)
                write(self, *given)

            patched.setattr(TransactionalCommits, "_send", sends)
            with pytest.raises(KeyrangeError, match="RANGES_LOST"):
                send_on(consumer, output, until_rows=100)
        assert not consumer.assignment()
        consumer.assign({(topic, 0): []})
        assert consumer.committed((topic, 0)) == 200
        send_on(consumer, output)
    assert sent(topics, output) == list(range(RECORDS))
