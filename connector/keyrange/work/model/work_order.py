"""What a task is told that works on records while it reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import OWN_STATE, StateScope
from keyrange.model.timers import NO_RETRIES, Retries
from keyrange.model.watermarks import PartitionClock


@dataclass(frozen=True, slots=True)
class TaskPartition:
    """What a task knows of a partition before it begins.

    `cells` cover the hash space once, in order. Records of the keys at the places `held` are not
    worked on. `deliveries`: how often redelivered records were worked on before, by offset.
    `again`: of a job with time the places of the keys of all redelivered records, by offset, and
    `late`: the offsets of those that were late. `begins`: of a job with time whose output is held
    where the new offsets of each cell begin.
    """

    cells: tuple[KeyRange, ...]
    held: frozenset[int] = frozenset()
    deliveries: Mapping[int, int] = field(default_factory=dict)
    again: Mapping[int, int] = field(default_factory=dict)
    late: frozenset[int] = frozenset()
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """How records are worked on. Durations are in ms, 0 for no limit; `backoff_ms` and
    `backoff_max_ms` as of `RedeliveryPolicy`."""

    keeps_order: bool = True
    deliveries_max: int = 5
    record_timeout_ms: int = 0
    budget_ms: int = 0
    backoff_ms: int = 10_000
    backoff_max_ms: int = 600_000

    @property
    def has_limits(self) -> bool:
        return bool(self.record_timeout_ms or self.budget_ms)


@dataclass(frozen=True, slots=True)
class StateOrder:
    """Where the state of keys is before the batch: the runs of each partition at commit `seq`.
    `time_ms`: the time of the batch, in ms since 1970, and `retries` that of timers that failed.
    `clocks`: of a job with time, what late records and timers of each partition go by, and
    `timers_max`: of about how many keys of a range timers fire in the batch, None for all.
    `scope`: which partitions share a state; `topic_id`: of the topic under whose partitions it
    stands then."""

    seq: int
    time_ms: int
    runs: Mapping[TopicPartition, tuple[StateRun, ...]]
    clocks: Mapping[TopicPartition, PartitionClock] = field(default_factory=dict)
    timers_max: int | None = None
    scope: StateScope = OWN_STATE
    topic_id: str = ""
    retries: Retries = NO_RETRIES

    def only(self, partitions: Collection[TopicPartition]) -> StateOrder:
        """Of some partitions, and of those with their state."""
        named = {*partitions, *self.scope.homes(partitions)}
        return replace(
            self,
            runs={at: each for at, each in self.runs.items() if at in named},
            clocks={at: each for at, each in self.clocks.items() if at in named},
        )


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """`plan` names the plan of the batch, whose number nobody knows who plans it, and `source_id`
    the source whose records they are. Of `partitions` those that the task reads are named.
    `state`: of a job that keeps state for keys. `newer`: of a job whose table follows its schemas,
    those of the batch where they are newer than the job's (`keyrange.jobs.newer_columns`)."""

    plan: str
    source_id: str
    settings: WorkSettings
    partitions: Mapping[TopicPartition, TaskPartition]
    state: StateOrder | None = None
    newer: Mapping[str, Any] | None = None


def write_work_order(order: WorkOrder) -> dict[str, Any]:
    document: dict[str, Any] = {
        "plan": order.plan,
        "sourceId": order.source_id,
        "settings": astuple(order.settings),
        "partitions": [
            [
                *partition,
                [cell.from_hash for cell in work.cells],
                work.cells[-1].until_hash,
                sorted(work.held),
                sorted(work.deliveries.items()),
                sorted(work.again.items()),
                sorted(work.late),
                work.begins,
            ]
            for partition, work in sorted(order.partitions.items())
        ],
    }
    if order.newer is not None:
        document["newer"] = order.newer
    if order.state is not None:
        runs = order.state.runs
        document["state"] = {
            "seq": order.state.seq,
            "timeMs": order.state.time_ms,
            "runs": [[*at, [run.flat() for run in each]] for at, each in sorted(runs.items())],
            "timersMax": order.state.timers_max,
            "clocks": [[*at, *_flat(each)] for at, each in sorted(order.state.clocks.items())],
            "topic": order.state.scope.topic,
            "topicId": order.state.topic_id,
            "retries": astuple(order.state.retries),
        }
    return document


def _flat(clock: PartitionClock) -> tuple[Any, ...]:
    behind = [(span.from_hash, span.until_hash, at_us) for span, at_us in clock.behind]
    return (clock.at_us, behind)


def _clock(at_us: int, behind: Sequence[Sequence[int]]) -> PartitionClock:
    """What `_flat` has made."""
    found = ((KeyRange(*bounds), own_us) for *bounds, own_us in behind)
    return PartitionClock(at_us, tuple(found))


def read_work_order(document: Mapping[str, Any]) -> WorkOrder:
    """What `write_work_order` has written."""
    partitions = {}
    for topic, number, begins, end, held, *told in document["partitions"]:
        bounds = [*begins, end]
        cells = tuple(map(KeyRange, bounds[:-1], bounds[1:]))
        deliveries, again, late, begun = told
        partitions[TopicPartition(topic, number)] = TaskPartition(
            *(cells, frozenset(held), dict(deliveries), dict(again)),
            *(frozenset(late), tuple(begun)),
        )
    settings, state = WorkSettings(*document["settings"]), None
    if "state" in document:
        told = document["state"]
        runs = {
            TopicPartition(topic, number): tuple(map(StateRun.of_flat, each))
            for topic, number, each in told["runs"]
        }
        clocks = {
            TopicPartition(topic, number): _clock(*each) for topic, number, *each in told["clocks"]
        }
        state = StateOrder(
            *(told["seq"], told["timeMs"], runs, clocks, told["timersMax"]),
            *(StateScope(told["topic"]), told["topicId"], Retries(*told["retries"])),
        )
    names = document["plan"], document["sourceId"]
    return WorkOrder(*names, settings, partitions, state, document.get("newer"))
