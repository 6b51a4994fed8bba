"""`Consumer.transaction` over scripted brokers: what is a block, what a block may not do, and what
is left where it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from kafka.record import MemoryRecords

from brokers.scripted_broker import ScriptedCluster, World
from keyrange.consumer import consumer_positions, transaction_output
from keyrange.consumer import rebalance as rebalance_module
from keyrange.consumer.api import Consumer
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.member import GroupMembership
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.model.sender_messages import Batch, Token
from keyrange.kafka.model.transactional_sender import SenderSettings
from keyrange.members.model.consumer_messages import Share, write_share
from keyrange.members.model.group_member_states import GroupState
from keyrange.model.key_ranges import SPACE, split_evenly
from keyrange.sending import marked_sender
from keyrange.wire.produced_batches import seal
from keyrange.wire.topic_limits import TopicLimits
from project.forms import by_form
from queries.interrupted_calls import interrupted
from queries.scripted_consumer import FIRST, a_key_each, options_at


class Producer:
    """As `TransactionalProducer`: `ends` says how the next transactions end."""

    log: ClassVar[list[tuple[str, int, bytes | None, bytes]]]
    marks: ClassVar[dict[str, Token]]
    ends: ClassVar[list[str]]

    def __init__(self, _: object, settings: SenderSettings) -> None:
        self._id = settings.transactional_id

    def start(self) -> Token | None:
        return Producer.marks.get(self._id)

    def send(self, batches: Iterable[Batch], mark: Token) -> None:
        rows = [row for each in batches for row in _rows(each)]
        end = Producer.ends.pop(0) if rows and Producer.ends else ""
        if end and end != "unheard":
            raise error(end, "as the test says")
        Producer.log += rows
        Producer.marks[self._id] = mark
        if end:
            raise error("RECORDS_NOT_DELIVERED", "nobody heard of its end")


def _rows(batch: Batch) -> Iterator[tuple[str, int, bytes | None, bytes]]:
    seal(batch.content, 1, 0, 0)
    for each in MemoryRecords(batch.content.tobytes()).next_batch() or ():
        yield (*batch.partition, each.key, each.value)


class Member:
    """The group gives all, and then half."""

    seen: ClassVar[GroupMembership]
    polls: ClassVar[int]

    def __init__(self, *_: Any) -> None: ...

    def polled(self) -> None:
        Member.polls += 1

    def close(self) -> None: ...

    def now_ms(self) -> int:
        return 0

    @classmethod
    def gives(cls, epoch: int, *spans: Any) -> None:
        share = Share(epoch, {FIRST: list(spans)}, frozenset("ab"), frozenset(), "z")
        cls.seen = GroupMembership(GroupState.STABLE, 1, False, write_share(share))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(lambda _node, _partition, offset: a_key_each(offset, 10), latest=10)
    Producer.log, Producer.marks, Producer.ends = [], {}, []
    Member.polls = 0
    for module in (consumer_positions, rebalance_module, transaction_output, marked_sender):
        monkeypatch.setattr(module, "Cluster", lambda _: ScriptedCluster(world))
    topic = SimpleNamespace(leaders=[1, 1])
    monkeypatch.setattr(ScriptedCluster, "topic", lambda *_: topic, raising=False)

    def takes(_: object, topic: str) -> TopicLimits:
        return TopicLimits(message_bytes=500, needs_keys=topic == "compacted")

    monkeypatch.setattr(transaction_output, "topic_settings", takes)
    monkeypatch.setattr(marked_sender, "TransactionalProducer", Producer)
    monkeypatch.setattr(rebalance_module, "MemberThread", Member)
    monkeypatch.setattr(rebalance_module, "check_session_timeout", lambda *_: None)
    return world


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return options_at(tmp_path, **{"member.name": "a", "maxBatchRows": "4"})


@pytest.fixture
def consumer(world: World, options: dict[str, str]) -> Iterator[Consumer]:
    with Consumer(options) as consumer:
        consumer.assign({FIRST: []})
        yield consumer


def polled(consumer: Consumer) -> list[int]:
    """The offsets of all that comes now."""
    found: list[int] = []
    while records := consumer.poll_records(0):
        found += [record.offset for record in records]
    return found


def numbers() -> list[int]:
    return sorted(int(value) for _, _, _, value in Producer.log)


def sends(consumer: Consumer, offsets: Iterable[int], then: Callable[[], object] = int) -> None:
    """Poll, send the offsets of some records, and acknowledge these."""
    with consumer.transaction() as transaction:
        polled(consumer)
        transaction.send([{"value": b"%d" % each} for each in offsets], topic="out")
        consumer.acknowledge(FIRST, offsets)
        then()


def raising() -> None:
    raise ZeroDivisionError


class TestBlocks:
    def test_output_and_acknowledgements_count_at_the_end(self, consumer: Consumer) -> None:
        sends(consumer, range(5), lambda: numbers() == [] or pytest.fail("it was sent before"))
        assert numbers() == list(range(5))
        assert consumer.committed(FIRST) == 5
        assert Producer.marks.keys() == {"keyrange:g:a"}
        # What was not acknowledged waits on.
        assert polled(consumer) == []
        sends(consumer, range(5, 10))
        assert numbers() == list(range(10))
        assert consumer.committed(FIRST) == 10

    def test_one_that_fails_was_never_there(self, consumer: Consumer) -> None:
        polled(consumer)
        consumer.acknowledge(FIRST, [0, 1])
        consumer.seek(FIRST, 6)
        with pytest.raises(ZeroDivisionError):
            sends(consumer, range(4, 10), raising)
        assert numbers() == []
        # What was acknowledged before stands.
        assert consumer.committed(FIRST) == 2
        assert consumer.position(FIRST) == 6
        assert polled(consumer) == [6, 7, 8, 9]
        assert consumer.acknowledge(FIRST, range(10)) == 8

    def test_without_output_there_is_none_in_kafka(self, consumer: Consumer) -> None:
        sends(consumer, [])
        with consumer.transaction():
            consumer.acknowledge(FIRST, range(10))
        assert consumer.committed(FIRST) == 10
        assert Producer.marks == {}

    @pytest.mark.parametrize("name", ["commit", "transaction", "unsubscribe"])
    def test_some_calls_wait_for_its_end(self, consumer: Consumer, name: str) -> None:
        sends(consumer, range(3), lambda: refused(getattr(consumer, name)))
        assert numbers() == [0, 1, 2]

    def test_calls_with_arguments_wait_too(self, consumer: Consumer) -> None:
        for call in (
            lambda: consumer.seek(FIRST, 0),
            lambda: consumer.assign({FIRST: []}),
            lambda: consumer.subscribe(["t"]),
        ):
            with consumer.transaction():
                refused(call)

    def test_it_is_for_one_time(self, consumer: Consumer) -> None:
        transaction = consumer.transaction()
        refused(lambda: transaction.send([{"value": b"1"}], topic="out"))
        with transaction:
            refused(transaction.__enter__)
        refused(transaction.__enter__)
        refused(lambda: transaction.send([{"value": b"1"}], topic="out"))

    def test_close_within_it_aborts_it(self, consumer: Consumer) -> None:
        with pytest.raises(KeyrangeError, match="closed within the transaction"):
            sends(consumer, range(3), consumer.close)
        assert numbers() == []

    def test_it_commits_nothing_by_itself(self, world: World, options: dict[str, str]) -> None:
        with Consumer(options | {"max.num.ranges.to.commit": "1"}) as consumer:
            consumer.assign({FIRST: []})
            sends(consumer, [0, 2, 4, 6], lambda: consumer.committed(FIRST) == 0 or raising())
            assert consumer.committed(FIRST) == 1

    def test_no_ranges_move_from_its_first_record_on(
        self, world: World, options: dict[str, str]
    ) -> None:
        low, high = split_evenly(SPACE, 2)
        Member.gives(1, low, high)
        with Consumer(options | {"warmup.timeout.ms": "0"}) as consumer:
            consumer.subscribe(["t"])
            # Ranges come within a block that nothing has happened in yet.
            with consumer.transaction() as transaction:
                [*records] = consumer.poll_records(0)
                Member.gives(2, low)
                times = Member.polls
                records += consumer.poll_records(0)
                assert Member.polls > times
                assert consumer.assignment() == {FIRST: [SPACE]}
                transaction.send([{"value": b"%d" % r.offset} for r in records], topic="out")
                assert consumer.acknowledge(records) == len(records)
            assert numbers() == sorted(record.offset for record in records)
            consumer.poll(0)
            assert consumer.assignment() == {FIRST: [low]}


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(KeyrangeError, match="CONSUMER_STATE"):
        call()


class TestEnds:
    @pytest.mark.parametrize("end", ["TRANSACTION_ABORTED", "PRODUCER_FENCED", "unheard"])
    def test_what_passes_is_sent_once(self, consumer: Consumer, end: str) -> None:
        Producer.ends += [end]
        sends(consumer, range(10))
        assert numbers() == list(range(10))
        assert consumer.committed(FIRST) == 10

    def test_whom_kafka_has_forgotten_after_a_week_begins_anew(self, consumer: Consumer) -> None:
        sends(consumer, [0])
        known: Any = consumer._holding.transactions
        known._marked_at -= 7 * 86_400
        # As a producer whose transactional id has expired, with its first request.
        del Producer.marks["keyrange:g:a"], known._sender._producer._id
        sends(consumer, range(1, 10))
        assert numbers() == list(range(10))

    def test_what_is_refused_is_undone(self, consumer: Consumer) -> None:
        Producer.ends += ["MESSAGE_TOO_LARGE"]
        with pytest.raises(KeyrangeError, match="MESSAGE_TOO_LARGE"):
            sends(consumer, range(10))
        assert consumer.position(FIRST) == consumer.committed(FIRST) == 0
        sends(consumer, range(10))
        assert numbers() == list(range(10))

    def test_a_claim_that_could_not_be_read_is_read_before_the_next(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
    ) -> None:
        """The producer has begun after whoever took the ranges, and would not be fenced."""
        sends(consumer, [0])
        with Consumer(options | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            Producer.ends += ["PRODUCER_FENCED"]
            with monkeypatch.context() as patched:

                def away(_: object) -> None:
                    raise error("COMMITS_UNREADABLE", "away")

                patched.setattr(CommitLog, "check_holds", away)
                with pytest.raises(KeyrangeError, match="COMMITS_UNREADABLE"):
                    sends(consumer, [1])
            with pytest.raises(KeyrangeError, match="RANGES_LOST"):
                sends(consumer, [1])
            assert numbers() == [0]
            assert other.committed(FIRST) == 1

    def test_a_table_that_cannot_be_written_is_written_next_time(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:

            def away(*_: object) -> None:
                raise error("COMMITS_UNWRITABLE", "away")

            patched.setattr(CommitLog, "write", away)
            with pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE"):
                sends(consumer, range(5))
        assert numbers() == list(range(5))
        assert consumer.committed(FIRST) == 0
        sends(consumer, range(5, 10))
        assert numbers() == list(range(10))
        assert consumer.committed(FIRST) == 10

    @pytest.mark.parametrize(("end", "done"), [("unheard", 2), ("RECORDS_NOT_DELIVERED", 1)])
    def test_after_an_end_that_is_unsure_nothing_is_sent_before_a_claim(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, end: str, done: int
    ) -> None:
        """The next mark would stand in the place of the one that tells whether it is out."""
        sends(consumer, [0])
        with monkeypatch.context() as patched:

            def away(_: object) -> None:
                raise error("RECORDS_NOT_DELIVERED", "no broker")

            patched.setattr(Producer, "start", away)
            Producer.ends += [end]
            with pytest.raises(KeyrangeError, match="RANGES_LOST"):
                sends(consumer, [1])
        assert not consumer.assignment()
        with (
            pytest.raises(KeyrangeError, match=r"RANGES_LOST.*unsure"),
            consumer.transaction() as transaction,
        ):
            transaction.send([{"value": b"7"}], topic="out")
        consumer.assign({FIRST: []})
        assert consumer.committed(FIRST) == done
        sends(consumer, range(done, 10))
        assert numbers() == list(range(10))

    def test_one_that_was_taken_for_dead_leaves_no_mark(
        self, consumer: Consumer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another one has its name, and ended between Kafka and the table."""
        second = Consumer(options)
        second.assign({FIRST: []})
        with monkeypatch.context() as patched:
            patched.setattr(CommitLog, "write", lambda *_: raising())
            with pytest.raises(ZeroDivisionError):
                sends(second, [0, 1])
        mark = Producer.marks["keyrange:g:a"]
        with pytest.raises(KeyrangeError, match="RANGES_LOST"):
            sends(consumer, [0, 1])
        assert Producer.marks["keyrange:g:a"] == mark
        with Consumer(options | {"member.name": "b"}) as third:
            third.assign({FIRST: []})
            assert third.committed(FIRST) == 2
        assert numbers() == [0, 1]

    def test_what_is_sent_just_before_the_fence_is_known(
        self, consumer: Consumer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The claim is over and the producer is not: whoever takes the ranges fences it first, and
        then looks at what was prepared."""
        sends(consumer, [0])
        start, late = Producer.start, [1]

        def begins(producer: Producer) -> Token | None:
            if late:
                late.pop()
                with pytest.raises(KeyrangeError, match="RANGES_LOST"):
                    sends(consumer, [1])
            return start(producer)

        monkeypatch.setattr(Producer, "start", begins)
        with Consumer(options | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            assert other.committed(FIRST) == 2
            assert 1 not in polled(other)
        assert numbers() == [0, 1]

    def test_who_goes_on_under_a_name_that_was_left_is_known_by_it(
        self, world: World, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever fences the claim fences the producer."""
        given = {name: each for name, each in options.items() if name != "member.name"}
        for _ in range(2):
            with Consumer(given | {"memberNames": "dynamic"}) as consumer:
                consumer.assign({FIRST: []})
                sends(consumer, [len(Producer.log)])
                [claim] = consumer._holding.commit_log.claims().values()
                assert claim.marks == "out"
                assert Producer.marks.keys() == {f"keyrange:g:{claim.slot}"}


@pytest.mark.ordinary
def test_an_interrupt_leaves_all_of_a_block_or_nothing(
    world: World, options: dict[str, str], tmp_path: Path
) -> None:
    """Closing the consumer committed what was acknowledged, and its output was not sent."""
    for line in range(0, 10_000, by_form(97, 61, 1)):
        Producer.log, Producer.marks = [], {}
        own = options | {"commitTable": str(tmp_path / f"commits{line}")}
        with Consumer(own) as consumer:
            consumer.assign({FIRST: []})
            where = interrupted(lambda: sends(consumer, range(10)), line)
        with Consumer(own | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            left = polled(other)
        assert sorted(numbers() + left) == list(range(10)), where
        if not where:
            break
    assert line > 500
