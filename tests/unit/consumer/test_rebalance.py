"""A consumer that follows its group: what it lets go of, and what it calls for as the leader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.consumer import rebalance as module
from keyrange.consumer.leader_epoch_agreement import Turn
from keyrange.consumer.member import GroupMembership
from keyrange.consumer.rebalance import Sharing
from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.range_claims import Claim
from keyrange.kafka.cluster_view import ClusterView, Topic
from keyrange.members.model.consumer_messages import Interest, Share, read_interest, write_share
from keyrange.members.model.group_member_states import GroupState
from keyrange.members.range_listener import KeyRangeListener
from keyrange.model.key_ranges import SPACE, KeyRange, split_evenly
from keyrange.model.offsets import TopicPartition

FIRST = TopicPartition("t", 0)
LOW, HIGH = split_evenly(SPACE, 2)


class Stage:
    """One consumer, `a`, whose group, table, cluster and clock a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pattern: str = "") -> None:
        self.now_s = 100.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        # What it holds.
        self.spans: dict[TopicPartition, list[KeyRange]] = {}
        self.epoch, self.ready, self.claims = 0, True, dict[str, Claim]()
        self.commit_log = SimpleNamespace(claims=lambda: self.claims)
        self.cluster: Any = self
        # Its membership.
        self.seen, self.rejoins, self.looks = GroupMembership(), 0, 0
        # As the leader.
        self.due_at_ms: int | None = None
        self.partitions, self.there = frozenset({FIRST}), 1
        self.failure: Exception | None = None
        self.contacted = False
        # Up to which epoch others have claimed.
        self.outrun_until = 0
        # What a pattern may match, what was asked for, and what it has said of itself since.
        self.topics, self.asked = ["t"], list[list[str]]()
        self.introduced: list[bytes] = []
        stands_for: Any = self
        interest = Interest("a", (() if pattern else ("t",)), pattern=pattern)
        self.sharing = Sharing(stands_for, stands_for, interest, 30_000, 5_000, stands_for)

    def has_answered(self) -> None:
        self.contacted = True

    def describe(self, topics: Any) -> ClusterView:
        self.asked.append(sorted(topics))
        if self.failure is not None:
            raise self.failure
        leaders: Any = dict.fromkeys(range(self.there))
        return ClusterView("", {}, {"t": Topic("", leaders)})

    def describe_matching(self, matches: Callable[[str], bool]) -> ClusterView:
        if self.failure is not None:
            raise self.failure
        leaders: Any = dict.fromkeys(range(self.there))
        found = [topic for topic in self.topics if matches(topic)]
        return ClusterView("", {}, {topic: Topic("", leaders) for topic in found})

    def introduce(self, metadata: bytes) -> None:
        self.introduced.append(metadata)

    def drop(self) -> None:
        self.spans = {}

    def move(self, _: Any, wanted: Any, __: Any, turn: Turn) -> Any:
        if self.outrun_until >= (turn.epoch or 0):
            raise error("RANGES_LOST", f"epoch {turn.epoch} is over")
        self.spans, self.epoch, self.ready = dict(wanted), turn.epoch or 0, turn.ready
        return wanted

    def polled(self) -> None: ...

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def rejoin(self) -> None:
        self.rejoins += 1

    def look(self) -> None:
        self.looks += 1

    def told(self, share: Share, leads: bool = False) -> None:
        self.seen = GroupMembership(GroupState.STABLE, 1, leads, write_share(share))
        self.step()

    def step(self, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.sharing.step(KeyRangeListener())


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def share(epoch: int, span: KeyRange, members: str, receivers: str = "", leader: str = "") -> Share:
    return Share(epoch, {FIRST: [span]}, frozenset(members), frozenset(receivers), leader)


def test_who_has_a_share_has_met_its_brokers(stage: Stage) -> None:
    """Where they go away before it has read anything they are waited for all the same."""
    stage.step()
    assert not stage.contacted
    stage.failure = error("BROKER_UNREACHABLE", "no broker answers")
    with pytest.raises(KeyrangeError, match="BROKER_UNREACHABLE"):
        stage.told(share(1, SPACE, "a"))
    assert stage.contacted


def test_a_topic_that_is_away_while_ranges_move_is_waited_for(stage: Stage) -> None:
    """As while somebody creates it anew: the group would lose all its consumers at once."""
    stage.told(share(1, LOW, "ab"))
    stage.failure = error("UNKNOWN_TOPIC_OR_PARTITION", "the cluster has no topic named t")
    stage.told(share(2, SPACE, "a"))
    stage.step(after_s=2)
    assert stage.spans == {FIRST: [LOW]}

    stage.failure = None
    stage.step(after_s=2)
    assert stage.spans == {FIRST: [SPACE]}


def test_what_moves_waits_for_its_heir_whoever_else_comes(stage: Stage) -> None:
    stage.told(share(1, SPACE, "a"))
    assert stage.spans == {FIRST: [SPACE]}
    stage.told(share(2, LOW, "ab", receivers="b"))
    assert stage.spans == {FIRST: [SPACE]}
    # Another one joins and is gathered: the same assignment once more.
    stage.told(share(2, LOW, "abc"))
    stage.step(after_s=10)
    assert stage.spans == {FIRST: [SPACE]}

    stage.claims = {"consumer/g/b": Claim("b", 2)}
    stage.step(after_s=1)
    assert stage.spans == {FIRST: [LOW]}


def test_what_moves_does_so_at_the_latest_after_the_warm_up(stage: Stage) -> None:
    stage.told(share(1, SPACE, "a"))
    stage.told(share(2, LOW, "ab", receivers="b"))
    stage.step(after_s=15)
    stage.told(share(2, LOW, "abc"))
    stage.step(after_s=14)
    assert stage.spans == {FIRST: [SPACE]}
    stage.step(after_s=2)
    assert stage.spans == {FIRST: [LOW]}


@pytest.mark.parametrize(("leads", "leader"), [(True, "a"), (False, "a"), (True, "b")])
def test_a_leader_calls_for_what_is_due(stage: Stage, leads: bool, leader: str) -> None:
    stage.told(share(1, SPACE, "a", leader=leader), leads)
    stage.due_at_ms = stage.now_ms() + 2_000
    stage.step(after_s=1.5)
    assert stage.rejoins == 0
    # And again, until it is done: a rebalance under way takes no other.
    for rejoins in (1, 2):
        stage.step(after_s=1.5)
        assert stage.rejoins == rejoins
    stage.step(after_s=0.2)
    assert stage.rejoins == 2
    stage.due_at_ms = None
    stage.step(after_s=1.5)
    assert stage.rejoins == 2


def test_nobody_else_does(stage: Stage) -> None:
    stage.told(share(1, SPACE, "ab", leader="b"))
    stage.due_at_ms, stage.there = 0, 2
    stage.step(after_s=60)

    assert (stage.rejoins, stage.looks) == (0, 0)


def test_a_leader_looks_for_partitions_that_nobody_has(stage: Stage) -> None:
    stage.told(share(1, SPACE, "a"), leads=True)
    stage.there = 2
    stage.step(after_s=4)
    assert stage.rejoins == 0
    stage.failure = error("BROKER_UNREACHABLE", "nobody answers")
    stage.step(after_s=2)
    assert stage.rejoins == 0
    stage.failure = None
    stage.step(after_s=6)
    assert stage.rejoins == 1


def test_a_leader_looks_at_the_table_now_and_then(stage: Stage) -> None:
    stage.told(share(1, SPACE, "a"), leads=True)
    for _ in range(10):
        stage.step(after_s=2.5)

    assert stage.looks == 3


def test_an_assignment_of_an_earlier_life_that_read_other_topics_is_not_followed(
    stage: Stage,
) -> None:
    """A static name that is back within its session joins no new generation: another one has to
    be called for."""
    stage.told(replace(share(3, SPACE, "a"), wish=Interest("a", ("other",)).wish))
    stage.step(after_s=2)
    assert (stage.spans, stage.contacted) == ({}, True)
    assert [read_interest(each) for each in stage.introduced] == [Interest("a", ("t",), times=1)]
    stage.told(replace(share(4, SPACE, "a"), wish=Interest("a", ("t",)).wish))
    assert stage.spans == {FIRST: [SPACE]}
    assert len(stage.introduced) == 1


@pytest.mark.parametrize("leads", [True, False])
def test_whoever_was_outrun_calls_for_a_later_epoch(stage: Stage, leads: bool) -> None:
    """`assign` takes ranges without the group's leader, which knows of nothing to do."""
    stage.outrun_until = 6
    stage.told(share(5, SPACE, "ab", leader="a" if leads else "b"), leads)
    for _ in range(3):
        stage.step(after_s=1.5)
    # A follower that only joins once more gets the same assignment again.
    said = [read_interest(each) for each in stage.introduced]
    assert said == ([] if leads else [Interest("a", ("t",), times=1)])
    assert (stage.rejoins > 1) is leads
    stage.told(share(7, SPACE, "ab", leader="a" if leads else "b"), leads)
    assert stage.spans == {FIRST: [SPACE]}


class TestPattern:
    @pytest.fixture
    def stage(self, monkeypatch: pytest.MonkeyPatch) -> Stage:
        stage = Stage(monkeypatch, "t.*")
        stage.told(share(1, SPACE, "ab", leader="b"))
        stage.step(after_s=6)
        return stage

    def test_who_finds_another_topic_tells_the_group_once(self, stage: Stage) -> None:
        assert [read_interest(each) for each in stage.introduced] == [
            Interest("a", ("t",), pattern="t.*")
        ]
        assert stage.sharing.topics == ("t",)
        stage.topics = ["t", "t2", "other"]
        stage.step(after_s=4)
        assert len(stage.introduced) == 1
        stage.step(after_s=2)
        stage.step(after_s=6)
        assert read_interest(stage.introduced[-1]) == Interest("a", ("t", "t2"), pattern="t.*")
        assert (len(stage.introduced), stage.rejoins) == (2, 0)
        assert stage.sharing.topics == ("t", "t2")

    def test_who_cannot_look_looks_again(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.topics = []
        stage.failure = error("BROKER_UNREACHABLE", "nobody answers")
        stage.step(after_s=6)
        assert "cannot see what is due" in caplog.text
        stage.failure = None
        stage.step(after_s=6)
        assert stage.sharing.topics == ()

    def test_more_topics_than_a_member_may_name_are_not_told(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        stage.topics = [f"topic-{number:04}" for number in range(500)]
        stage.step(after_s=6)
        assert "INVALID_ASSIGNMENT" in caplog.text
        assert stage.sharing.topics == ("t",)

    def test_only_topics_of_the_share_have_to_be_there(self, stage: Stage) -> None:
        stage.topics = ["t", "t2"]
        stage.step(after_s=6)
        stage.asked.clear()
        stage.told(share(2, LOW, "ab", leader="b"))
        assert stage.asked == [["t"]]

    def test_a_leader_looks_for_partitions_that_nobody_has(self, stage: Stage) -> None:
        stage.told(share(2, SPACE, "a"), leads=True)
        stage.there = 2
        stage.step(after_s=6)
        assert stage.rejoins == 1
