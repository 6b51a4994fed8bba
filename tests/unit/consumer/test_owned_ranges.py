"""What a consumer holds when a range cannot be taken: nothing that another may take meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from keyrange.consumer import commit_log as commit_log_module
from keyrange.consumer import owned_ranges as module
from keyrange.consumer.api import Consumer
from keyrange.consumer.member import GroupMembership
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.rebalance import Sharing
from keyrange.consumer.settings import parse_consumer_options
from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView, Topic
from keyrange.members.model.consumer_messages import Interest, Share, write_share
from keyrange.members.model.group_member_states import GroupState
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import OffsetRange, TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
AWAY = error("BROKER_UNREACHABLE", "no broker answers")
LEADERS: Any = {0: 0, 1: 0}
VIEW = ClusterView("", {}, {"t": Topic("", LEADERS)})


class Reading:
    """Stands for the brokers, that may be away."""

    away = False

    def __init__(self, *_: object) -> None:
        self.cut_back: dict[TopicPartition, OffsetRange] = {}

    def follow(self, *_: object) -> None: ...

    def check(self, _: object) -> None:
        if Reading.away:
            raise AWAY


class Listener(KeyRangeListener):
    def __init__(self) -> None:
        self.told: list[tuple[str, list[TopicPartition]]] = []

    def on_key_ranges_assigned(self, ranges: Any) -> None:
        self.told.append(("assigned", sorted(ranges)))

    def on_key_ranges_revoked(self, ranges: Any) -> None:
        self.told.append(("revoked", sorted(ranges)))

    def on_key_ranges_lost(self, ranges: Any) -> None:
        self.told.append(("lost", sorted(ranges)))


class Member:
    """A consumer of the group g that shares topic t."""

    def __init__(self, options: dict[str, str], slot: str) -> None:
        cluster: Any = SimpleNamespace(has_answered=lambda: None, describe=lambda *_: VIEW)
        self.holding = OwnedRanges(parse_consumer_options(options), cluster, slot)
        self.seen = GroupMembership()
        self.listener = Listener()
        stands_for: Any = self
        leader: Any = SimpleNamespace()
        self.sharing = Sharing(self.holding, stands_for, Interest(slot, ("t",)), 0, 300_000, leader)

    def polled(self) -> None: ...

    def step(self) -> None:
        self.sharing._look_at_s = 0.0
        self.sharing.step(self.listener)

    def told(self, epoch: int, *partitions: TopicPartition) -> None:
        ranges = {each: [SPACE] for each in partitions}
        share = Share(epoch, ranges, frozenset("ab"), frozenset(), "z")
        self.seen = GroupMembership(GroupState.STABLE, 1, False, write_share(share))
        self.step()


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(Reading, "away", False)
    monkeypatch.setattr(module, "OwnedRangeReader", Reading)
    monkeypatch.setattr(Cluster, "describe", lambda *_: VIEW)
    monkeypatch.setattr(
        OwnedRanges, "_begin", lambda _self, wanted, _later: dict.fromkeys(wanted, 0)
    )
    return {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "commitTable": str(tmp_path / "commits"),
        "commitGroup": "g",
        "memberNames": "dynamic",
        "mirrorOffsets": "false",
    }


def hand_out(
    holding: OwnedRanges, partition: TopicPartition
) -> np.ndarray[Any, np.dtype[np.int64]]:
    work, offsets = holding._works[partition], np.arange(10)
    work.hand_out(offsets, offsets * 1_000, {}, 0, 0)
    work.advance(SPACE, 0, 10)
    return offsets


def test_who_could_not_take_its_share_holds_nothing_until_it_has(options: dict[str, str]) -> None:
    a, b = Member(options, "a"), Member(options, "b")
    a.told(1, FIRST, SECOND)
    offsets = hand_out(a.holding, SECOND)

    Reading.away = True
    with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
        a.told(2, FIRST)
    Reading.away = False
    b.told(2, SECOND)
    assert a.holding.spans == {}
    assert b.holding.spans == {SECOND: [SPACE]}
    # What is acknowledged late counts for nobody, as after any other loss.
    assert a.holding.acknowledge(SECOND, offsets) == 0

    a.step()
    assert a.holding.spans == {FIRST: [SPACE]}
    hand_out(a.holding, FIRST)
    assert a.holding.acknowledge(FIRST, offsets) == 10
    assert a.holding.commit() == {FIRST: 10}
    assert a.listener.told == [
        ("assigned", [FIRST, SECOND]),
        ("revoked", [SECOND]),
        ("lost", [FIRST]),
        ("assigned", [FIRST]),
    ]


def test_a_claim_that_cannot_be_looked_at_again_is_dropped_too(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Member(options, "a")
    a.told(1, FIRST, SECOND)
    offsets = hand_out(a.holding, SECOND)

    def unreadable(*_: object) -> bool:
        raise error("COMMITS_UNREADABLE", "the store is away")

    with monkeypatch.context() as once:
        once.setattr(commit_log_module, "is_alone", unreadable)
        with pytest.raises(KeyrangeError, match="COMMITS_UNREADABLE"):
            a.told(2, FIRST)
    assert a.holding.acknowledge(SECOND, offsets) == 0
    a.step()
    assert a.holding.spans == {FIRST: [SPACE]}
    assert a.holding.commit() == {FIRST: 0}


def test_an_assignment_that_fails_tells_what_was_lost(options: dict[str, str]) -> None:
    listener = Listener()
    with Consumer(options) as consumer:
        consumer.assign({FIRST: [], SECOND: []}, listener)
        Reading.away = True
        with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
            consumer.assign({FIRST: []})
        assert consumer.assignment() == {}
        assert consumer.commit() == {}
        Reading.away = False
        consumer.assign({FIRST: []})
        assert consumer.assignment() == {FIRST: [SPACE]}
    assert listener.told == [
        ("assigned", [FIRST, SECOND]),
        ("revoked", [SECOND]),
        ("lost", [FIRST]),
        ("assigned", [FIRST]),
    ]


def unwritable(*_: object) -> None:
    raise error("COMMITS_UNWRITABLE", "the store is away")


def test_while_nothing_can_be_committed_a_share_is_kept(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = Member(options, "a")
    a.told(1, FIRST, SECOND)
    a.holding.acknowledge(SECOND, hand_out(a.holding, SECOND))
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(commit_log_module.CommitLog, "commit", unwritable)
        with pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE"):
            a.told(2, FIRST)
    assert a.holding.spans == {FIRST: [SPACE], SECOND: [SPACE]}
    a.step()
    assert a.listener.told == [("assigned", [FIRST, SECOND]), ("revoked", [SECOND])]


def test_while_no_broker_answers_a_share_is_kept(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> ClusterView:
        raise AWAY

    a = Member(options, "a")
    a.told(1, FIRST, SECOND)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(a.holding.cluster, "describe", away)
        with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
            a.told(2, FIRST)
    assert a.holding.spans == {FIRST: [SPACE], SECOND: [SPACE]}
    assert a.listener.told == [("assigned", [FIRST, SECOND])]


def test_an_assignment_whose_last_commit_fails_leaves_nothing_behind(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the listener acknowledges when it is told is committed behind its call."""

    class Late(Listener):
        def on_key_ranges_revoked(self, ranges: Any) -> None:
            super().on_key_ranges_revoked(ranges)
            consumer.acknowledge(SECOND, offsets)
            meanwhile.setattr(commit_log_module.CommitLog, "commit", unwritable)

    listener = Late()
    with Consumer(options) as consumer:
        consumer.assign({FIRST: [], SECOND: []}, listener)
        offsets = hand_out(consumer._holding, SECOND)
        failing = pytest.raises(KeyrangeError, match="COMMITS_UNWRITABLE")
        with monkeypatch.context() as meanwhile, failing:
            consumer.assign({FIRST: []})
        assert consumer.assignment() == {}
    assert listener.told[1:] == [("revoked", [SECOND]), ("lost", [FIRST])]
