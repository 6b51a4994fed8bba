"""The planning session of a stream against a scripted cluster: targets, starts, texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from keyrange.client_options import ClientSettings
from keyrange.core.offsets import LATEST, OffsetRange, TopicPartition
from keyrange.kafka.view import Broker, ClusterView, Leader, Topic
from keyrange.options import parse_options
from keyrange.spark.stream import _Session

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}


class ScriptedCluster:
    """A topic whose end and number of partitions a test sets."""

    settings = ClientSettings()

    def __init__(self, latest: int, partitions: int = 1, epoch: int = 0) -> None:
        self.latest, self.partitions, self.epoch = latest, partitions, epoch

    def describe(
        self, topics: Iterable[str], timeout_ms: float = 0, may_miss: Collection[str] = ()
    ) -> ClusterView:
        leaders = {number: Leader(1, self.epoch) for number in range(self.partitions)}
        return ClusterView("", {1: Broker(1, "b", 1)}, {"t": Topic("a" * 32, leaders)})

    def list_offsets(
        self, view: ClusterView, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        ends = {LATEST: self.latest}
        return {partition: (ends.get(which, 0), self.epoch) for partition, which in wanted.items()}


class FixedSizes:
    def of(
        self, view: ClusterView, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> dict[TopicPartition, float]:
        return dict.fromkeys(ranges, 100.0)

    def forget(self) -> None: ...


def session(cluster: Any, **options: str) -> _Session:
    sizes: Any = FixedSizes()
    return _Session(parse_options(GIVEN | options, "stream"), cluster, sizes)


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
    from keyrange.core.checkpoint import read_checkpoint

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
    from keyrange.core.checkpoint import read_checkpoint

    tasks = run.plan(run.initial(), read_checkpoint(end))
    assert tasks
    assert b"hunter2" not in pickle.dumps(tasks)
