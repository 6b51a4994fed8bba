"""The description of a task that reads: plain numbers and names, no secret and no code.

It says who leads each partition, so that a task needs no metadata of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from keyrange.model.offset_splits import Split, read_split, write_split
from keyrange.work.model.work_order import WorkOrder, read_work_order, write_work_order

if TYPE_CHECKING:
    from keyrange.members.model.task_greeting import Greeting


@dataclass(eq=False, repr=False)
class ReadTask(InputPartition):
    """One task: its splits, and what the driver knew of the cluster when it planned them.

    `brokers`: (node id, host, port). `leaders`: (topic, partition, node id). `topic_ids` are those
    that the offsets belong to. `work`: what is to be done with the records in the task itself.
    """

    splits: Sequence[Split]
    brokers: Sequence[tuple[int, str, int]]
    leaders: Sequence[tuple[str, int, int]]
    topic_ids: Mapping[str, str]
    greeting: Greeting | None = None
    work: WorkOrder | None = None

    def __repr__(self) -> str:
        return f"ReadTask({', '.join(map(str, self.splits))})"


@dataclass(eq=False, repr=False)
class BoundTask(InputPartition):
    """One task of a plan whose tasks ask what they read: task `number` of plan `plan`, planned with
    assignment `epoch`."""

    greeting: Greeting
    plan: str
    number: int
    epoch: int

    def __repr__(self) -> str:
        return f"BoundTask({self.number} of {self.plan})"


def write_bound_task(task: ReadTask) -> dict[str, Any]:
    """What a bound task is told to read."""
    document = {
        "splits": [write_split(split) for split in task.splits],
        "brokers": task.brokers,
        "leaders": task.leaders,
        "topicIds": task.topic_ids,
    }
    if task.work is not None:
        document["work"] = write_work_order(task.work)
    return document


def read_bound_task(document: Mapping[str, Any]) -> ReadTask:
    """What `write_bound_task` has written."""
    return ReadTask(
        [read_split(each) for each in document["splits"]],
        [tuple(each) for each in document["brokers"]],
        [tuple(each) for each in document["leaders"]],
        document["topicIds"],
        work=read_work_order(document["work"]) if "work" in document else None,
    )
