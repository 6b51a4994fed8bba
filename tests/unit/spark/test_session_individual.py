"""The planning session of a query that commits individually: when a batch runs, what it is planned
from, and when checkpoint and commit table do not go together."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from committing import INDIVIDUAL, Committed, commit_batch, commit_states, rejected, state
from keyrange.core.checkpoint import read_checkpoint
from keyrange.core.commits.log import Kind, Terms
from keyrange.core.commits.state import Hole, PartitionState, Piece
from keyrange.core.commits.verdict import PartitionVerdict
from keyrange.core.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.core.offsets import TopicPartition
from keyrange.core.splits import Split
from keyrange.errors import KeyrangeError
from keyrange.options import SourceOptions, parse_options
from keyrange.spark import individual as individual_module
from keyrange.spark.session import PlanningSession
from scripted import EARLIEST_START, GIVEN, T0, Epochs, ScriptedCluster, forget_metadata, session

OPTIONS = GIVEN | INDIVIDUAL | EARLIEST_START
T1 = TopicPartition("t", 1)
LOWER, UPPER = split_evenly(SPACE, 2)


class Query:
    """A query whose batches a test plans and commits one by one."""

    def __init__(self, cluster: ScriptedCluster, **options: str) -> None:
        self.cluster = cluster
        self.given = OPTIONS | options
        self.committed = Committed()
        self.run = self.restarted()
        self.offset: dict[str, Any] = self.run.initial().to_json()

    @property
    def options(self) -> SourceOptions:
        return parse_options(self.given, "stream")

    def restarted(self, **options: str) -> PlanningSession:
        self.run = session(self.cluster, self.given, self.committed, **options)
        return self.run

    def next(self) -> dict[str, Any]:
        return self.run.latest(self.offset, limited=True)

    def batch(self, verdicts: Any = None, commits: bool = True) -> list[Split]:
        """Plan a batch and commit it; returns what its tasks read."""
        end = self.next()
        assert end != self.offset
        splits = self.splits(end)
        if commits:
            commit_batch(self.committed, self.options, self.offset, end, verdicts)
        self.offset = end
        return splits

    def splits(self, end: dict[str, Any]) -> list[Split]:
        start = read_checkpoint(self.offset)
        return [s for t in self.run.plan(start, read_checkpoint(end)) for s in t.splits]

    def is_idle(self) -> bool:
        return self.next() is self.offset

    def mark(self) -> dict[str, Any]:
        mark: dict[str, Any] = self.offset["@keyrange"]["commits"]
        return mark


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Clock:
    """Time that passes only where a test, or a sleep, says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_750_000_000.0
        self.slept: list[float] = []
        for name in ("time", "monotonic"):
            monkeypatch.setattr(individual_module.time, name, lambda: self.now_s)
        monkeypatch.setattr(individual_module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def refused(query: Query, condition: str) -> KeyrangeError:
    with pytest.raises(KeyrangeError) as caught:
        query.next()
    assert caught.value.condition.name == condition
    return caught.value


def ranges_of(splits: list[Split]) -> list[tuple[int, int]]:
    return [(split.from_offset, split.until_offset) for split in splits]


def test_the_mark_says_what_a_batch_was_planned_from() -> None:
    query = Query(ScriptedCluster(10))
    assert ranges_of(query.batch()) == [(0, 10)]
    mark = query.mark()
    assert mark == {
        "holesMax": 10_000,
        "keepsOrder": True,
        "seq": 0,
        "sourceId": query.committed.store[0].source_id,
    }
    query.cluster.latest = 15
    assert ranges_of(query.batch()) == [(10, 15)]
    assert query.mark() == mark | {"seq": 1}


def test_an_idle_query_says_the_same_and_hardly_asks_the_table(clock: Clock) -> None:
    query = Query(ScriptedCluster(10))
    query.batch()
    asked = query.committed.asked
    for _ in range(500):
        clock.now_s += 0.01
        assert query.is_idle()
    assert 1 <= query.committed.asked - asked <= 3


def test_what_is_due_comes_again_without_new_records(clock: Clock) -> None:
    query = Query(ScriptedCluster(10))
    query.batch({T0: rejected((3, 7), (8, 9))})
    assert query.is_idle()
    clock.now_s += 9
    assert query.is_idle()
    clock.now_s += 2
    text = query.offset
    [split] = query.batch()
    assert query.offset["t"] == text["t"]
    assert query.mark()["dueMs"] == int(clock.now_s * 1000)
    assert split.delivery is not None
    assert (split.from_offset, split.until_offset, split.delivery.offsets) == (3, 9, (3, 8))
    clock.now_s += 3_600
    assert query.is_idle()


def test_the_pause_of_an_idle_query_ends_when_something_is_due(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(ScriptedCluster(10), **{"redelivery.backoff": "2s"})
    query.batch({T0: rejected((3, 7))})
    cpu = iter(range(0, 10**6, 10))
    monkeypatch.setattr(individual_module.time, "process_time", lambda: next(cpu))
    assert query.is_idle()
    clock.slept.clear()
    assert query.next() is not query.offset
    assert sum(clock.slept) == pytest.approx(2, abs=0.01)


def test_a_replay_is_planned_from_what_was_known_and_as_it_was_said() -> None:
    query = Query(ScriptedCluster(10), **{"redelivery.backoff": "0"})
    query.batch({T0: rejected((3, 7))})
    query.cluster.latest = 20
    before, end = query.offset, query.next()
    planned = query.splits(end)
    commit_batch(query.committed, query.options, before, end)
    changed = {"keyOrder": "skipAhead", "max.num.ranges.to.commit": "1"}
    again = session(query.cluster, query.given | changed, query.committed)
    tasks = again.plan(read_checkpoint(before), read_checkpoint(end))
    assert [split for task in tasks for split in task.splits] == planned
    assert ranges_of(planned) == [(3, 4), (10, 20)]


def test_how_many_key_ranges_there_are_stands_in_the_mark() -> None:
    options = {"splitBy": "keyRange", "keyRangesPerPartition": "4", "parallelism": "4"}
    query = Query(ScriptedCluster(10), **options)
    before, end = query.offset, query.next()
    assert end["@keyrange"]["commits"]["ranges"] == {"t": {"0": 4}}
    query.restarted(keyRangesPerPartition="2")
    placements = [split.placement for split in query.splits(end)]
    assert [p.ranges() for p in placements if p] == [[span] for span in split_evenly(SPACE, 4)]
    commit_batch(query.committed, query.options, before, end)


def test_a_range_that_was_handed_back_catches_up_before_it_goes_on() -> None:
    options = {"splitBy": "keyRange", "keyRangesPerPartition": "2", "parallelism": "2"}
    query = Query(ScriptedCluster(10), **options)
    query.batch({T0: PartitionVerdict(handed_back=((UPPER, 4),))})
    query.cluster.latest = 12
    splits = query.batch()
    late = [split for split in splits if split.until_offset == 10]
    assert ranges_of(late) == [(4, 10)]
    assert late[0].delivery is not None
    assert late[0].delivery.uppers == (LOWER.until_hash - 1, HASH_MAX)
    assert (late[0].delivery.froms, late[0].delivery.untils) == ((0, 4), (0, 10))
    new = [split for split in splits if split.from_offset == 10]
    assert [split.placement.reader for split in new if split.placement] == [0, 1]
    assert len({split.shared for split in new}) == 1
    assert query.is_idle()


def test_a_range_that_is_behind_is_read_without_new_records() -> None:
    query = Query(ScriptedCluster(10))
    query.batch({T0: PartitionVerdict(handed_back=((LOWER, 6),))})
    [split] = query.batch()
    assert (split.from_offset, split.until_offset) == (6, 10)
    assert query.is_idle()


def test_a_partition_whose_range_is_too_far_behind_stops(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(ScriptedCluster(10, partitions=2), **{"max.range.lag": "3"})
    held = PartitionVerdict(handed_back=((LOWER, 5),))
    query.batch({T0: held})
    query.cluster.latest = 20
    with caplog.at_level(logging.INFO):
        query.batch({T0: held})
        assert query.offset["t"] == {"0": 10, "1": 20}
        query.batch()
        assert query.offset["t"] == {"0": 10, "1": 20}
        query.batch()
    assert query.offset["t"] == {"0": 20, "1": 20}
    said = [m for m in caplog.messages if "t-0" in m]
    assert len(said) == 2
    assert "5 offsets behind, more than max.range.lag" in said[0]
    assert said[1] == "partition t-0 takes in everything again"


def test_at_the_limit_a_range_slows_and_stops_and_goes_on(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    limit = {"max.num.ranges.to.commit": "4", "redelivery.backoff": "1m"}
    query = Query(ScriptedCluster(2), **limit)
    query.batch({T0: rejected((0, 0), (1, 1))})
    query.cluster.latest = 100
    with caplog.at_level(logging.INFO):
        query.batch({T0: rejected((2, 2), (3, 3))})
        assert query.offset["t"] == {"0": 4}
        assert query.is_idle(), "its position does not run away from its only range"
        assert query.run.known_latest() == {
            "@keyrange": {
                "metrics": {
                    "commits": {
                        "holes": 4,
                        "maxRangeLag": 0,
                        "nextDueMs": int(clock.now_s * 1000) + 60_000,
                        "partitionsHeld": 1,
                    }
                },
            },
            "t": {"0": 100},
        }
        clock.now_s += 61
        query.batch()
        query.batch()
    assert query.offset["t"] == {"0": 100}
    said = [m for m in caplog.messages if "t-0" in m]
    assert "max.num.ranges.to.commit" in said[0]
    assert said[1:] == ["partition t-0 takes in everything again"]


def test_other_ranges_go_on_where_one_stops() -> None:
    options = {
        "splitBy": "keyRange",
        "keyRangesPerPartition": "2",
        "max.num.ranges.to.commit": "1",
        "redelivery.backoff": "10m",
    }
    query = Query(ScriptedCluster(10), **options)
    query.batch({T0: rejected((9, UPPER.from_hash))})
    commit_states(
        query.committed.store,
        query.mark()["sourceId"],
        {
            T0: PartitionState(
                "a" * 32,
                10,
                (
                    Piece(LOWER, 10),
                    Piece(UPPER, 10, (Hole(9, UPPER.from_hash, 1, 2**60),)),
                ),
            )
        },
        Kind.RESET,
    )
    query.cluster.latest = 30
    splits = query.batch()
    assert ranges_of(splits) == [(10, 30)]
    assert [split.placement.ranges() for split in splits if split.placement] == [[LOWER]]
    assert query.offset["t"] == {"0": 30}


def test_what_is_late_counts_towards_a_limit_and_leaves_half_to_what_is_new() -> None:
    query = Query(ScriptedCluster(100), maxOffsetsPerTrigger="100")
    query.batch({T0: PartitionVerdict(handed_back=((SPACE, 70),))})
    query.cluster.latest = 1_000
    query.batch({T0: PartitionVerdict(handed_back=((SPACE, 70),))})
    assert query.offset["t"] == {"0": 170}, "30 offsets are late"
    query.batch()
    assert query.offset["t"] == {"0": 220}, "100 are late, and half of the limit is for the new"
    query.batch()
    assert query.offset["t"] == {"0": 320}


def test_bytes_that_are_late_count_too() -> None:
    query = Query(ScriptedCluster(100), maxBytesPerTrigger="10000")
    query.batch({T0: PartitionVerdict(handed_back=((SPACE, 60),))})
    query.cluster.latest = 1_000
    query.batch()
    assert query.offset["t"] == {"0": 160}


def test_what_is_due_does_not_wait_for_the_least_offsets(clock: Clock) -> None:
    query = Query(ScriptedCluster(10), minOffsetsPerTrigger="8", maxTriggerDelay="1h")
    query.batch({T0: rejected((3, 7))})
    query.cluster.latest = 20
    query.batch()
    query.cluster.latest = 21
    assert query.is_idle()
    clock.now_s += 11
    assert [query.batch()[0].from_offset, query.offset["t"]] == [3, {"0": 20}]


class TestAvailableNow:
    def test_it_ends_when_nothing_is_due_and_says_what_waits(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        query = Query(ScriptedCluster(10))
        query.run.fix_target()
        query.batch({T0: rejected((3, 7), (4, 8))})
        query.cluster.latest = 99
        assert query.is_idle()
        assert clock.slept == []
        assert caplog.messages == [
            "2 records wait for their next delivery, the first for 10.0 s more; they come with "
            "the next run"
        ]

    def test_what_becomes_due_meanwhile_still_comes(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10))
        query.run.fix_target()
        query.batch({T0: rejected((3, 7))})
        clock.now_s += 11
        query.batch()
        assert query.is_idle()

    def test_it_waits_where_it_is_told_to_and_no_longer_than_that(
        self, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        drain = {"availableNow.redelivery": "drain", "availableNow.redelivery.timeout": "25s"}
        query = Query(ScriptedCluster(10), **drain)
        query.run.fix_target()
        query.batch({T0: rejected((3, 7))})
        query.batch({T0: rejected((3, 7))})
        assert sum(clock.slept) == pytest.approx(10, abs=0.1)
        assert query.is_idle(), "20 s more would be longer than 25 s in all"
        assert sum(clock.slept) == pytest.approx(10, abs=0.1)
        assert "1 records wait for their next delivery, the first for 20.0 s more" in caplog.text

    def test_it_ends_at_once_where_nothing_waits(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10), **{"availableNow.redelivery": "drain"})
        query.run.fix_target()
        query.batch()
        assert query.is_idle()
        assert clock.slept == []


class TestAgreement:
    def test_a_batch_that_committed_nothing_stops_the_query(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch(commits=False)
        failure = refused(query, "NO_VERDICT")
        assert "keyrange.each_batch" in str(failure)

    def test_a_table_that_lacks_commits(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        query.cluster.latest = 20
        query.batch()
        del query.committed.store[:]
        query.restarted()
        assert "is at commit 0" in refused(query, "COMMITS_BEHIND").message

    @pytest.mark.parametrize(("at", "condition"), [(5, "COMMITS_BEHIND"), (15, "COMMITS_AHEAD")])
    def test_positions_that_differ(self, at: int, condition: str) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        commit_states(query.committed.store, query.mark()["sourceId"], {T0: state(at)})
        query.restarted()
        said = refused(query, condition).message
        assert f"partition t-0 stands at 10 in the checkpoint and at {at} in the commit" in said

    def test_positions_of_an_earlier_topic_say_nothing(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        states = {T0: state(5, topic_id="b" * 32)}
        commit_states(query.committed.store, query.mark()["sourceId"], states)
        query.restarted()
        assert query.is_idle()

    def test_terms_may_change_only_when_everything_is_done(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        query.cluster.latest = 20
        changed = query.restarted(nullKeys="first")
        message = refused(query, "COMMIT_TERMS_CHANGED").message
        assert "option nullKeys was spread and is first" in message
        query.restarted(**{"commit.isolation": "transactional"})
        assert "commit.isolation was immediate" in refused(query, "COMMIT_TERMS_CHANGED").message
        terms = Terms(null_keys="spread")
        source = query.mark()["sourceId"]
        done = {T0: state(10, topic_id="a" * 32)}
        commit_states(query.committed.store, source, done, Kind.RESET, terms)
        query.run = changed
        assert query.next() is not query.offset

    def test_a_replay_looks_at_the_terms_too(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        query.cluster.latest = 20
        end = query.next()
        query.restarted(nullKeys="first")
        with pytest.raises(KeyrangeError, match="COMMIT_TERMS_CHANGED"):
            query.splits(end)

    def test_somebody_who_commits_while_a_query_is_idle_is_noticed(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        assert query.is_idle()
        source = query.mark()["sourceId"]
        rewound = {T0: state(10, scanned=4, topic_id="a" * 32)}
        commit_states(query.committed.store, source, rewound, Kind.RESET)
        clock.now_s += 6
        assert ranges_of(query.batch()) == [(4, 10)]

    def test_a_batch_is_planned_from_the_last_commit_there_is(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        assert query.is_idle()
        source = query.mark()["sourceId"]
        rewound = {T0: state(10, scanned=4, topic_id="a" * 32)}
        commit_states(query.committed.store, source, rewound, Kind.RESET)
        query.cluster.latest = 12
        assert ranges_of(query.batch()) == [(4, 10), (10, 12)]
        assert query.mark()["seq"] == 2


class TestModes:
    def test_a_batch_is_finished_in_the_mode_it_was_planned_in(self) -> None:
        query = Query(ScriptedCluster(10))
        start, end = read_checkpoint(query.offset), read_checkpoint(query.next())
        plain = session(query.cluster, GIVEN | EARLIEST_START)
        with pytest.raises(KeyrangeError, match=r"COMMIT_TERMS_CHANGED.*commitMode is batch"):
            plain.plan(start, end)
        whole = read_checkpoint(plain.latest(plain.initial().to_json(), limited=True))
        with pytest.raises(KeyrangeError, match=r"COMMIT_TERMS_CHANGED.*commitMode is individual"):
            query.run.plan(start, whole)

    def test_the_way_back_is_open_when_everything_is_done(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        query.cluster.latest = 20
        with pytest.raises(KeyrangeError, match=r"COMMIT_TERMS_CHANGED.*only option commitTable"):
            session(query.cluster, GIVEN).latest(query.offset, limited=True)
        given = GIVEN | {"commitTable": "/nowhere/commits"}
        back = session(query.cluster, given, query.committed)
        with pytest.raises(KeyrangeError, match=r"COMMIT_TERMS_CHANGED.*1 records are not done"):
            back.latest(query.offset, limited=True)
        source = query.mark()["sourceId"]
        done = {T0: state(10, topic_id="a" * 32)}
        commit_states(query.committed.store, source, done, Kind.RESET)
        end = back.latest(query.offset, limited=True)
        assert (end["t"], "commits" in end["@keyrange"]) == ({"0": 20}, False)

    def test_a_query_of_whole_batches_may_begin_to_commit_individually(self) -> None:
        cluster = ScriptedCluster(10)
        plain = session(cluster, GIVEN | EARLIEST_START)
        end = plain.latest(plain.initial().to_json(), limited=True)
        query = Query(cluster)
        query.offset = end
        assert query.is_idle()
        cluster.latest = 12
        assert ranges_of(query.batch()) == [(10, 12)]
        query.offset = end
        query.restarted(**{"commitTable.onFreshStart": "resume"})
        assert "one of whole batches" in refused(query, "COMMITS_OF_ANOTHER_QUERY").message


class TestFreshStart:
    def old(self, **options: str) -> tuple[Query, Query]:
        """A query with commits, and one of its group with a new checkpoint."""
        before = Query(ScriptedCluster(10, partitions=2))
        before.batch({T0: rejected((3, 7))})
        after = Query(before.cluster, **options)
        after.committed = before.committed
        after.offset = after.restarted().initial().to_json()
        return before, after

    def test_commits_of_another_checkpoint_are_not_taken_over_in_silence(self) -> None:
        _, after = self.old()
        failure = refused(after, "COMMITS_OF_ANOTHER_QUERY")
        assert "commitTable.onFreshStart" in str(failure)

    def test_another_group_has_commits_of_its_own(self) -> None:
        _, after = self.old(commitGroup="other")
        assert [split.from_offset for split in after.batch()] == [0, 0]

    def test_they_may_be_ignored(self) -> None:
        before, after = self.old(**{"commitTable.onFreshStart": "ignore"})
        assert ranges_of(after.batch()) == [(0, 10), (0, 10)]
        assert after.mark()["sourceId"] != before.mark()["sourceId"]

    def test_they_may_be_gone_on_from_under_batches_of_ones_own(self, clock: Clock) -> None:
        before, after = self.old(
            **{"commitTable.onFreshStart": "resume", "startingOffsets": "latest"}
        )
        assert after.offset["t"] == {"0": 10, "1": 10}
        after.cluster.latest = 15
        clock.now_s += 11
        start, end = after.offset, after.next()
        mark = end["@keyrange"]["commits"]
        assert mark["resumes"] == {"seq": 1, "sourceId": before.mark()["sourceId"]}
        assert (mark["seq"], mark["sourceId"] == before.mark()["sourceId"]) == (0, False)
        assert ranges_of(after.splits(end)) == [(3, 4), (10, 15), (10, 15)]
        commit_batch(after.committed, after.options, start, end, whole=True)
        after.offset, after.cluster.latest = end, 16
        after.restarted()
        assert ranges_of(after.batch()) == [(15, 16), (15, 16)]
        assert "resumes" not in after.mark()


class TestLosses:
    def test_a_log_that_was_cut_back_keeps_what_is_below_the_cut(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Epochs(monkeypatch, until=80)
        query = Query(ScriptedCluster(100, epoch=3), failOnDataLoss="false")
        query.batch({T0: rejected((50, 7), (90, 7))})
        query.cluster.latest, query.cluster.epoch = 120, 4
        clock.now_s += 11
        splits = query.batch()
        assert ranges_of(splits) == [(50, 51), (80, 120)]

    def test_a_topic_that_was_created_anew_has_no_holes(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10), failOnDataLoss="false")
        query.batch({T0: rejected((3, 7))})
        query.cluster.topics, query.cluster.latest = {"t": "b" * 32}, 10
        forget_metadata(query.run)
        clock.now_s += 11
        assert ranges_of(query.batch()) == [(0, 10)]
        assert query.is_idle()

    def test_partitions_that_are_added_begin_at_their_beginning(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        query.cluster.partitions = 3
        forget_metadata(query.run)
        splits = query.batch()
        assert [(s.partition, s.from_offset, s.until_offset) for s in splits] == [
            (1, 0, 10),
            (2, 0, 10),
        ]

    def test_a_batch_that_moves_nothing_of_this_source_reads_nothing(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        at = read_checkpoint(query.offset)
        assert query.run.plan(at, at) == []


def test_only_some_ranges_of_a_partition_are_read_and_the_others_are_no_work() -> None:
    own = KeyRange(0, 2**61)
    options = {
        "splitBy": "keyRange",
        "keyRanges": f'{{"t": [[0, {2**61 - 1}]]}}',
        "keyRangesCoverage": "partial",
    }
    query = Query(ScriptedCluster(10), **options)
    [split] = query.batch({T0: rejected((3, 7))})
    assert split.placement is not None
    assert split.placement.ranges() == [own]
    assert query.is_idle()
