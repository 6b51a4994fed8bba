"""Records for a task without Spark, and hands with a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange
from keyrange.work.outcome_rows import HIDDEN, Code
from keyrange.work.record_timer import RecordTimeout
from keyrange.work.run import run_task
from keyrange.work.task import Job

PLACE = TopicPartition("t", 0)
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


class VirtualHands:
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
    codes: dict[int, Code]
    errors: dict[int, str | None]
    handed_back: dict[KeyRange, int]
    done: int
    mentioned: int

    @property
    def output(self) -> list[int]:
        return [row["offset"] for row in self.rows]


def run(job: Job, batches: Iterable[pa.RecordBatch], hands: Any = None) -> Told:
    """Work as one task would."""
    told = Told([], {}, {}, {}, 0, 0)
    for batch in run_task(job, batches, hands or VirtualHands()):
        for row in batch.to_pylist():
            hidden = row.pop(HIDDEN)
            code = Code(hidden["code"]) if hidden is not None else Code.DONE
            if code is Code.DONE:
                told.rows.append(row)
            elif code is Code.HANDED_BACK:
                span = KeyRange(hidden["key_hash"], hidden["last_hash"] + 1)
                told.handed_back[span] = hidden["offset"]
            elif code is Code.TALLY:
                told.done += hidden["offset"]
            elif code is Code.MENTIONED:
                told.mentioned += sum(byte.bit_count() for byte in hidden["key"])
            else:
                assert hidden["offset"] not in told.codes
                told.codes[hidden["offset"]] = code
                told.errors[hidden["offset"]] = hidden["error"]
    return told
