"""The planning session of a query that commits individually: whether checkpoint, commit table and
options go together, and what is left after a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.commit import CommitKind
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.source import planning_session as session_module
from queries.scripted import (
    EARLIEST_START,
    GIVEN,
    PATTERN,
    T0,
    Epochs,
    ScriptedCluster,
    forget_metadata,
    session,
)
from queries.scripted_query import Clock, Query, ranges_of, refused
from tables.committing import commit_batch, commit_states, rejected, state
from tables.delta_commits import in_epoch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class TestAgreement:
    def test_a_batch_that_committed_nothing_stops_the_query(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch(commits=False)
        failure = refused(query, "COMMITS_MISSING")
        assert "keyrange.each_batch" in str(failure)

    def test_a_table_that_lacks_commits(self) -> None:
        query = Query(ScriptedCluster(10))
        for latest in (10, 20, 30):
            query.cluster.latest = latest
            query.batch()
        query.restarted()
        del query.committed.store[-1:]
        assert "from commit 2, and the" in refused(query, "COMMITS_BEHIND").message
        del query.committed.store[-1:]
        assert "is at commit" in refused(query, "COMMITS_BEHIND").message
        del query.committed.store[:]
        refused(query, "COMMITS_MISSING")

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
        terms = CommitSettings(null_keys="spread")
        source = query.mark()["sourceId"]
        done = {T0: state(10, topic_id="a" * 32)}
        commit_states(query.committed.store, source, done, CommitKind.RESET, terms)
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
        commit_states(query.committed.store, source, rewound, CommitKind.RESET)
        clock.now_s += 6
        assert ranges_of(query.batch()) == [(4, 10)]

    def test_a_batch_is_planned_from_the_last_commit_there_is(self, clock: Clock) -> None:
        query = Query(ScriptedCluster(10))
        query.batch()
        assert query.is_idle()
        source = query.mark()["sourceId"]
        rewound = {T0: state(10, scanned=4, topic_id="a" * 32)}
        commit_states(query.committed.store, source, rewound, CommitKind.RESET)
        query.cluster.latest = 12
        assert ranges_of(query.batch()) == [(4, 10), (10, 12)]
        assert query.mark()["seq"] == 2

    def test_a_reset_while_the_ends_of_logs_are_asked_for_is_noticed(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The records behind it would be handed out with this batch, and by the reset again."""
        query = Query(ScriptedCluster(10))
        query.batch()
        source = query.mark()["sourceId"]
        list_offsets = query.cluster.list_offsets

        def slow(*given: Any) -> Any:
            patch.undo()
            rewound = {T0: state(10, scanned=4, topic_id="a" * 32)}
            commit_states(query.committed.store, source, rewound, CommitKind.RESET)
            query.cluster.latest = 12
            found = list_offsets(*given)
            clock.now_s += 1
            return found

        with monkeypatch.context() as patch:
            patch.setattr(query.cluster, "list_offsets", slow)
            assert ranges_of(query.batch()) == [(4, 10), (10, 12)]


class TestModes:
    def test_a_batch_is_finished_in_the_mode_it_was_planned_in(self) -> None:
        query = Query(ScriptedCluster(10))
        start, end = read_checkpoint(query.offset), read_checkpoint(query.next())
        plain = session(query.cluster, GIVEN | EARLIEST_START)
        with pytest.raises(KeyrangeError, match=r"BATCH_UNFINISHED.*commitMode is batch"):
            plain.plan(start, end)
        whole = read_checkpoint(plain.latest(plain.initial().to_json(), limited=True))
        with pytest.raises(KeyrangeError, match=r"BATCH_UNFINISHED.*commitMode is individual"):
            query.run.plan(start, whole)

    def test_the_way_back_is_open_when_everything_is_done(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        query.cluster.latest = 20
        with pytest.raises(
            KeyrangeError, match=r"INVALID_OPTIONS.*option 'commitTable' must be given"
        ):
            session(query.cluster, GIVEN).latest(query.offset, limited=True)
        given = GIVEN | {"commitTable": "/nowhere/commits"}
        back = session(query.cluster, given, query.committed)
        with pytest.raises(KeyrangeError, match=r"COMMIT_TERMS_CHANGED.*1 records are not done"):
            back.latest(query.offset, limited=True)
        source = query.mark()["sourceId"]
        done = {T0: state(10, topic_id="a" * 32)}
        commit_states(query.committed.store, source, done, CommitKind.RESET)
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
        query.restarted(**{"commitTable.onFreshStart": "resume"}).initial()
        assert "one of whole batches" in refused(query, "COMMITS_OF_ANOTHER_QUERY").message


class TestFreshStart:
    def old(
        self, of_both: Mapping[str, str] = MappingProxyType({}), **options: str
    ) -> tuple[Query, Query]:
        """A query with commits, and one of its group with a new checkpoint."""
        before = Query(ScriptedCluster(10, partitions=2), **of_both)
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

    @pytest.mark.parametrize("isolation", ["immediate", "transactional"])
    def test_a_log_that_was_cut_back_since_and_is_as_long_again_is_a_loss(
        self, monkeypatch: pytest.MonkeyPatch, isolation: str
    ) -> None:
        terms = {"commit.isolation": isolation}
        before, after = self.old(terms, **terms, **{"commitTable.onFreshStart": "resume"})
        store = before.committed.store
        store[:] = [in_epoch(commit, 3) for commit in store]
        Epochs(monkeypatch, until=2)
        after.cluster.epoch, after.cluster.latest = 4, 15
        after.offset = after.restarted().initial().to_json()
        refused(after, "KAFKA_DATA_LOSS.LOG_TRUNCATED")

        after.given["failOnDataLoss"] = "false"
        after.offset = after.restarted().initial().to_json()
        assert ranges_of(after.batch()) == [(2, 15), (2, 15)]

    def test_a_query_that_never_came_to_a_commit_is_passed_over(self) -> None:
        before, after = self.old(
            **{"commitTable.onFreshStart": "resume", "startingOffsets": "latest"}
        )
        store = after.committed.store
        begun = replace(store[-1], seq=1, source_id="begun", run_id="run-2", states={}, counts={})
        store.append(replace(begun, kind=CommitKind.FENCE, batch_id=-1, whole=False))
        after.cluster.latest = 15
        assert after.restarted().initial().to_json()["t"] == {"0": 10, "1": 10}
        assert ranges_of(after.batch()) == [(10, 15), (10, 15)]
        assert after.mark()["resumes"]["sourceId"] == before.mark()["sourceId"]

    def test_a_group_without_commits_of_records_begins_though_it_is_to_go_on(self) -> None:
        _, after = self.old(**{"commitTable.onFreshStart": "resume"})
        first = after.committed.store[0]
        fence = replace(
            first, kind=CommitKind.FENCE, batch_id=-1, states={}, counts={}, whole=False
        )
        after.committed.store[:] = [fence]
        after.offset = after.restarted().initial().to_json()
        assert ranges_of(after.batch()) == [(0, 10), (0, 10)]

    def test_output_that_reached_no_sink_is_made_again(self) -> None:
        terms = {"commit.isolation": "transactional"}
        _, after = self.old(terms, **terms, **{"commitTable.onFreshStart": "resume"})
        assert after.offset["t"] == {"0": 3, "1": 10}
        assert ranges_of(after.batch()) == [(3, 10)]
        states = after.committed(after.options.commits, after.mark()["sourceId"]).known().states
        assert {p.partition: s.committed for p, s in states.items()} == {0: 10, 1: 10}
        # The state of keys would count it twice.
        run: Any = object()
        store = after.committed.store
        store[:] = [replace(each, runs={T0: (run,)}) for each in store[:1]]
        after.offset = after.restarted().initial().to_json()
        assert "from offset 3 on" in refused(after, "STATE_AHEAD").message


class TestMirror:
    def test_the_group_is_told_what_all_ranges_have_done_and_never_less(
        self, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirrored = Mirrored(monkeypatch)
        query = Query(ScriptedCluster(10), **{"kafka.group.id": "g", "redelivery.backoff": "0"})
        query.batch({T0: rejected((3, 7), (8, 9))})
        query.batch({T0: rejected((8, 9))})
        query.next()
        query.run.mirror(read_checkpoint(query.offset))
        assert mirrored.positions == [{T0: 3}, {T0: 8}, {T0: 8}]
        source = query.mark()["sourceId"]
        rewound = {T0: state(10, scanned=4, topic_id="a" * 32)}
        commit_states(query.committed.store, source, rewound, CommitKind.RESET)
        clock.now_s += 6
        query.batch()
        query.next()
        assert mirrored.positions[3:] == [{T0: 8}, {T0: 10}]

    def test_nothing_is_told_before_the_table_was_asked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        query = Query(ScriptedCluster(10), **{"kafka.group.id": "g"})
        query.batch({T0: rejected((3, 7))})
        mirrored = Mirrored(monkeypatch)
        query.restarted().mirror(read_checkpoint(query.offset))
        assert mirrored.positions == [{}]


class Mirrored:
    """What is given to the mirror of the group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.positions: list[dict[TopicPartition, int]] = []
        mine = self

        class Mirror:
            def __init__(self, cluster: Any, group_id: str, mark: str) -> None: ...

            def mirror(self, positions: Any, epochs: Any, now_ms: int) -> None:
                mine.positions.append(dict(positions))

            def metrics(self) -> dict[str, int]:
                return {}

        monkeypatch.setattr(session_module, "GroupMirror", Mirror)


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

    def test_a_topic_that_was_created_anew_has_no_pending_records(self, clock: Clock) -> None:
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

    def test_of_a_topic_that_went_after_the_batch_was_planned_nothing_is_read(self) -> None:
        cluster = ScriptedCluster(10)
        cluster.topics = {"t1": "a" * 32, "t2": "b" * 32}
        query = Query(cluster, PATTERN, failOnDataLoss="false")
        end = query.next()
        assert {split.topic for split in query.splits(end)} == {"t1", "t2"}
        del cluster.topics["t2"]
        forget_metadata(query.run)
        assert {split.topic for split in query.splits(end)} == {"t1"}

    def test_a_batch_that_moves_nothing_of_this_source_reads_nothing(self) -> None:
        query = Query(ScriptedCluster(10))
        query.batch({T0: rejected((3, 7))})
        at = read_checkpoint(query.offset)
        assert query.run.plan(at, at) == []


def test_a_query_whose_topics_are_gone_waits_for_nothing(clock: Clock) -> None:
    query = Query(
        ScriptedCluster(10), **{"availableNow.redelivery": "drain", "failOnDataLoss": "false"}
    )
    query.batch({T0: rejected((3, 7))})
    assert query.is_idle()
    assert query.run.known_latest()
    query.cluster.partitions = 0
    forget_metadata(query.run)
    query.run.fix_target()
    began_s = clock.now_s
    clock.now_s += 60
    assert query.is_idle()
    assert clock.now_s - began_s < 61
