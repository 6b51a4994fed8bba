"""The leader of a group of consumers: who gets which ranges when, over a real table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from keyrange.consumer import group_leader as module
from keyrange.consumer.group_leader import GroupLeader
from keyrange.consumer.settings import parse_consumer_options
from keyrange.errors import error
from keyrange.kafka.cluster_view import Broker, ClusterView, Topic
from keyrange.kafka.cluster_view import Leader as PartitionLeader
from keyrange.members.model.consumer_messages import Interest, Share, read_share, write_interest
from keyrange.members.model.group_messages import Peer
from keyrange.members.table.assignment_admin import open_members, write_command
from keyrange.members.table.assignments import AssignmentTable, open_assignments
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import LATEST, TopicPartition

MINUTE = 60_000


class FakeCluster:
    """Topics with how many records each of their partitions holds."""

    def __init__(self) -> None:
        self.held = {"t": [0, 0, 0, 0]}
        self.failure: Exception | None = None

    def describe(self, topics: Any, may_miss: Any = ()) -> ClusterView:
        found = {
            name: Topic("", {at: PartitionLeader(0, 0) for at in range(len(self.held[name]))})
            for name in topics
            if name in self.held
        }
        return ClusterView("", {0: Broker(0, "h", 1)}, found)

    def describe_matching(self, matches: Any) -> ClusterView:
        return self.describe([name for name in self.held if matches(name)])

    def list_offsets(
        self, _: ClusterView, wanted: Mapping[TopicPartition, int], timeout_ms: Any = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        assert timeout_ms
        if self.failure is not None:
            raise self.failure
        return {
            p: (7 + (self.held[p.topic][p.partition] if at == LATEST else 0), 0)
            for p, at in wanted.items()
        }


class FakeCommitLog:
    def claims(self) -> dict[str, Any]:
        return {}


class Stage:
    """Leaders over one table, whose group and clock a test sets."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now_ms, self.cluster = path, 1_000_000, FakeCluster()
        monkeypatch.setattr(module, "passed_ms", lambda: self.now_ms)

    def leader(self, slot: str = "a", pattern: str = "", **given: str) -> GroupLeader:
        settings = parse_consumer_options(
            {
                "kafka.bootstrap.servers": "h:1",
                "commitTable": str(self.path),
                "commitGroup": "g",
                "registration.timeout.ms": str(15 * MINUTE),
                "expansion.timeout.ms": str(5 * MINUTE),
                **given,
            }
        )
        log: Any = FakeCommitLog()
        return GroupLeader(settings, self.cluster, log, slot, pattern)  # type: ignore[arg-type]

    def deal(
        self, leader: GroupLeader, *names: str, minute: float = 0, pattern: str = "", **topics: str
    ) -> dict[str, Share]:
        """The shares of a group; a name with ~ before it is a dynamic one. `topics` are those of a
        name that reads another than t; all have the same `pattern`."""
        self.now_ms = 1_000_000 + int(minute * MINUTE)
        peers = [
            Peer(
                f"id-{name}",
                None if name.startswith("~") else name,
                write_interest(
                    Interest(name, (topics.get(name, "t"),), "host", 1, "option", pattern)
                ),
            )
            for name in names
        ]
        found = leader(peers)
        return {name: read_share(found[f"id-{name}"]) for name in names}

    @property
    def table(self) -> AssignmentTable:
        return open_assignments(f"{self.path}_members", "g", {})

    def due(self, leader: GroupLeader) -> float | None:
        """In which minute something is due."""
        due_ms = leader.due_at_ms
        return None if due_ms is None else (due_ms - 1_000_000) / MINUTE


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path / "commits", monkeypatch)


def hashes(share: Share) -> int:
    return sum(span.size for spans in share.ranges.values() for span in spans)


def settled(stage: Stage, leader: GroupLeader, *names: str) -> dict[str, Share]:
    """A group whose members have been taken in."""
    stage.deal(leader, *names, minute=-10)
    return stage.deal(leader, *names, minute=-5)


def test_the_first_has_all_at_once_and_who_joins_is_gathered(stage: Stage) -> None:
    leader = stage.leader()
    alone = stage.deal(leader, "a", minute=-1)
    assert (alone["a"].epoch, hashes(alone["a"])) == (1, 4 * SPACE.size)
    assert stage.due(leader) is None

    # The proposal's: joins at 00:00 and 00:03 are one reassignment at 00:05.
    for minute, names in ((0, "ab"), (3, "abc"), (4.9, "abc")):
        assert stage.deal(leader, *names, minute=minute)["a"] == Share(
            1, alone["a"].ranges, frozenset(names), frozenset(), "a", alone["a"].wish
        )
        assert stage.due(leader) == 5
    shares = stage.deal(leader, "a", "b", "c", minute=5)
    assert {share.epoch for share in shares.values()} == {2}
    assert sum(map(hashes, shares.values())) == 4 * SPACE.size
    assert shares["a"].receivers == {"b", "c"}

    # A join at 00:06 is one at 00:11.
    stage.deal(leader, "a", "b", "c", "d", minute=6)
    assert stage.due(leader) == 11
    assert stage.deal(leader, "a", "b", "c", "d", minute=11)["d"].epoch == 3


def test_who_is_away_keeps_its_ranges_until_the_timeout(stage: Stage) -> None:
    """The proposal's: A away 00:00, B away 00:10, A back 00:14: one reassignment at 00:25."""
    leader = stage.leader("c")
    before = settled(stage, leader, "a", "b", "c")
    epoch = before["c"].epoch

    assert stage.deal(leader, "b", "c")["c"].ranges == before["c"].ranges
    assert stage.due(leader) == 15
    assert stage.deal(leader, "c", minute=10)["c"].ranges == before["c"].ranges
    assert stage.due(leader) == 15
    back = stage.deal(leader, "a", "c", minute=14)
    assert back["a"].ranges == before["a"].ranges
    assert stage.due(leader) == 25
    assert stage.deal(leader, "a", "c", minute=24.9)["c"].epoch == epoch
    after = stage.deal(leader, "a", "c", minute=25)
    assert after["c"].epoch == epoch + 1
    assert hashes(after["a"]) + hashes(after["c"]) == 4 * SPACE.size
    assert stage.due(leader) is None


def test_where_as_many_are_there_as_are_to_be_nobody_is_waited_for(stage: Stage) -> None:
    leader = stage.leader(**{"members.expected": "3"})
    stage.deal(leader, "a", minute=-1)
    # One that joins is gathered, and with the third one the number is complete.
    assert hashes(stage.deal(leader, "a", "b")["a"]) == 4 * SPACE.size
    assert stage.due(leader) == 5
    three = stage.deal(leader, "a", "b", "c", minute=1)
    assert {share.epoch for share in three.values()} == {2}
    assert stage.due(leader) is None
    # One that is away is waited for, until somebody says that there are to be two.
    assert stage.deal(leader, "a", "b", minute=2)["a"].ranges == three["a"].ranges
    assert stage.due(leader) == 17
    members = open_members(f"{stage.path}_members", {})
    write_command(members, "scale", "", "ann", "two more will come", 1, 5)
    assert stage.deal(leader, "a", "b", minute=2)["a"].ranges == three["a"].ranges
    assert stage.due(leader) == 17
    write_command(members, "scale", "", "ann", "c is not needed", 1, 2)
    leader.look()
    assert stage.due(leader) == 2
    two = stage.deal(leader, "a", "b", minute=2)
    assert hashes(two["a"]) + hashes(two["b"]) == 4 * SPACE.size
    # Another leader goes on with that number, and not with the option.
    other = stage.leader("b", **{"members.expected": "3"})
    assert hashes(stage.deal(other, "b", minute=3)["b"]) < 4 * SPACE.size
    assert stage.due(other) == 18


def test_a_dynamic_one_that_leaves_loses_its_ranges_at_once(stage: Stage) -> None:
    leader = stage.leader()
    settled(stage, leader, "a", "~x")

    assert hashes(stage.deal(leader, "a")["a"]) == 4 * SPACE.size


def test_another_leader_goes_on_and_counts_from_when_it_looks(stage: Stage) -> None:
    first = stage.leader("b")
    before = settled(stage, first, "a", "b", "c")
    stage.deal(first, "b", "c")

    # Its own process is another one, and the group has not changed.
    again = stage.leader("b")
    stage.now_ms += 5 * MINUTE
    again.look()
    assert stage.due(again) == 20
    assert again.partitions == first.partitions
    other = stage.leader("c")
    assert stage.deal(other, "b", "c", minute=6)["c"].ranges == before["c"].ranges
    assert stage.due(other) == 21
    members = stage.table.last()
    assert members is not None
    assert [(m.slot, m.state, m.host) for m in members.members] == [
        ("a", "ABSENT", "host"),
        ("b", "ASSIGNED", "host"),
        ("c", "ASSIGNED", "host"),
    ]


def test_a_leader_that_led_before_goes_on_from_what_another_has_written(stage: Stage) -> None:
    first, second = stage.leader("a"), stage.leader("b")
    settled(stage, first, "a", "b", "c")
    write_command(open_members(f"{stage.path}_members", {}), "remove", "c", "ada", "gone", 5)
    without = stage.deal(second, "a", "b")
    assert sum(map(hashes, without.values())) == 4 * SPACE.size

    again = stage.deal(first, "a", "b", minute=1)

    assert {share.epoch for share in again.values()} == {without["a"].epoch}
    assert stage.due(first) is None
    assert [each.run_id for each in stage.table.history()] == list(
        dict.fromkeys(each.run_id for each in stage.table.history())
    )


def test_what_people_ask_for_is_done(stage: Stage) -> None:
    leader = stage.leader()
    settled(stage, leader, "a", "b")
    stage.deal(leader, "a")
    members = open_members(f"{stage.path}_members", {})
    write_command(members, "remove", "b", "ada", "gone for good", 5)

    leader.look()
    assert stage.due(leader) == 0
    assert hashes(stage.deal(leader, "a")["a"]) == 4 * SPACE.size
    leader.look()
    assert stage.due(leader) is None
    # Who lives is taken in again, as one that joins.
    write_command(open_members(f"{stage.path}_members", {}), "remove", "a", "ada", "why", 6)
    stage.deal(leader, "a", "b", minute=1)
    assert stage.due(leader) == 6


def test_shares_are_by_what_partitions_hold(stage: Stage) -> None:
    stage.cluster.held["t"] = [3_000, 1_000, 1_000, 1_000]
    leader = stage.leader()
    shares = settled(stage, leader, "a", "b")

    having = {name: [p.partition for p in share.ranges] for name, share in shares.items()}
    assert sorted(having.values(), key=len) == [[0], [1, 2, 3]]


def test_partitions_count_alike_where_nobody_answers(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.cluster.held["t"] = [3_000, 1_000, 1_000, 1_000]
    stage.cluster.failure = error("BROKER_UNREACHABLE", "nobody answers")
    shares = settled(stage, stage.leader(), "a", "b")

    assert [len(share.ranges) for share in shares.values()] == [2, 2]
    assert "partitions count alike" in caplog.text


def test_partitions_that_are_added_are_dealt_out_and_nothing_else_moves(stage: Stage) -> None:
    leader = stage.leader()
    before = settled(stage, leader, "a", "b")
    stage.cluster.held["t"] += [0, 0]
    after = stage.deal(leader, "a", "b", "c")

    assert after["c"].ranges == {}
    assert after["a"].epoch == before["a"].epoch + 1
    for name in "ab":
        assert after[name].ranges.items() >= before[name].ranges.items()
        assert after[name].receivers == frozenset()
    assert sum(hashes(after[name]) for name in "ab") == 6 * SPACE.size


def test_who_does_not_read_a_topic_any_more_has_nothing_of_it(stage: Stage) -> None:
    stage.cluster.held["u"] = [0]
    leader = stage.leader()
    settled(stage, leader, "a", "b")
    after = stage.deal(leader, "a", "b", b="u")

    assert hashes(after["a"]) == 4 * SPACE.size
    assert list(after["b"].ranges) == [TopicPartition("u", 0)]


def test_a_topic_that_a_broker_does_not_know_yet_stays_where_it_was(stage: Stage) -> None:
    leader = stage.leader()
    before = settled(stage, leader, "a", "b")
    known = stage.cluster.held.pop("t")
    assert stage.deal(leader, "a", "b")["a"].ranges == before["a"].ranges
    stage.cluster.held["t"] = known
    assert stage.deal(leader, "a", "b")["b"].ranges == before["b"].ranges


def test_what_could_not_be_written_is_decided_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = stage.leader(**{"expansion.timeout.ms": "0"})
    stage.deal(leader, "a")
    append, failures = AssignmentTable.append, [error("ASSIGNMENT_UNWRITABLE", "no room")]

    def failing(table: AssignmentTable, row: Any) -> None:
        if failures:
            raise failures.pop()
        append(table, row)

    monkeypatch.setattr(AssignmentTable, "append", failing)
    monkeypatch.setattr(module, "_PAUSE_S", 0)
    shares = stage.deal(leader, "a", "b")

    assert [hashes(share) for share in shares.values()] == [2 * SPACE.size] * 2


def test_a_share_says_which_wish_it_answers(stage: Stage) -> None:
    """What a member has said, whatever the leader has made of it."""
    leader = stage.leader(pattern="t|new")
    stage.cluster.held["new"] = [0]
    shares = stage.deal(leader, "a", pattern="t|new")
    assert shares["a"].wish == Interest("a", ("t",), pattern="t|new").wish


class TestPattern:
    def test_a_new_topic_is_shared_by_all_who_read_it_by_the_leader_s_pattern(
        self, stage: Stage
    ) -> None:
        """However many of them have found it themselves."""
        leader = stage.leader(pattern="t|new")
        stage.deal(leader, "a", "b", minute=-10, pattern="t|new")
        stage.deal(leader, "a", "b", minute=-5, pattern="t|new")
        stage.cluster.held["new"] = [0, 0]
        shares = stage.deal(leader, "a", "b", pattern="t|new")
        for name in ("a", "b"):
            assert sum(p.topic == "new" for p in shares[name].ranges) == 1
        del stage.cluster.held["new"]
        shares = stage.deal(leader, "a", "b", minute=1, pattern="t|new")
        assert {p.topic for each in shares.values() for p in each.ranges} == {"t"}

    def test_another_pattern_is_not_tried(self, stage: Stage) -> None:
        leader = stage.leader(pattern="t|new")
        stage.cluster.held["new"] = [0]
        shares = stage.deal(leader, "a", pattern="t|new|")
        assert {p.topic for p in shares["a"].ranges} == {"t"}

    def test_a_pattern_may_match_nothing(self, stage: Stage) -> None:
        stage.cluster.held = {}
        assert stage.deal(stage.leader(pattern="t"), "a", pattern="t")["a"].ranges == {}
