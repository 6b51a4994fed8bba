"""The planning session of a stream against a scripted cluster: targets, starts, limits, texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from keyrange.errors import InvalidError
from keyrange.kafka.cluster_view import ClusterView
from keyrange.model.checkpoint import read_checkpoint
from keyrange.model.offset_splits import read_split, write_split
from keyrange.model.offsets import TopicPartition
from keyrange.source import planning_session as session_module
from queries.scripted import (
    EARLIEST_START,
    PATTERN,
    SERVERS,
    Epochs,
    ScriptedCluster,
    forget_metadata,
    planned,
    session,
)


def test_a_start_behind_the_target_of_the_run_is_no_loss() -> None:
    """The target is fixed first; on a busy topic latest is further on a moment later."""
    cluster = ScriptedCluster(100)
    run = session(cluster)
    run.fix_target()
    cluster.latest, cluster.partitions = 110, 2
    initial = run.initial().to_json()
    end = run.latest(initial, limited=True)
    assert end["t"] == {"0": 110, "1": 110}
    assert end["@keyrange"]["initial"] == {"t": {"0": 110, "1": 110}}
    assert run.latest(end, limited=True) == end


def test_a_partition_that_was_not_told_of_at_first_is_read_in_the_same_run() -> None:
    """By a broker that has just started, and knows less than the next one that is asked."""
    cluster = ScriptedCluster(100)
    run = session(cluster, **EARLIEST_START)
    run.fix_target()
    cluster.partitions = 2
    end = planned(run)
    assert end["t"] == {"0": 100, "1": 100}
    cluster.latest, cluster.partitions = 110, 3
    forget_metadata(run)
    assert run.latest(end, limited=True) is end


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_target_that_a_leader_told_which_was_behind_is_no_loss(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first question is asked before the query knows where it stands."""
    cluster = ScriptedCluster(100)
    end = planned(session(cluster, **EARLIEST_START))
    run = session(cluster, **EARLIEST_START, failOnDataLoss=fails)
    cluster.latest = 90
    run.fix_target()
    cluster.latest = 100
    assert run.latest(end, limited=True) is end
    cluster.latest = 110
    assert run.latest(end, limited=True) is end, "and the target stands"
    assert caplog.text == ""


def test_the_target_of_a_run_is_not_passed() -> None:
    cluster = ScriptedCluster(100)
    run = session(cluster, startingOffsets="earliest")
    run.fix_target()
    cluster.latest = 500
    assert run.latest(run.initial().to_json(), limited=True)["t"] == {"0": 100}


def test_the_text_stays_when_only_a_leader_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset that changes without a position would make a query run empty batches for ever."""
    cluster = ScriptedCluster(100)
    run = session(cluster, startingOffsets="earliest")
    end = run.latest(run.initial().to_json(), limited=True)
    Epochs(monkeypatch, until=100)
    cluster.epoch = 7
    assert run.latest(end, limited=True) is end


@pytest.mark.parametrize(
    ("available_now", "first", "given", "level"),
    [
        (True, 0, {}, "WARNING"),
        (False, 0, {}, "INFO"),
        # Nothing is left out.
        (True, 100, {}, None),
        (True, 0, {"startingOffsets": "latest"}, None),
        (True, 0, {"startingOffsets": "earliest"}, None),
        (True, 0, {"startingTimestamp": "1"}, None),
    ],
)
def test_a_new_query_that_begins_at_the_end_says_so_once(
    available_now: bool,
    first: int,
    given: Mapping[str, str],
    level: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", session_module.__name__)
    cluster = ScriptedCluster(100)
    cluster.first = first
    run = session(cluster, **given)
    if available_now:
        run.fix_target()
    end = run.latest(run.initial().to_json(), limited=True)
    told = [record.levelname for record in caplog.records if "end of the log" in record.message]
    assert told == ([level] if level else [])
    assert not level or "startingOffsets=earliest, with a new checkpoint" in caplog.text
    caplog.clear()
    again = session(cluster, **given)
    again.initial()
    assert again.latest(end, limited=True) == run.latest(end, limited=True) == end
    assert caplog.text == ""


def test_a_replayed_first_batch_starts_where_it_was_planned() -> None:
    """Spark asks for the initial offset anew; the planned end knows better."""
    cluster = ScriptedCluster(100)
    planned = session(cluster)
    initial = planned.initial().to_json()
    cluster.latest = 130
    end = planned.latest(initial, limited=True)
    cluster.latest = 900
    again = session(cluster)
    tasks: Any = again.plan(again.initial(), read_checkpoint(end))
    [[split]] = [task.splits for task in tasks]
    assert (split.from_offset, split.until_offset) == (100, 130)


def test_a_task_holds_no_secret() -> None:
    import pickle  # noqa: TID251  as Spark does with tasks

    password = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "hunter2",
    }
    run = session(ScriptedCluster(10), startingOffsets="earliest", **password)
    end = run.latest(run.initial().to_json(), limited=True)
    tasks = run.plan(run.initial(), read_checkpoint(end))
    assert tasks
    assert b"hunter2" not in pickle.dumps(tasks)


def test_a_replay_does_not_need_the_start_that_options_cannot_say_any_more() -> None:
    """A partition was added while the first batch was not committed."""
    start = {"startingOffsets": '{"t":{"0":3}}'}
    cluster = ScriptedCluster(10)
    end = planned(session(cluster, **start))
    cluster.partitions = 2
    again = session(cluster, **start)
    tasks: Any = again.plan(again.initial(), read_checkpoint(end))
    [[split]] = [task.splits for task in tasks]
    assert (split.from_offset, split.until_offset) == (3, 10)
    with pytest.raises(InvalidError, match="KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
        planned(session(cluster, **start))


FOREIGN = {"t": {"0": 9}}


def test_a_first_batch_of_the_jvm_connector_is_replayed_only_from_a_start_that_is_said() -> None:
    cluster = ScriptedCluster(10)
    run = session(cluster, **EARLIEST_START)
    with pytest.raises(InvalidError, match="UNCOMMITTED_FOREIGN_BATCH"):
        run.plan(run.initial(), read_checkpoint(FOREIGN))
    said = session(cluster, startingOffsets='{"t":{"0":4}}')
    tasks: Any = said.plan(said.initial(), read_checkpoint(FOREIGN))
    [[split]] = [task.splits for task in tasks]
    assert (split.from_offset, split.until_offset) == (4, 9)


def test_a_committed_checkpoint_of_the_jvm_connector_is_gone_on_with() -> None:
    run = session(ScriptedCluster(15))
    end = run.latest(FOREIGN, limited=True)
    assert end["t"] == {"0": 15}
    tasks: Any = run.plan(read_checkpoint(FOREIGN), read_checkpoint(end))
    [[split]] = [task.splits for task in tasks]
    assert (split.from_offset, split.until_offset) == (9, 15)


def test_a_batch_waits_for_the_least_offsets_but_not_the_first_one() -> None:
    cluster = ScriptedCluster(3)
    run = session(cluster, **EARLIEST_START, minOffsetsPerTrigger="10")
    end = planned(run)
    assert end["t"] == {"0": 3}
    cluster.latest = 12
    assert run.latest(end, limited=True) is end
    cluster.latest = 13
    assert run.latest(end, limited=True)["t"] == {"0": 13}


def test_the_first_batch_of_a_run_that_goes_on_does_not_wait_either() -> None:
    cluster = ScriptedCluster(3)
    limits = {"minOffsetsPerTrigger": "10"}
    end = planned(session(cluster, **EARLIEST_START, **limits))
    run = session(cluster, **EARLIEST_START, **limits)
    cluster.latest = 5
    assert (second := run.latest(end, limited=True))["t"] == {"0": 5}
    cluster.latest = 14
    assert run.latest(second, limited=True) is second


def test_the_delay_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(session_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(session_module.time, "sleep", lambda _: None)
    cluster = ScriptedCluster(3)
    limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s"}
    run = session(cluster, **EARLIEST_START, **limits)
    end = run.latest(planned(run), limited=True)
    cluster.latest = 5
    now[0] += 29
    assert run.latest(end, limited=True) is end
    now[0] += 2
    assert run.latest(end, limited=True)["t"] == {"0": 5}


def test_a_run_that_ends_does_not_leave_what_is_less_than_the_least() -> None:
    cluster = ScriptedCluster(26)
    limits = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12"}
    run = session(cluster, **EARLIEST_START, **limits)
    run.fix_target()
    ends, end = [], run.initial().to_json()
    while (after := run.latest(end, limited=True)) != end:
        end = after
        ends.append(end["t"]["0"])
    assert ends == [12, 24, 26]


def test_trigger_once_ignores_the_limits() -> None:
    cluster = ScriptedCluster(26)
    run = session(cluster, **EARLIEST_START, maxOffsetsPerTrigger="5")
    assert run.latest(run.initial().to_json(), limited=False)["t"] == {"0": 26}


def test_a_pattern_without_a_topic_waits_for_one(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster(5)
    cluster.topics = {}
    run = session(cluster, PATTERN)
    end = planned(run)
    assert "no topic has a name that option 'subscribePattern' describes" in caplog.text
    assert [name for name in end if name != "@keyrange"] == []
    assert run.latest(end, limited=True) is end
    cluster.topics = {"t7": "b" * 32, "s": "c" * 32}
    forget_metadata(run)
    found = run.latest(end, limited=True)
    assert found["t7"] == {"0": 5}, "found later, so read from its earliest offset"
    assert found["@keyrange"]["initial"] == {"t7": {"0": 0}}


def test_topics_that_spark_reads_by_the_same_pattern_are_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ScriptedCluster(5)
    cluster.topics = {f"{n:02}.orders": "a" * 32 for n in range(11)} | {"orders": "b" * 32}
    orders = SERVERS | {"subscribePattern": "orders"}
    run = session(cluster, orders, **EARLIEST_START)
    end = planned(run)
    assert run.latest(end, limited=True) is end
    assert end["orders"] == {"0": 5}
    [record] = caplog.records
    assert "leaves out 11 topics in whose names it is found: 00.orders, " in record.getMessage()
    assert "09.orders, .... subscribePatternMatch=search reads them too" in record.getMessage()
    caplog.clear()
    for match in ("full", "search"):
        planned(session(cluster, orders, **EARLIEST_START, subscribePatternMatch=match))
    assert caplog.text == ""


def test_splits_say_in_which_epoch_the_log_reached_up_to_their_end() -> None:
    """Also those of a replay."""
    cluster = ScriptedCluster(100, epoch=3)
    run = session(cluster, **EARLIEST_START)
    end = planned(run)
    for each in (run, session(cluster, **EARLIEST_START)):
        tasks: Any = each.plan(each.initial(), read_checkpoint(end))
        [[split]] = [task.splits for task in tasks]
        assert split.leader_epoch == 3
        assert read_split(write_split(split)) == split
    del end["@keyrange"]["leaderEpochs"]
    tasks = run.plan(run.initial(), read_checkpoint(end))
    [[split]] = [task.splits for task in tasks]
    assert split.leader_epoch == -1
    assert read_split(write_split(split)) == split


class Timed(ScriptedCluster):
    """A cluster that answers a question for a time."""

    at_time = 7

    def list_offsets(
        self, view: ClusterView, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        found = super().list_offsets(view, wanted)
        by_time = {p: (self.at_time, self.epoch) for p, which in wanted.items() if which >= 0}
        return found | by_time


@pytest.mark.parametrize(
    "start",
    [{"startingTimestamp": "5"}, {"startingOffsetsByTimestamp": '{"t":{"0":5}}'}],
    ids=lambda start: next(iter(start)),
)
def test_a_start_by_time_is_that_of_the_first_batch_and_of_no_new_partition(
    start: dict[str, str],
) -> None:
    """The time's record may be another one by the restart, and partitions that come later are read
    from where they begin."""
    cluster = Timed(20)
    end = planned(session(cluster, **start))
    assert end["@keyrange"]["initial"] == {"t": {"0": 7}}
    cluster.at_time, cluster.partitions = 12, 2
    again = session(cluster, **start)
    tasks: Any = again.plan(again.initial(), read_checkpoint(end))
    assert [(s.partition, s.from_offset) for task in tasks for s in task.splits] == [(0, 7)]
    cluster.latest = 25
    grown = again.latest(end, limited=True)
    assert grown["@keyrange"]["initial"] == {"t": {"1": 0}}
    tasks = again.plan(read_checkpoint(end), read_checkpoint(grown))
    read = [(s.partition, s.from_offset, s.until_offset) for task in tasks for s in task.splits]
    assert sorted(read) == [(0, 20, 25), (1, 0, 25)]
