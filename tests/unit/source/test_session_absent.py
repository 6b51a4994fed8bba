"""The planning session where a broker's metadata leave out, for a while or for good, what was
there."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import DataLossError, InvalidError, KeyrangeError
from keyrange.model.checkpoint import Checkpoint, read_checkpoint
from keyrange.model.offsets import TopicPartition
from keyrange.observing.model.query_progress import read_source
from keyrange.source import metadata_cache as metadata_module
from keyrange.source.planning_session import PlanningSession
from keyrange.storage.model.spark_log import PlannedBatch, next_positions, ranges_of, read_progress
from queries.scripted import (
    EARLIEST_START,
    PATTERN,
    Epochs,
    ScriptedCluster,
    forget_metadata,
    planned,
    session,
)
from queries.scripted_query import Query
from tables.committing import INDIVIDUAL, Committed, commit_states, rejected, state

A, B, C = "a" * 32, "b" * 32, "c" * 32
T1, T2 = TopicPartition("t1", 0), TopicPartition("t2", 0)
GOING_ON = EARLIEST_START | {"failOnDataLoss": "false"}


@pytest.fixture
def cluster() -> ScriptedCluster:
    made = ScriptedCluster(100)
    made.topics = {"t1": A, "t2": B}
    return made


def after(
    run: PlanningSession, cluster: ScriptedCluster, end: dict[str, Any], **topics: str
) -> dict[str, Any]:
    """The next end, once the metadata are of these topics."""
    cluster.topics = topics
    forget_metadata(run)
    return run.latest(end, limited=True)


def split_ranges(run: PlanningSession, start: Any, end: Any) -> set[tuple[str, int, int]]:
    tasks: Any = run.plan(read_checkpoint(start), read_checkpoint(end))
    return {(s.topic, s.from_offset, s.until_offset) for task in tasks for s in task.splits}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_topic_that_is_back_with_its_id_goes_on_where_it_stood(
    cluster: ScriptedCluster, restarts: bool
) -> None:
    run = session(cluster, PATTERN, **GOING_ON)
    first = planned(run)
    cluster.latest = 110
    without = after(run, cluster, first, t1=A)
    assert without["@keyrange"]["absent"] == [{"t2": {"0": 100}}]
    assert "t2" not in without
    assert split_ranges(run, first, without) == {("t1", 100, 110)}
    if restarts:
        run = session(cluster, PATTERN, **GOING_ON)
        assert run.latest(without, limited=True) is without, "nothing is told anew"
    back = after(run, cluster, without, t1=A, t2=B)
    losses = run.known_latest()
    assert losses is not None
    assert losses["@keyrange"]["metrics"]["losses"]["offsets"] == 0
    assert back["t2"] == {"0": 110}
    assert "absent" not in back["@keyrange"]
    assert split_ranges(run, without, back) == {("t2", 100, 110)}
    assert split_ranges(session(cluster, PATTERN, **GOING_ON), without, back) == {("t2", 100, 110)}


def test_a_topic_that_is_back_with_another_id_is_read_from_its_beginning(
    cluster: ScriptedCluster,
) -> None:
    run = session(cluster, PATTERN, **GOING_ON)
    without = after(run, cluster, planned(run), t1=A)
    cluster.latest = 120
    back = after(run, cluster, without, t1=A, t2=C)
    assert split_ranges(run, without, back) == {("t1", 100, 120), ("t2", 0, 120)}
    assert back["@keyrange"]["topicIds"] == {"t1": A, "t2": C}
    assert "absent" not in back["@keyrange"]


def test_brokers_without_topic_ids_cannot_tell_which_topic_is_back(
    cluster: ScriptedCluster,
) -> None:
    cluster.topics = {"t1": "", "t2": ""}
    run = session(cluster, PATTERN, **GOING_ON)
    without = after(run, cluster, planned(run), t1="")
    assert "absent" not in without["@keyrange"]
    back = after(run, cluster, without, t1="", t2="")
    assert split_ranges(run, without, back) == {("t2", 0, 100)}


def test_a_topic_that_stays_away_is_a_loss_once(cluster: ScriptedCluster) -> None:
    run = session(cluster, PATTERN, **EARLIEST_START)
    first = planned(run)
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*t2-0"):
        after(run, cluster, first, t1=A)
    accepted = session(cluster, PATTERN, **GOING_ON).latest(first, limited=True)
    # As the error's remedy says: afterwards losses are to be failures again.
    again = session(cluster, PATTERN, **EARLIEST_START)
    cluster.latest = 110
    assert again.latest(accepted, limited=True)["t1"] == {"0": 110}


class Restarting(ScriptedCluster):
    """A cluster whose metadata lack a topic so many times."""

    lacking = 0

    def describe_matching(self, matches: Any) -> Any:
        if not self.lacking:
            return super().describe_matching(matches)
        self.lacking -= 1
        return super().describe_matching(lambda name: name != "t2" and matches(name))


def test_a_moment_without_a_topic_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_module, "_PAUSE_S", 0.001)
    cluster = Restarting(100)
    cluster.topics = {"t1": A, "t2": B}
    run = session(cluster, PATTERN, patience_s=60, **EARLIEST_START)
    first = planned(run)
    cluster.lacking = 5
    forget_metadata(run)
    assert run.latest(first, limited=True) is first
    assert cluster.lacking == 0


def test_a_partition_that_an_older_answer_lacks_keeps_its_position() -> None:
    """One that was added a moment ago is not known to every broker yet."""
    cluster = ScriptedCluster(100, partitions=2)
    run = session(cluster, **GOING_ON)
    first = planned(run)
    cluster.partitions = 1
    without = after(run, cluster, first, t=A)
    assert without["@keyrange"]["absent"] == [{"t": {"1": 100}}]
    cluster.partitions, cluster.latest = 2, 104
    assert split_ranges(run, without, after(run, cluster, without, t=A)) == {("t", 100, 104)}


def test_a_log_that_was_cut_back_while_it_was_absent_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, cluster: ScriptedCluster
) -> None:
    epochs = Epochs(monkeypatch, until=100)
    run = session(cluster, PATTERN, **GOING_ON)
    without = after(run, cluster, planned(run), t1=A)
    cluster.latest, cluster.epoch, epochs.until = 150, 4, 80
    cluster.topics = {"t1": A, "t2": B}
    with pytest.raises(DataLossError, match=r"LOG_TRUNCATED"):
        session(cluster, PATTERN, **EARLIEST_START).latest(without, limited=True)
    back = after(run, cluster, without, t1=A, t2=B)
    assert ("t2", 80, 150) in split_ranges(run, without, back)


def test_available_now_reads_what_was_absent_when_its_target_was_fixed(
    cluster: ScriptedCluster,
) -> None:
    run = session(cluster, PATTERN, **EARLIEST_START)
    first = planned(run)
    run = session(cluster, PATTERN, **EARLIEST_START)
    cluster.topics, cluster.latest = {"t1": A}, 110
    run.fix_target()
    end = after(run, cluster, first, t1=A, t2=B)
    assert (end["t1"], end["t2"]) == ({"0": 110}, {"0": 110})
    cluster.latest = 120
    assert run.latest(end, limited=True) == end, "and up to there"


@pytest.mark.parametrize("options", [{}, INDIVIDUAL])
def test_partitions_that_vanish_while_available_now_reads_are_named(
    cluster: ScriptedCluster, options: dict[str, str]
) -> None:
    limited = {"maxOffsetsPerTrigger": "50", **options, **EARLIEST_START}
    run = session(cluster, PATTERN, Committed() if options else None, **limited)
    run.fix_target()
    first = planned(run)
    assert (first["t1"], first["t2"]) == ({"0": 25}, {"0": 25})
    cluster.topics = {"t1": A}
    forget_metadata(run)
    if options:
        table = Committed()
        run = session(cluster, PATTERN, table, **limited)
        commit_states(
            table.store, first["@keyrange"]["commits"]["sourceId"], {T1: state(25), T2: state(25)}
        )
        run._target = {T1: 100, T2: 100}
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED.*partitions t2-0 are gone"):
        run.latest(first, limited=True)


def test_the_tools_read_such_an_offset_and_count_what_is_there(cluster: ScriptedCluster) -> None:
    run = session(cluster, PATTERN, **GOING_ON)
    first = planned(run)
    cluster.latest = 110
    without = after(run, cluster, first, t1=A)
    cluster.latest = 130
    run.latest(without, limited=True)
    source = {"description": "", "endOffset": without, "latestOffset": run.known_latest()}
    read = read_source(0, source)
    assert read is not None
    assert read.lag is not None
    assert read.lag.total_offsets == 20
    assert read.behind == {T1: 20}
    back = after(run, cluster, without, t1=A, t2=B)
    batches = [
        PlannedBatch(number, 0, (read_checkpoint(end),))
        for number, end in enumerate((first, without, back))
    ]
    rows = {row["partition"]: str(row["range"]) for row in ranges_of(batches[2], batches[1])}
    assert rows == {T1: "[110, 130)", T2: "[100, 130)"}
    progress = read_progress("query", batches, [0, 1])
    assert next_positions(progress, 0) == {T1: 110, T2: 100}


def test_a_query_of_some_key_ranges_is_held_to_those_of_what_is_absent(
    cluster: ScriptedCluster,
) -> None:
    def partial(t2: str) -> dict[str, str]:
        return {
            "splitBy": "keyRange",
            "keyRanges": f'{{"t1": [[0, 5]], "t2": {t2}}}',
            "keyRangesCoverage": "partial",
            **GOING_ON,
        }

    run = session(cluster, PATTERN, **partial("[[0, 9]]"))
    without = after(run, cluster, planned(run), t1=A)
    with pytest.raises(InvalidError, match=r"KEY_RANGES_CHANGED.*t2-0"):
        session(cluster, PATTERN, **partial("[[10, 19]]")).latest(without, limited=True)
    run = session(cluster, PATTERN, **partial("[[0, 9]]"))
    assert run.latest(without, limited=True) is without


class TestIndividually:
    """Of what is absent the commit table holds the state."""

    def query(self, cluster: ScriptedCluster) -> Query:
        return Query(cluster, PATTERN, failOnDataLoss="false")

    def test_what_is_not_done_of_a_topic_that_is_back_comes_again(
        self, cluster: ScriptedCluster
    ) -> None:
        query = self.query(cluster)
        query.batch({T2: rejected((60, 5))})
        cluster.latest = 110
        cluster.topics = {"t1": A}
        forget_metadata(query.run)
        assert {s.topic for s in query.batch()} == {"t1"}
        cluster.latest = 120
        query.restarted()
        query.batch()
        cluster.topics = {"t1": A, "t2": B}
        forget_metadata(query.run)
        splits = [s for s in query.batch() if s.topic == "t2"]
        assert [(s.from_offset, s.until_offset) for s in splits] == [(100, 120)]
        known = query.committed(query.options.commits, query.mark()["sourceId"]).known()
        assert [record.offset for record in known.states[T2].pending] == [60]
        assert (known.states[T2].position, known.states[T2].committed) == (120, 60)

    @pytest.mark.parametrize("comes_back_as", [B, C])
    def test_a_query_that_resumes_while_a_topic_is_away_goes_on_with_it(
        self, cluster: ScriptedCluster, comes_back_as: str
    ) -> None:
        before = self.query(cluster)
        before.batch({T2: rejected((60, 5))})
        resume = {"commitTable.onFreshStart": "resume", "failOnDataLoss": "false"}
        after = Query(cluster, PATTERN, **resume)
        after.committed = before.committed
        cluster.topics, cluster.latest = {"t1": A}, 110
        after.offset = after.restarted().initial().to_json()
        assert [(s.topic, s.from_offset) for s in after.batch()] == [("t1", 100)]
        cluster.latest = 115
        after.restarted()
        after.batch()
        cluster.topics, cluster.latest = {"t1": A, "t2": comes_back_as}, 120
        after.restarted()
        splits = [s for s in after.batch() if s.topic == "t2"]
        known = after.committed(after.options.commits, after.mark()["sourceId"]).known()
        pending = [record.offset for record in known.states[T2].pending]
        is_same = comes_back_as == B
        assert [s.from_offset for s in splits] == [100 if is_same else 0]
        assert pending == ([60] if is_same else [])

    def test_a_table_that_says_otherwise_of_what_is_absent_is_refused(
        self, cluster: ScriptedCluster
    ) -> None:
        query = self.query(cluster)
        query.batch()
        cluster.latest = 110
        cluster.topics = {"t1": A}
        forget_metadata(query.run)
        query.batch()
        commit_states(query.committed.store, query.mark()["sourceId"], {T2: state(90, topic_id=B)})
        query.restarted()
        with pytest.raises(KeyrangeError, match=r"COMMITS_BEHIND.*t2-0 stands at 100"):
            query.next()

    def test_a_cut_while_it_was_absent_keeps_what_is_below_it(
        self, monkeypatch: pytest.MonkeyPatch, cluster: ScriptedCluster
    ) -> None:
        Epochs(monkeypatch, until=80)
        query = self.query(cluster)
        query.batch({T2: rejected((60, 5), (90, 5))})
        cluster.latest = 110
        cluster.topics = {"t1": A}
        forget_metadata(query.run)
        query.batch()
        cluster.topics, cluster.latest, cluster.epoch = {"t1": A, "t2": B}, 150, 4
        forget_metadata(query.run)
        query.batch()
        known = query.committed(query.options.commits, query.mark()["sourceId"]).known()
        assert [record.offset for record in known.states[T2].pending] == [60]


def test_an_old_offset_knows_nothing_absent() -> None:
    assert read_checkpoint({"t": {"0": 5}, "@keyrange": {"version": 1}}).absent == {}
    assert "absent" not in Checkpoint({T1: 5}).to_json()["@keyrange"]


def test_a_batch_of_an_earlier_run_waits_for_what_the_first_look_did_not_find(
    cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(session(cluster, PATTERN, **GOING_ON))
    cluster.topics = {"t1": A}
    run = session(cluster, PATTERN, patience_s=3.0, **GOING_ON)
    # Spark asks for it before the first batch is planned once more.
    run.initial()
    monkeypatch.setattr(metadata_module.time, "sleep", lambda _: cluster.topics.update(t2=B))
    assert split_ranges(run, {}, first) == {("t1", 0, 100), ("t2", 0, 100)}
