"""The planning session of a stream against a scripted cluster: targets, starts, texts, losses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import pytest

from keyrange.client_options import ClientSettings
from keyrange.core.checkpoint import Checkpoint, read_checkpoint
from keyrange.core.offsets import LATEST, OffsetRange, TopicPartition
from keyrange.errors import DataLossError, InvalidError, KeyrangeError, UnavailableError, error
from keyrange.kafka.view import Broker, ClusterView, Leader, Topic
from keyrange.options import parse_options
from keyrange.spark import session as session_module
from keyrange.spark.session import PlanningSession

SERVERS = {"kafka.bootstrap.servers": "h:1"}
GIVEN = SERVERS | {"subscribe": "t"}
T0 = TopicPartition("t", 0)


class ScriptedCluster:
    """Topics whose ends, ids and leader epochs a test sets."""

    settings = ClientSettings()
    contacted = True

    def __init__(self, latest: int, partitions: int = 1, epoch: int = 0) -> None:
        self.latest, self.partitions, self.epoch = latest, partitions, epoch
        self.topics = {"t": "a" * 32}
        self.fails: list[KeyrangeError] = []
        self.asked = 0
        self.closed = 0

    def describe(
        self, topics: Iterable[str], timeout_ms: float = 0, may_miss: Collection[str] = ()
    ) -> ClusterView:
        missing = [name for name in topics if name not in self.topics and name not in may_miss]
        if missing:
            raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {missing}")
        return self.describe_matching(lambda name: name in set(topics))

    def describe_matching(self, matches: Callable[[str], bool]) -> ClusterView:
        leaders = {number: Leader(1, self.epoch) for number in range(self.partitions)}
        found = {n: Topic(topic_id, leaders) for n, topic_id in self.topics.items() if matches(n)}
        return ClusterView("", {1: Broker(1, "b", 1)}, found)

    def list_offsets(
        self, view: ClusterView, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += 1
        if self.fails:
            raise self.fails.pop(0)
        if gone := {p.topic for p in wanted} - self.topics.keys():
            raise error("UNKNOWN_TOPIC_OR_PARTITION", f"no topic {gone}")
        ends = {LATEST: self.latest}
        return {partition: (ends.get(which, 0), self.epoch) for partition, which in wanted.items()}

    def close(self) -> None:
        self.closed += 1


class FixedSizes:
    def of(
        self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, float]:
        return dict.fromkeys(ranges, 100.0)

    def forget(self) -> None: ...


def session(cluster: Any, given: Mapping[str, str] = GIVEN, **options: str) -> PlanningSession:
    sizes: Any = FixedSizes()
    return PlanningSession(parse_options({**given, **options}, "stream"), cluster, sizes)


def forget_metadata(run: PlanningSession) -> None:
    """As if a second had passed."""
    run._view_until = 0.0


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


def test_the_target_of_a_run_is_not_passed() -> None:
    cluster = ScriptedCluster(100)
    run = session(cluster, startingOffsets="earliest")
    run.fix_target()
    cluster.latest = 500
    assert run.latest(run.initial().to_json(), limited=True)["t"] == {"0": 100}


def test_the_text_stays_when_only_a_leader_changes() -> None:
    """An offset that changes without a position would make a query run empty batches for ever."""
    cluster = ScriptedCluster(100)
    run = session(cluster, startingOffsets="earliest")
    end = run.latest(run.initial().to_json(), limited=True)
    cluster.epoch = 7
    assert run.latest(end, limited=True) is end


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


EARLIEST_START = {"startingOffsets": "earliest"}


def planned(run: PlanningSession) -> dict[str, Any]:
    return run.latest(run.initial().to_json(), limited=True)


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
    cluster.latest = 5
    second = run.latest(end, limited=True)
    assert second["t"] == {"0": 5}, "the first batch that could have waited"
    cluster.latest = 14
    assert run.latest(second, limited=True) is second
    cluster.latest = 15
    assert run.latest(second, limited=True)["t"] == {"0": 15}


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


PATTERN = SERVERS | {"subscribePattern": "t.*"}


def test_a_pattern_without_a_topic_waits_for_one() -> None:
    cluster = ScriptedCluster(5)
    cluster.topics = {}
    run = session(cluster, PATTERN)
    end = planned(run)
    assert [name for name in end if name != "@keyrange"] == []
    assert run.latest(end, limited=True) is end
    cluster.topics = {"t7": "b" * 32, "s": "c" * 32}
    forget_metadata(run)
    found = run.latest(end, limited=True)
    assert found["t7"] == {"0": 5}, "found later, so read from its earliest offset"
    assert found["@keyrange"]["initial"] == {"t7": {"0": 0}}


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
    named = session(cluster, **EARLIEST_START, **{"kafka.group.id": "g"})
    with pytest.raises(DataLossError, match="PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT"):
        named.latest(end, limited=True)


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


class Epochs:
    """Answers of OffsetForLeaderEpoch, and how often they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: int) -> None:
        self.until, self.asked = until, 0
        monkeypatch.setattr(session_module, "epoch_ends", self)

    def __call__(
        self, cluster: Any, view: ClusterView, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked += 1
        return {partition: (epoch, self.until) for partition, epoch in epochs.items()}


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


def test_a_replayed_batch_on_a_log_that_was_cut_back_is_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Epochs(monkeypatch, until=80)
    cluster = ScriptedCluster(100, epoch=3)
    end = planned(session(cluster, **EARLIEST_START))
    cluster.latest, cluster.epoch = 150, 4
    again = session(cluster, **EARLIEST_START)
    with pytest.raises(DataLossError, match="LOG_TRUNCATED"):
        again.plan(again.initial(), read_checkpoint(end))


class Mirrored:
    """What is given to the mirror."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[TopicPartition, int]]] = []
        mine = self

        class Mirror:
            def __init__(self, cluster: Any, group_id: str) -> None:
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
