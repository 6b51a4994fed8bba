"""The planning session against a scripted cluster: losses, failures, leader epochs, the mirror."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from keyrange.errors import DataLossError, UnavailableError, error
from keyrange.model.checkpoint import Checkpoint, read_checkpoint
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
    planned,
    session,
)


@pytest.mark.parametrize("given", [GIVEN, PATTERN])
def test_positions_outlive_the_only_topic(given: dict[str, str]) -> None:
    """No offset without a partition is ever planned; the topic comes back with another id."""
    cluster = ScriptedCluster(5)
    run = session(cluster, given, **EARLIEST_START, failOnDataLoss="false")
    end = planned(run)
    cluster.topics = {}
    forget_metadata(run)
    assert run.latest(end, limited=True) is end
    cluster.topics, cluster.latest = {"t": "b" * 32}, 3
    forget_metadata(run)
    found = run.latest(end, limited=True)
    assert found["t"] == {"0": 3}
    assert found["@keyrange"]["initial"] == {"t": {"0": 0}}


def test_a_loss_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, failOnDataLoss="false")
    end = planned(run)
    cluster.topics = {}
    forget_metadata(run)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            run.latest(end, limited=True)
    assert [m for m in caplog.messages if "PARTITIONS_DELETED" in m] == caplog.messages[:1]


def test_a_topic_that_vanishes_between_two_questions_is_a_loss_and_no_wrong_name() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START)
    end = planned(run)
    cluster.topics = {}
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED"):
        run.latest(end, limited=True)
    named = session(cluster, **EARLIEST_START, mirrorOffsets="false", **{"kafka.group.id": "g"})
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"):
        named.latest(end, limited=True)


def test_topics_may_vanish_one_after_the_other() -> None:
    class Deleting(ScriptedCluster):
        def list_offsets(self, *asked: Any, **given: Any) -> dict[TopicPartition, tuple[int, int]]:
            if len(self.topics) > 1:
                self.topics.popitem()
            return super().list_offsets(*asked, **given)

    cluster = Deleting(5)
    run = session(cluster, PATTERN, **EARLIEST_START, failOnDataLoss="false")
    end = planned(run)
    cluster.topics |= {f"t{number}": "b" * 32 for number in range(4)}
    forget_metadata(run)
    cluster.latest = 7
    assert run.latest(end, limited=True)["t"] == {"0": 7}


def two_topics() -> ScriptedCluster:
    cluster = ScriptedCluster(5)
    cluster.topics = {"t": "a" * 32, "u": "b" * 32}
    return cluster


def test_a_topic_that_the_options_do_not_name_any_more_is_not_said_to_be_gone() -> None:
    """The remedy is another one: the topic is there, and its position in the checkpoint."""
    cluster = two_topics()
    end = planned(session(cluster, **EARLIEST_START, subscribe="t,u"))
    left_out = session(cluster, **EARLIEST_START, subscribe="t")
    with pytest.raises(DataLossError, match=r"PARTITIONS_DELETED") as failure:
        left_out.latest(end, limited=True)
    assert "positions in topics u, which option 'subscribe' does not name" in str(failure.value)
    assert "gone" not in failure.value.message
    cluster.latest = 9
    going_on = session(cluster, failOnDataLoss="false", subscribe="t").latest(end, limited=True)
    assert going_on["t"] == {"0": 9}
    named_again = session(cluster, subscribe="t,u").latest(going_on, limited=True)
    assert named_again["u"] == {"0": 9}
    assert named_again["@keyrange"]["initial"]["u"] == {"0": 5}


def test_a_planned_batch_of_a_topic_that_the_options_do_not_name_any_more() -> None:
    cluster = two_topics()
    first = session(cluster, **EARLIEST_START, subscribe="t,u")
    start, end = first.initial(), read_checkpoint(planned(first))
    left_out = session(cluster, **EARLIEST_START, subscribe="t")
    with pytest.raises(DataLossError, match="COULD_NOT_READ_OFFSET_RANGE") as failure:
        left_out.plan(start, end)
    assert "u-0: option 'subscribe' does not name it any more; name it" in failure.value.message
    assert "deleted" not in failure.value.message


def test_what_passes_is_asked_again_with_new_connections() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, **{"fetchOffset.retryIntervalMs": "0"})
    end = planned(run)
    passing = [error("REQUEST_TIMED_OUT", "late") for _ in range(3)]
    cluster.fails = passing[:2]
    assert run.latest(end, limited=True) is end
    assert cluster.closed == 2
    cluster.fails = passing
    with pytest.raises(UnavailableError, match="late"):
        run.latest(end, limited=True)


def test_the_first_contact_is_tried_once_unless_the_option_says_more() -> None:
    cluster = ScriptedCluster(5)
    cluster.contacted = False
    again = {"fetchOffset.retryIntervalMs": "0"}
    cluster.fails = [error("REQUEST_TIMED_OUT", "late")]
    with pytest.raises(UnavailableError):
        session(cluster, **EARLIEST_START, **again).initial()
    cluster.fails = [error("REQUEST_TIMED_OUT", "late")] * 4
    tries = {"fetchOffset.numRetries": "5"}
    assert session(cluster, **EARLIEST_START, **again, **tries).initial().positions == {T0: 0}


def test_a_log_that_was_cut_back_under_a_new_leader_is_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new leader's log is longer again than the position, so that its end tells nothing."""
    epochs = Epochs(monkeypatch, until=80)
    cluster = ScriptedCluster(100, epoch=3)
    end = planned(session(cluster, **EARLIEST_START))
    assert end["@keyrange"]["leaderEpochs"] == {"t": {"0": 3}}
    cluster.latest, cluster.epoch = 150, 4
    with pytest.raises(DataLossError, match=r"LOG_TRUNCATED.*same up to offset 80"):
        session(cluster).latest(end, limited=True)
    going_on = session(cluster, failOnDataLoss="false")
    found = going_on.latest(end, limited=True)
    assert found["t"] == {"0": 150}
    assert found["@keyrange"]["initial"] == {"t": {"0": 80}}, "what was written anew is not skipped"
    assert epochs.asked == 2


def test_a_leader_that_kept_the_log_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(monkeypatch, until=100)
    cluster = ScriptedCluster(100, epoch=3)
    run = session(cluster, **EARLIEST_START)
    end = planned(run)
    cluster.epoch = 4
    for _ in range(3):
        assert run.latest(end, limited=True) is end
    assert epochs.asked == 1


@pytest.mark.parametrize("available_now", [False, True])
def test_a_replayed_batch_on_a_log_that_was_cut_back_is_a_loss(
    monkeypatch: pytest.MonkeyPatch, available_now: bool
) -> None:
    Epochs(monkeypatch, until=80)
    cluster = ScriptedCluster(100, epoch=3)
    end = planned(session(cluster, **EARLIEST_START))
    cluster.latest, cluster.epoch = 150, 4
    again = session(cluster, **EARLIEST_START)
    if available_now:
        again.fix_target()
    with pytest.raises(DataLossError, match="LOG_TRUNCATED"):
        again.plan(again.initial(), read_checkpoint(end))


class Mirrored:
    """What is given to the mirror."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[TopicPartition, int]]] = []
        mine = self

        class Mirror:
            def __init__(self, cluster: Any, group_id: str, mark: str) -> None:
                self.group_id = group_id

            def mirror(self, positions: Any, epochs: Any, now_ms: int) -> None:
                mine.calls.append((self.group_id, dict(positions)))

            def metrics(self) -> dict[str, int]:
                return {"committed": len(mine.calls)}

        monkeypatch.setattr(session_module, "GroupMirror", Mirror)


def test_only_finished_batches_are_mirrored(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = Mirrored(monkeypatch)
    run = session(ScriptedCluster(5), **EARLIEST_START, **{"kafka.group.id": "g"})
    end = planned(run)
    assert mirrored.calls == [], "what is planned is not finished"
    run.latest(end, limited=True)
    assert mirrored.calls == [("g", {T0: 5})]
    latest = run.known_latest()
    assert latest == {"t": {"0": 5}, "@keyrange": {"metrics": {"mirror": {"committed": 1}}}}


def test_a_made_up_group_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = Mirrored(monkeypatch)
    cluster = ScriptedCluster(5)
    end = planned(session(cluster, **EARLIEST_START, groupIdPrefix="p"))
    name = end["@keyrange"]["groupId"]
    assert name.startswith("p-")
    run = session(cluster, groupIdPrefix="p")
    run.latest(end, limited=True)
    cluster.latest = 9
    assert run.latest(end, limited=True)["@keyrange"]["groupId"] == name
    assert {group for group, _ in mirrored.calls} == {name}
    other = session(cluster, groupIdPrefix="q").latest(end, limited=True)
    assert other["@keyrange"]["groupId"].startswith("q-")
    assert "groupId" not in session(cluster).latest(end, limited=True)["@keyrange"]


def test_the_default_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored = Mirrored(monkeypatch)
    run = session(ScriptedCluster(5), **EARLIEST_START)
    run.latest(planned(run), limited=True)
    run.mirror(Checkpoint({T0: 5}))
    assert mirrored.calls == []
    assert run.known_latest() == {"t": {"0": 5}, "@keyrange": {"metrics": {}}}


GOING_ON = {"failOnDataLoss": "false"}


def lost(run: Any) -> Any:
    """The part of the progress that says it: the sum, and what is new, by partition."""
    told = run.known_latest()["@keyrange"]["metrics"]["losses"]
    rows = [(row["partition"], row["fromOffset"], row["untilOffset"]) for row in told["found"]]
    return told["offsets"], rows


def test_what_retention_took_is_told_with_the_batch_that_goes_past_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ScriptedCluster(5, partitions=2)
    run = session(cluster, **EARLIEST_START, **GOING_ON)
    start = planned(run)
    run.plan(run.initial(), read_checkpoint(start))
    assert lost(run) == (0, [])
    cluster.first, cluster.latest = 9, 12
    with caplog.at_level(logging.WARNING):
        end = run.latest(start, limited=True)
    assert lost(run) == (8, [(0, 5, 9), (1, 5, 9)])
    assert [m for m in caplog.messages if "t-0 [5, 9) are lost, 4 in all" in m]
    run.plan(read_checkpoint(start), read_checkpoint(end))
    assert run.latest(end, limited=True) is end
    assert lost(run) == (8, []), "told once"


def test_a_batch_of_an_earlier_run_is_looked_at_before_it_is_read_again() -> None:
    cluster = ScriptedCluster(5)
    end = planned(session(cluster, **EARLIEST_START, **GOING_ON))
    cluster.first = 2
    run = session(cluster, **EARLIEST_START, **GOING_ON)
    run.plan(run.initial(), read_checkpoint(end))
    assert lost(run) == (2, [(0, 0, 2)])


@pytest.mark.parametrize("recreated", [{}, {"t": "b" * 32}])
def test_what_was_left_of_a_topic_that_is_gone_is_told_once(recreated: dict[str, str]) -> None:
    cluster = ScriptedCluster(5)
    cluster.topics |= {"u": "c" * 32}
    both = GIVEN | {"subscribe": "t,u"}
    run = session(cluster, both, **EARLIEST_START, **GOING_ON, maxOffsetsPerTrigger="4")
    start = planned(run)
    run.plan(run.initial(), read_checkpoint(start))
    # The new topic is longer than where the query stood in the other.
    cluster.topics, cluster.latest = {"u": "c" * 32, **recreated}, 7
    for _ in range(2):
        forget_metadata(run)
        run.latest(start, limited=True)
    assert lost(run) == (3, [(0, 2, 5)])


def test_what_a_new_partition_had_lost_before_is_told() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, **GOING_ON)
    start = planned(run)
    cluster.partitions, cluster.first = 2, 4
    forget_metadata(run)
    run.latest(start, limited=True)
    assert lost(run) == (4, [(1, 0, 4)])


def test_a_topic_that_was_created_anew_a_moment_ago_is_another_one() -> None:
    """What is known of topics is up to a second old, and where they end is not."""
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, **GOING_ON)
    start = planned(run)
    run.plan(run.initial(), read_checkpoint(start))
    cluster.topics, cluster.latest = {"t": "d" * 32}, 2
    end = read_checkpoint(run.latest(start, limited=True))
    assert end.topic_ids == {"t": "d" * 32}
    assert end.initial == {TopicPartition("t", 0): 0}
    assert end.positions == {TopicPartition("t", 0): 2}


def test_what_a_topic_that_was_created_anew_had_lost_before_is_told() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, **GOING_ON)
    start = planned(run)
    run.plan(run.initial(), read_checkpoint(start))
    cluster.topics, cluster.first = {"t": "b" * 32}, 4
    for _ in range(2):
        forget_metadata(run)
        run.latest(start, limited=True)
    assert lost(run) == (4, [(0, 0, 4)])


def test_what_is_left_of_a_topic_and_what_its_successor_lost_are_told_once_each() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START, **GOING_ON, maxOffsetsPerTrigger="2")
    start = planned(run)
    run.plan(run.initial(), read_checkpoint(start))
    cluster.topics, cluster.first, cluster.latest = {"t": "b" * 32}, 4, 7
    for _ in range(3):
        forget_metadata(run)
        run.latest(start, limited=True)
    assert lost(run) == (3 + 4, [(0, 2, 5), (0, 0, 4)])


def test_where_a_loss_fails_the_query_nothing_is_asked_for_it() -> None:
    cluster = ScriptedCluster(5)
    run = session(cluster, **EARLIEST_START)
    start = planned(run)
    cluster.latest, before = 6, cluster.asked
    run.latest(start, limited=True)
    assert cluster.asked == before + 1


def test_an_end_that_a_new_leader_does_not_know_yet_is_no_loss_after_a_restart() -> None:
    ends = iter([90, 90, 100])
    cluster = ScriptedCluster(100)
    run = session(cluster, **EARLIEST_START)
    first = planned(run)
    run = session(cluster, **EARLIEST_START)
    answered = cluster.list_offsets

    def late(*asked: Any) -> Any:
        cluster.latest = next(ends, 100)
        return answered(*asked)

    cluster.list_offsets = late  # type: ignore[method-assign]
    # The batch that is run again is planned from what the leader says first.
    run.plan(Checkpoint({}, fresh=True), read_checkpoint(first))
    assert run.latest(first, limited=True) is first
