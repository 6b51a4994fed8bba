"""Records for a task without Spark, and alarm with a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keyrange.formats.schema_document import schema_of_ddl
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.record_alarm import RecordTimeout
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task

PLACE = TopicPartition("t", 0)
TIMED_RECORDS = schema_of_ddl(
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key string, value binary>>, keyHash long"
)
OUTPUT = pa.schema([pa.field("offset", pa.int64()), pa.field("text", pa.string())])


@dataclass(frozen=True)
class Sent:
    """A record of partition t-0. `place` stands for its key; `key` None for none."""

    offset: int
    key_hash: int
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    partition: int = 0


def batch_of(records: Sequence[Sent]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each.key for each in records], pa.binary()),
            pa.array([each.value for each in records], pa.binary()),
            pa.array(["t"] * len(records), pa.string()),
            pa.array([each.partition for each in records], pa.int32()),
            pa.array([each.offset for each in records], pa.int64()),
            pa.array([each.key_hash for each in records], pa.int64()),
        ],
        names=["key", "value", "topic", "partition", "offset", "keyHash"],
    )


def batches_of(records: Sequence[Sent], rows: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(records), rows):
        yield batch_of(records[at : at + rows])


class VirtualAlarm:
    """A clock that moves by what calls cost; a call that costs more than it may is interrupted."""

    def __init__(self, cost_ms: Callable[[Any], float] = lambda argument: 0) -> None:
        self._cost_ms = cost_ms
        self.at_ms = 1000.0

    def now_ms(self) -> float:
        return self.at_ms

    def call(self, function: Callable[[Any], Any], argument: Any, timeout_ms: float | None) -> Any:
        cost_ms = self._cost_ms(argument)
        if timeout_ms is not None and cost_ms > timeout_ms:
            self.at_ms += timeout_ms
            raise RecordTimeout
        self.at_ms += cost_ms
        return function(argument)


@dataclass
class Told:
    """What the rows of a verdict say of partition t-0."""

    rows: list[dict[str, Any]]
    causes: dict[int, Cause]
    errors: dict[int, str | None]
    handed_back: dict[KeyRange, int]
    done: int
    mentioned: int

    @property
    def output(self) -> list[int]:
        return [row["offset"] for row in self.rows]


def run(job: Job, batches: Iterable[pa.RecordBatch], alarm: Any = None) -> Told:
    """Work as one task would."""
    told = Told([], {}, {}, {}, 0, 0)
    for batch in run_task(Task(job, alarm or VirtualAlarm()), batches):
        for row in batch.to_pylist():
            said = {member: each for member, each in (row.pop(HIDDEN) or {}).items() if each}
            assert len(said) <= 1
            if not said or "location" in said:
                told.rows.append(row)
            if back := said.get("handed_back"):
                span = KeyRange(back["from_hash"], back["last_hash"] + 1)
                told.handed_back[span] = back["from_offset"]
            if done := said.get("done"):
                told.done += done["records"]
            if mentioned := said.get("mentioned"):
                told.mentioned += sum(byte.bit_count() for byte in mentioned["bits"])
            if outcome := said.get("outcome"):
                assert outcome["offset"] not in told.causes
                told.causes[outcome["offset"]] = Cause(outcome["cause"])
                told.errors[outcome["offset"]] = outcome["error"]
    return told
