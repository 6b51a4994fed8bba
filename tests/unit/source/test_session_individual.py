"""The planning session of a query that commits individually: when a batch runs, what it is planned
from, and how much it takes up."""

from __future__ import annotations

import logging
import time

import pytest

from keyrange.individual_commits.model import partition_progress as states
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.individual_commits.model.verdict_columns import PartitionVerdict
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.key_ranges import HASH_MAX, SPACE, KeyRange, split_evenly
from keyrange.source import individual_commit_strategy as individual_module
from queries.scripted import T0, ScriptedCluster, forget_metadata, session
from queries.scripted_query import Clock, Query, ranges_of
from tables.committing import commit_batch, commit_states, rejected, state

LOWER, UPPER = split_evenly(SPACE, 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_mark_says_what_a_batch_was_planned_from() -> None:
    query = Query(ScriptedCluster(10))
    assert ranges_of(query.batch()) == [(0, 10)]
    mark = query.mark()
    assert mark == {
        "deliveriesMax": 5,
        "pendingMax": 10_000,
        "keepsOrder": True,
        "seq": 0,
        "sourceId": query.committed.store[0].source_id,
    }
    query.cluster.latest = 15
    assert ranges_of(query.batch()) == [(10, 15)]
    assert query.mark() == mark | {"seq": 1}


def test_the_mark_says_where_a_log_ends_that_a_batch_does_not_reach() -> None:
    query = Query(ScriptedCluster(10), maxOffsetsPerTrigger="4")
    query.batch()
    assert query.mark()["logEnds"] == {T0.topic: {str(T0.partition): 10}}


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


@pytest.mark.parametrize("available_now", [False, True])
def test_a_clock_that_is_set_back_holds_no_record_back(clock: Clock, available_now: bool) -> None:
    """Times of pending records are kept over restarts, so no clock of the process could tell
    them."""
    query = Query(ScriptedCluster(10), **{"redelivery.backoff.max": "20s"})
    query.batch({T0: rejected((3, 7))})
    clock.now_s -= 3_600
    if available_now:
        query.restarted()
        query.run.fix_target()
    [split] = query.batch({T0: rejected((3, 7))})
    assert split.delivery is not None
    assert split.delivery.offsets == (3,)
    # What it is given now is of the clock that is right, and it waits as any does.
    assert query.is_idle()
    clock.now_s += 19
    assert query.is_idle()
    clock.now_s += 2
    assert query.batch()[0].from_offset == 3


def test_a_clock_that_is_set_forth_only_spares_a_wait(clock: Clock) -> None:
    query = Query(ScriptedCluster(10))
    query.batch({T0: rejected((3, 7))})
    clock.now_s += 3_600
    assert query.batch({T0: rejected((3, 7))})[0].from_offset == 3
    assert query.is_idle()
    clock.now_s += 21
    assert query.batch()[0].from_offset == 3


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
    query = Query(ScriptedCluster(10))
    query.batch()
    pending = (states.PendingRecord(3, 7, due_ms=1), states.PendingRecord(9, 7, due_ms=2**60))
    source = query.mark()["sourceId"]
    commit_states(query.committed.store, source, {T0: state(10, pending)}, CommitKind.RESET)
    query.restarted()
    query.cluster.latest = 20
    before, end = query.offset, query.next()
    planned = query.splits(end)
    commit_batch(query.committed, query.options, before, end)
    changed = {"keyOrder": "skipAhead", "max.num.ranges.to.commit": "1"}
    again = session(query.cluster, query.given | changed, query.committed)
    tasks = again.plan(read_checkpoint(before), read_checkpoint(end))
    assert [split for task in tasks for split in task.splits] == planned
    assert ranges_of(planned) == [(3, 10), (10, 20)]


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
                        "pending": 4,
                        "committed": {"t": {"0": 0}},
                        "maxRangeLag": 0,
                        "nextDueMs": int(clock.now_s * 1000) + 60_000,
                        "partitionsHeld": 1,
                    },
                    "plan": {
                        "number": 2,
                        "tasks": 1,
                        "keyRanges": 0,
                        "bytes": 200,
                        "fetchedBytes": 200,
                    },
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
    due_ms = int(time.time() * 1000) + 300_000
    query.batch({T0: rejected((9, UPPER.from_hash))})
    commit_states(
        query.committed.store,
        query.mark()["sourceId"],
        {
            T0: states.PartitionState(
                "a" * 32,
                10,
                (
                    states.KeyRangeState(LOWER, 10),
                    states.KeyRangeState(
                        UPPER, 10, (states.PendingRecord(9, UPPER.from_hash, 1, due_ms),)
                    ),
                ),
            )
        },
        CommitKind.RESET,
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


def test_only_some_ranges_of_a_partition_are_read_and_the_others_are_no_work() -> None:
    own = KeyRange(0, 2**61)
    options = {
        "splitBy": "keyRange",
        "keyRanges": f'{{"t": [[0, {2**61 - 1}]]}}',
        "keyRangesCoverage": "partial",
        "max.num.ranges.to.commit": "1",
        "redelivery.backoff": "10m",
    }
    query = Query(ScriptedCluster(10), **options)
    query.batch({T0: PartitionVerdict(handed_back=((SPACE, 1),))})
    [split] = query.batch({T0: rejected((3, 7))})
    assert split.placement is None
    assert split.delivery is not None
    assert split.delivery.uppers == (own.until_hash - 1, HASH_MAX)
    assert split.delivery.untils == (10, 0)
    query.cluster.latest = 20
    assert query.is_idle(), "what others read does not carry the position away"


@pytest.mark.parametrize("keeps_state", [False, True])
def test_a_topic_that_grows_is_said_once_where_state_is_kept(
    caplog: pytest.LogCaptureFixture, keeps_state: bool
) -> None:
    query = Query(ScriptedCluster(10), keeps_state=keeps_state, splitBy="keyRange")
    query.batch()
    query.cluster.partitions, query.cluster.latest = 3, 15
    forget_metadata(query.run)
    for latest in (15, 20):
        query.cluster.latest = latest
        query.batch()
    told = [each.message for each in caplog.records if "has grown" in each.message]
    assert len(told) == keeps_state
    for text in told:
        assert text.startswith("topic t has grown from 1 to 3 partitions: keys that producers")
        assert text.endswith("begin without state there (guide: state.md)")


@pytest.mark.parametrize("made_anew", [False, True])
def test_partitions_that_were_away_and_topics_made_anew_have_not_grown(
    caplog: pytest.LogCaptureFixture, made_anew: bool
) -> None:
    """Keys of the former keep their partition, and the latter begins without state anyway."""
    given = {"splitBy": "keyRange", "failOnDataLoss": "false"}
    query = Query(ScriptedCluster(10, partitions=3), keeps_state=True, **given)
    query.batch()
    for count in (1, 3):
        query.cluster.partitions = count
        query.cluster.latest += 5
        if made_anew:
            query.cluster.topics = {"t": str(count) * 32}
        forget_metadata(query.run)
        query.batch()
    assert not [each for each in caplog.records if "has grown" in each.message]
