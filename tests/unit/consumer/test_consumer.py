"""`keyrange.Consumer` by its methods, over a scripted broker."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition

from brokers.scripted_broker import Fetched, ScriptedCluster, World
from keyrange.consumer import consumer_positions, left_names
from keyrange.consumer import rebalance as rebalance_module
from keyrange.consumer.api import Consumer
from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.member import GroupMembership
from keyrange.errors import KeyrangeError, error
from keyrange.members.model.consumer_messages import Interest, Share, read_interest, write_share
from keyrange.members.model.group_member_states import GroupState
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE
from queries.scripted_consumer import FIRST, a_key_each, options_at
from samples.strategies import Batch, Record, encode_batch


class Member:
    """Stands for the membership's thread: the group gives each what it asks for."""

    made: list[Member]

    def __init__(self, settings: Any, *_: Any) -> None:
        Member.made.append(self)
        self.settings = settings
        self.polls, self.is_closed = 0, False
        share = Share(len(Member.made), {FIRST: [SPACE]}, frozenset("ab"), frozenset(), "z")
        self.seen = GroupMembership(GroupState.STABLE, 1, False, write_share(share))

    def polled(self) -> None:
        self.polls += 1

    def close(self) -> None:
        self.is_closed = True

    def now_ms(self) -> int:
        return 0


class Listener(KeyRangeListener):
    """Notes what it hears. Where ranges are revoked it does what a test says."""

    def __init__(self, revoked: Callable[[], object] = lambda: None) -> None:
        self.heard: list[str] = []
        self._revoked = revoked

    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self.heard.append("assigned")

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        assert ranges == {FIRST: [SPACE]}
        self.heard.append("revoked")
        self._revoked()


class Minding(Listener):
    """Minds what is lost."""

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self.heard.append("lost")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A log of ten records, and a group that is always there."""
    world = World(lambda _node, _partition, offset: a_key_each(offset, 10), latest=10)
    Member.made = []
    for module in (consumer_positions, rebalance_module):
        monkeypatch.setattr(module, "Cluster", lambda _: ScriptedCluster(world))
    monkeypatch.setattr(rebalance_module, "MemberThread", Member)
    monkeypatch.setattr(rebalance_module, "check_session_timeout", lambda *_: None)
    group = SimpleNamespace(is_rebalancing=False, members=())
    monkeypatch.setattr(left_names, "describe_members", lambda *_: group)
    return world


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return options_at(tmp_path, **{"member.name": "a"})


@pytest.fixture
def consumer(world: World, options: dict[str, str]) -> Iterator[Consumer]:
    with Consumer(options) as consumer:
        yield consumer


def polled(consumer: Consumer) -> list[int]:
    """The offsets of all that comes now."""
    found: list[int] = []
    while records := consumer.poll_records(0):
        found += [record.offset for record in records]
    return found


@pytest.mark.parametrize(
    "name", ["committed", "pause", "paused", "position", "resume", "seek", "subscription"]
)
def test_what_kafka_python_has_too_is_called_alike(name: str) -> None:
    ours, theirs = (
        [
            (each.name, each.kind)
            for each in inspect.signature(getattr(consumer, name)).parameters.values()
        ]
        for consumer in (Consumer, KafkaConsumer)
    )
    # Theirs may have more, all of it with a default.
    assert ours == theirs[: len(ours)]


class TestPositions:
    def test_partitions_may_be_kafka_python_s_or_plain_pairs(self, consumer: Consumer) -> None:
        consumer.assign({FIRST: []})
        assert polled(consumer) == list(range(10))
        consumer.seek(KafkaPartition("t", 0), 7)
        assert consumer.position(("t", 0)) == 7
        assert consumer.committed(("t", 0)) == 0
        consumer.pause(("t", 0))
        assert consumer.paused() == {FIRST}
        assert polled(consumer) == []
        consumer.resume(KafkaPartition("t", 0))
        assert consumer.paused() == set()
        assert polled(consumer) == [7, 8, 9]

    def test_a_listener_may_seek_where_ranges_are_assigned(self, consumer: Consumer) -> None:
        class Seeking(KeyRangeListener):
            def on_key_ranges_assigned(self, ranges: Any) -> None:
                for partition in ranges:
                    consumer.seek(partition, 8)

        consumer.subscribe(["t"], Seeking())
        assert polled(consumer) == [8, 9]

    def test_an_offset_is_a_whole_number(self, consumer: Consumer) -> None:
        consumer.assign({FIRST: []})
        assert polled(consumer) == list(range(10))
        wrong: Any
        for wrong in ("1", 1.5, None, True, -1, 2**63, np.float64(1)):
            with pytest.raises(KeyrangeError, match="INVALID_OFFSET"):
                consumer.seek(FIRST, wrong)
            with pytest.raises(KeyrangeError, match="INVALID_OFFSET"):
                consumer.acknowledge(FIRST, [0, wrong])
        assert consumer.acknowledge(FIRST, np.arange(3)) == 3

    def test_who_is_no_member_any_more_waits_before_it_says_so(self, consumer: Consumer) -> None:
        """A program that catches the error and polls again did so 60,000 times a second."""
        consumer.subscribe(["t"])
        assert polled(consumer) == list(range(10))
        Member.made[0].seen = GroupMembership(GroupState.FENCED, failure="it is fenced", ended=True)
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(KeyrangeError, match=r"MEMBERSHIP_ENDED.*it is fenced"):
                consumer.poll(150)
        assert time.monotonic() - began >= 0.3
        assert consumer.assignment() == {}

    @pytest.mark.parametrize("name", ["pause", "resume", "position", "seek"])
    def test_they_are_for_what_is_assigned(self, consumer: Consumer, name: str) -> None:
        arguments = (FIRST, 0) if name == "seek" else (FIRST,)
        with pytest.raises(KeyrangeError, match="CONSUMER_STATE"):
            getattr(consumer, name)(*arguments)


class TestStillWorking:
    def test_it_counts_as_a_poll(self, consumer: Consumer) -> None:
        consumer.still_working()
        consumer.subscribe(["t"])
        polled(consumer)
        [member] = Member.made
        before = member.polls
        consumer.still_working()
        assert member.polls == before + 1


class TestSubscribe:
    @pytest.mark.parametrize(
        "arguments",
        [{}, {"topics": "t"}, {"topics": ["t"], "pattern": "t"}, {"pattern": "("}, {"pattern": ""}],
    )
    def test_it_takes_topics_or_a_pattern(self, consumer: Consumer, arguments: Any) -> None:
        with pytest.raises(KeyrangeError, match=r"CONSUMER_STATE.*subscribe"):
            consumer.subscribe(**arguments)
        assert Member.made == []

    @pytest.mark.parametrize(
        ("pattern", "found"), [("t", {"t"}), (".", {"t"}), ("tt?", {"t"}), ("x.*", {})]
    )
    def test_a_pattern_is_of_the_whole_name(
        self, consumer: Consumer, pattern: str, found: Any
    ) -> None:
        consumer.subscribe(pattern=pattern)
        [member] = Member.made
        interest = read_interest(member.settings.metadata)
        assert isinstance(interest, Interest)
        assert (interest.pattern, set(interest.topics)) == (pattern, set(found))
        assert consumer.subscription() == set(found)

    def test_twice_is_once_too_often(self, consumer: Consumer) -> None:
        consumer.subscribe(["t"])
        for call in (lambda: consumer.subscribe(["t"]), lambda: consumer.assign({FIRST: []})):
            with pytest.raises(KeyrangeError, match=r"CONSUMER_STATE.*unsubscribe"):
                call()


class TestUnsubscribe:
    def test_what_is_acknowledged_counts_and_the_group_is_left(
        self, consumer: Consumer, options: dict[str, str]
    ) -> None:
        listener = Listener(lambda: consumer.acknowledge(FIRST, [5]))
        consumer.subscribe(["t"], listener)
        assert polled(consumer) == list(range(10))
        consumer.acknowledge(FIRST, [0, 1])
        consumer.pause(FIRST)
        consumer.unsubscribe()
        assert Member.made[0].is_closed
        assert listener.heard == ["assigned", "revoked"]
        assert (consumer.assignment(), consumer.subscription()) == ({}, set())
        assert consumer.paused() == set()
        # What comes late counts for nothing, as of any range that is gone.
        assert consumer.acknowledge(FIRST, [7]) == 0
        with pytest.raises(KeyrangeError, match=r"CONSUMER_STATE.*before assign or subscribe"):
            consumer.poll(0)
        with Consumer(options | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            assert polled(other) == [2, 3, 4, 6, 7, 8, 9]

    @pytest.mark.parametrize("name", ["a", ""])
    def test_another_subscription_may_follow(
        self, world: World, options: dict[str, str], name: str
    ) -> None:
        """Under the same name, or under another one where the name may be another's now."""
        named = {"member.name": name} if name else {"memberNames": "dynamic"}
        del options["member.name"]
        with Consumer(options | named) as consumer:
            consumer.subscribe(["t"])
            consumer.acknowledge(FIRST, polled(consumer)[:4])
            consumer.unsubscribe()
            consumer.unsubscribe()
            consumer.assign({FIRST: []})
            assert polled(consumer) == list(range(4, 10))
            consumer.unsubscribe()
            consumer.subscribe(pattern="t")
            assert polled(consumer) == list(range(4, 10))
            consumer.acknowledge(FIRST, range(4, 10))
            assert consumer.commit() == {FIRST: 10}
        assert [each.is_closed for each in Member.made] == [True, True]

    def test_a_name_of_nobody_s_is_free_for_others(
        self, world: World, options: dict[str, str]
    ) -> None:
        del options["member.name"]
        options["memberNames"] = "dynamic"
        first, second = Consumer(options), Consumer(options)
        first.subscribe(["t"])
        polled(first)
        before = first._name.name
        first.unsubscribe()
        second.assign({FIRST: []})
        assert second._name.name == before
        first.subscribe(["t"])
        assert first._name.name != before
        for each in (first, second):
            each._assigned = False
            each.close()

    @pytest.mark.parametrize("has_work", [True, False])
    @pytest.mark.parametrize("minds", [True, False])
    def test_where_another_has_the_ranges_it_ends_all_the_same(
        self, consumer: Consumer, options: dict[str, str], has_work: bool, minds: bool
    ) -> None:
        listener = Minding() if minds else Listener()
        consumer.subscribe(["t"], listener)
        handed = polled(consumer)
        consumer.acknowledge(FIRST, handed if has_work else [])
        with Consumer(options | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            consumer.unsubscribe()
            assert polled(other) == list(range(10))
        assert listener.heard == ["assigned", "lost" if minds else "revoked"]
        assert Member.made[0].is_closed

    def test_while_nothing_can_be_committed_nothing_is_let_go_of(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise error("COMMITS_UNWRITABLE", "the store is away")

        consumer.subscribe(["t"])
        consumer.acknowledge(FIRST, polled(consumer))
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(CommitLog, "commit", fails)
            with pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE"):
                consumer.unsubscribe()
        assert consumer.assignment() == {FIRST: [SPACE]}
        assert not Member.made[0].is_closed


class TestLost:
    def test_a_listener_that_minds_only_what_is_revoked_hears_what_is_lost(self) -> None:
        listener = Listener()
        listener.on_key_ranges_lost({FIRST: [SPACE]})
        assert listener.heard == ["revoked"]

    def test_it_may_commit_there_as_with_kafka(
        self, consumer: Consumer, options: dict[str, str]
    ) -> None:
        listener = Listener(lambda: (consumer.acknowledge(FIRST, range(10)), consumer.commit()))
        consumer.assign({FIRST: []}, listener)
        assert polled(consumer) == list(range(10))
        consumer.acknowledge(FIRST, [0])
        with Consumer(options | {"member.name": "b"}) as other:
            other.assign({FIRST: []})
            with pytest.raises(KeyrangeError, match="RANGES_LOST"):
                consumer.commit()
            assert polled(other) == list(range(10))
        assert listener.heard == ["assigned", "revoked"]


class TestRecordsThatCannotBeRead:
    """What `poll` could not return comes again before what lies behind it."""

    def test_a_bad_value_is_raised_until_it_is_acknowledged(
        self, world: World, options: dict[str, str]
    ) -> None:
        def one_key(_node: int, _partition: int, offset: int) -> Fetched:
            values = [b"bad" if n == 5 else b'{"n": %d}' % n for n in range(offset, 10)]
            records = (Record(n, key=b"k", value=each) for n, each in enumerate(values))
            return Fetched(encode_batch(Batch(offset, tuple(records))), 10)

        world.script = one_key
        given = {"valueFormat": "json", "valueSchema": "n int", "maxBatchRows": "4"}
        with Consumer(options | given) as consumer:
            consumer.assign({FIRST: []})
            assert [each.offset for each in consumer.poll_records(0)] == [0, 1, 2, 3]
            for _ in range(2):
                with pytest.raises(KeyrangeError, match="BAD_VALUE"):
                    consumer.poll(0)
                assert consumer.position(FIRST) == 4
            assert consumer.acknowledge(FIRST, [5]) == 1
            assert polled(consumer) == [4, 6, 7, 8, 9]
            assert consumer.acknowledge(FIRST, range(10)) == 9
            assert consumer.commit() == {FIRST: 10}

    def test_what_was_read_before_a_bad_value_is_returned(
        self, world: World, options: dict[str, str]
    ) -> None:
        def small_batches(_node: int, _partition: int, offset: int) -> Fetched:
            value = b"bad" if offset == 2 else b'{"n": 1}'
            return Fetched(encode_batch(Batch(offset, (Record(value=value),))), 10)

        world.script = small_batches
        with Consumer(options | {"valueFormat": "json", "valueSchema": "n int"}) as consumer:
            consumer.assign({FIRST: []})
            assert [each.offset for each in consumer.poll_records(10_000)] == [0, 1]
            with pytest.raises(KeyrangeError, match="BAD_VALUE"):
                consumer.poll(0)

    def test_a_time_that_python_does_not_know_hides_no_records(
        self, world: World, consumer: Consumer
    ) -> None:
        def far_away(_node: int, _partition: int, offset: int) -> Fetched:
            records = tuple(Record(n) for n in range(10 - offset))
            return Fetched(encode_batch(Batch(offset, records, base_timestamp=10**15)), 10)

        world.script = far_away
        consumer.assign({FIRST: []})
        with pytest.raises((OverflowError, ValueError)):
            consumer.poll_records(0)
        [batch] = consumer.poll(0)
        assert batch.column("offset").to_pylist() == list(range(10))

    def test_what_an_interrupt_takes_from_a_poll_comes_with_the_next_one(
        self, world: World, consumer: Consumer
    ) -> None:
        def interrupted(_node: int, _partition: int, offset: int) -> Fetched:
            if offset == 1 and world.asked.count((1, 0, 1)) == 1:
                raise KeyboardInterrupt
            return Fetched(encode_batch(Batch(offset, (Record(),))), 10)

        world.script = interrupted
        consumer.assign({FIRST: []})
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(10_000)
        assert consumer.position(FIRST) == 0
        assert polled(consumer) == list(range(10))
