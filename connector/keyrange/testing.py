"""For tests of functions that keep state: no Spark, no broker, and a clock in the hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.blocks import Keys, LoadedBlocks, look_up, newest_of, sorted_by_hash
from keyrange.keyed_state.handles import ABSENT, Entries
from keyrange.keyed_state.store import alive
from keyrange.keyed_state.variables import KEY, State, StateForm, row_type, variables_of
from keyrange.ranges.model.key_hash import hash_of
from keyrange.ranges.model.key_ranges import SPACE
from keyrange.source.model.ddl import parse_ddl
from keyrange.work.keyed import KEYED_WORKERS
from keyrange.work.model.outcome import Cause
from keyrange.work.model.task_results import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.record_timer import RecordTimer
from keyrange.work.run import run_task
from keyrange.work.task import Job, Task

_TOPIC: Final = "topic"
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_RECORDS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", _HEADERS),
        ("keyHash", pa.int64()),
    ]
)


class RecordsFailed(Exception):
    """Records for which the function raised. `errors`: (offset, text) of each."""

    def __init__(self, errors: list[tuple[int, str]]) -> None:
        super().__init__("; ".join(f"offset {offset}: {text}" for offset, text in errors))
        self.errors = errors


class StateHarness:
    """Runs a function with state as `keyrange.job(..., state=...)` does, in this process.

    `time_ms`: the time of the batch, in ms since 1970, by which times to live are counted; set it
    to let time pass.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: str,
        state: Mapping[str, State],
        mode: str = "record",
        time_ms: int = 0,
    ) -> None:
        """As of `keyrange.job`. Raises INVALID_OPTIONS."""
        try:
            self._form = StateForm(variables_of(state))
            output = row_type(parse_ddl(schema))
        except ValueError as failure:
            raise invalid_options([str(failure)]) from None
        self._function = function
        self._schema = pa.schema(list(output))
        self._mode = mode
        self.time_ms = time_ms
        self._states: dict[TopicPartition, pa.RecordBatch] = {}
        self._offset = 0

    def process(
        self, records: Iterable[tuple[bytes | None, bytes | None]], partition: int = 0
    ) -> list[dict[str, Any]]:
        """The rows that the function answers with, for records as (key, value), in one batch.

        Raises RecordsFailed where it raised for some. What it did for the others stays.
        """
        at = TopicPartition(_TOPIC, partition)
        given = self._batch([(*each, partition) for each in records])
        works = {at: TaskPartition((SPACE,))}
        rows: list[dict[str, Any]] = []
        failed: list[tuple[int, str]] = []
        with RecordTimer(False) as timer:
            job = Job(works, WorkSettings(), self._mode, self._schema, self._function)
            task = Task(job, timer)
            worker = KEYED_WORKERS[self._mode](task, self)
            for batch in run_task(task, [given], worker):
                hidden = batch.column(HIDDEN)
                if hidden.null_count:
                    rows += batch.select(self._schema.names).to_pylist()
                for each in hidden.to_pylist():
                    told = each and each["outcome"]
                    if told:
                        text = told["error"] or Cause(told["cause"]).name
                        failed.append((told["offset"], text))
            worker.finish()
        if failed:
            raise RecordsFailed(failed)
        return rows

    def state(self, key: bytes, partition: int = 0) -> dict[str, Any]:
        """The state of a key: the value of each variable that it has."""
        wanted = Keys(np.array([hash_of(key)]), pa.array([key], pa.binary()))
        [entry] = Entries(self._form).read(self.look_up(TopicPartition(_TOPIC, partition), wanted))
        named = zip(self._form.names, entry, strict=False)
        return {name: value for name, value in named if value is not ABSENT}

    def keys(self, partition: int = 0) -> list[bytes]:
        """The keys that have any state."""
        found = self._states.get(TopicPartition(_TOPIC, partition))
        if found is None:
            return []
        return sorted(key for key in found.column(KEY).to_pylist() if self.state(key, partition))

    @property
    def form(self) -> StateForm:
        return self._form

    def look_up(self, partition: TopicPartition, wanted: Keys) -> pa.RecordBatch:
        """For the function's calls: the state of keys that are sorted by hash."""
        known = self._states.get(partition)
        runs = [] if known is None else [LoadedBlocks([known])]
        return alive(look_up(runs, wanted, self._form), self._form, self.time_ms)

    def change(self, partition: TopicPartition, rows: pa.RecordBatch) -> None:
        """For the function's calls: take in the new state of keys."""
        known = self._states.get(partition)
        rows = sorted_by_hash(rows)
        self._states[partition] = rows if known is None else newest_of([rows, known])

    def _batch(self, records: list[tuple[bytes | None, bytes | None, int]]) -> pa.RecordBatch:
        now = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        rows = [
            {
                "key": key,
                "value": value,
                "topic": _TOPIC,
                "partition": partition,
                "offset": self._offset + at,
                "timestamp": now,
                "keyHash": hash_of(key or b""),
            }
            for at, (key, value, partition) in enumerate(records)
        ]
        self._offset += len(rows)
        return pa.RecordBatch.from_pylist(rows, _RECORDS)
