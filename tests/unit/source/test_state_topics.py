"""What is checked of state before a query plans by it: the job's variables, and which topics may
share the state of their keys, and how their partitions are cut then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.model.state_columns import columns_of
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.checkpoint import Checkpoint, CommitMark, read_checkpoint
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.source.commit_strategy import JobState
from keyrange.source.state_topics import (
    check_mark,
    check_scope,
    check_topics,
    same_counts,
    same_cuts,
)
from queries.scripted import ScriptedCluster
from queries.scripted_query import Query

SHARED = StateScope("t")
PARTITIONS = [TopicPartition(topic, number) for topic in "ta" for number in range(2)]
IDS = {"t": "id of t", "a": "id of a"}
BASE = Checkpoint(dict.fromkeys(PARTITIONS, 5), IDS)
KNOWN = Snapshot(
    1,
    columns_of({each: fresh(IDS[each.topic], 5) for each in PARTITIONS}),
    terms=CommitSettings(state_topic="t"),
    runs={PARTITIONS[0]: (StateRun("f", (0, 1), SPACE, 1, 2, 1, 1, 0),)},
)


def test_topics_of_as_many_partitions_share() -> None:
    check_topics(KNOWN, BASE, SHARED)
    check_topics(Snapshot(), BASE, SHARED)
    more = {**BASE.positions, TopicPartition("a", 2): 0}
    check_topics(KNOWN, replace(BASE, positions=more), OWN_STATE)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (
            replace(BASE, positions={**BASE.positions, TopicPartition("a", 2): 0}),
            "topic a has 3 partitions, and t has 2",
        ),
        (replace(BASE, topic_ids={**IDS, "a": "another"}), "topic a was deleted or created anew"),
        (
            replace(
                BASE,
                positions={each: 5 for each in PARTITIONS if each.topic == "t"},
                absent={each: 5 for each in PARTITIONS if each.topic == "a"},
            ),
            "topic a was deleted",
        ),
        (
            replace(BASE, positions={each: 5 for each in PARTITIONS if each.topic == "a"}),
            "state.topic=t is none of the topics",
        ),
    ],
)
def test_topics_that_differ_are_refused(base: Checkpoint, said: str) -> None:
    with pytest.raises(KeyrangeError, match=said) as raised:
        check_topics(KNOWN, base, SHARED)
    assert raised.value.condition.name == "STATE_TOPICS_DIFFER"


def test_state_stays_where_it_was_written() -> None:
    check_scope(KNOWN, CommitSettings(state_topic="t"))
    check_scope(replace(KNOWN, runs={}), CommitSettings())
    for topic, said in (("", "option state.topic is none"), ("a", "option state.topic is a")):
        with pytest.raises(KeyrangeError, match=said):
            check_scope(KNOWN, CommitSettings(state_topic=topic))


def test_a_batch_is_finished_as_it_was_planned() -> None:
    end = Checkpoint({}, commits=CommitMark("0" * 32, 1, state_topic="t"))
    mark = read_checkpoint(end.to_json()).commits
    assert mark is not None
    check_mark(mark, SHARED)
    with pytest.raises(KeyrangeError, match=r"planned with state\.topic=t is not"):
        check_mark(mark, OWN_STATE)


def test_partitions_that_share_are_cut_alike() -> None:
    t0, t1, a0, a1 = PARTITIONS
    assert same_counts({t0: 2, a0: 5}, PARTITIONS, SHARED) == {t0: 5, a0: 5}
    assert same_counts({a1: 3}, PARTITIONS, OWN_STATE) == {a1: 3}
    asked: list[set[TopicPartition]] = []

    def cuts_of(partitions: object) -> dict[TopicPartition, tuple[int, ...]]:
        asked.append(set(partitions))  # type: ignore[call-overload]
        return {t1: (7, 9)}

    assert same_cuts(cuts_of, {a1}, PARTITIONS, SHARED) == {t1: (7, 9), a1: (7, 9)}
    assert asked == [{t1}]
    assert same_cuts(None, {a1}, PARTITIONS, SHARED) == {}


@pytest.mark.parametrize("is_planned", [False, True])
def test_state_that_a_job_does_not_take_in_is_refused_before_anything_is_planned(
    is_planned: bool,
) -> None:
    """Without a new record too, and with a batch that an earlier run has planned."""
    query = Query(ScriptedCluster(10), keeps_state=True)
    query.batch()
    asked: list[list[StateRun]] = []

    def check(runs: Iterable[StateRun]) -> None:
        asked.append([*runs])
        raise error("STATE_SCHEMA_CHANGED", "other windows")

    query.cluster.latest = 15
    end = query.next()
    if not is_planned:
        query.cluster.latest = 10
    query.state = JobState(check_runs=check)
    query.restarted()
    with pytest.raises(KeyrangeError, match="STATE_SCHEMA_CHANGED"):
        query.splits(end) if is_planned else query.next()
    assert asked == [[]]


def test_all_runs_of_state_are_looked_at_once() -> None:
    asked: list[list[StateRun]] = []
    state = JobState(check_runs=lambda runs: asked.append([*runs]))
    for known in (KNOWN, KNOWN):
        state.check(known)
    assert asked == [[*KNOWN.runs[PARTITIONS[0]]]]
    JobState().check(KNOWN)
