"""For tests of functions that keep state: no Spark, no broker, and a clock in the hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import schema_of_ddl
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.state_entries import ABSENT, Entries
from keyrange.keyed_state.variables import KEY, State, StateForm, variables_of
from keyrange.model.key_ranges import SPACE, hash_of, hash_of_record
from keyrange.model.offsets import TopicPartition
from keyrange.options import parse_options
from keyrange.options.option import OptionValue
from keyrange.values.forms import value_forms
from keyrange.values.reading import reader_of
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.state_in_memory import FoldedState, outcomes_in
from keyrange.work.task_context import Job
from keyrange.work.task_run import work_of

_TOPIC: Final = "topic"
_NOWHERE: Final = {"kafka.bootstrap.servers": "none:9092", "subscribe": _TOPIC}
_RECORDS: Final = schema_of_ddl(
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key string, value binary>>, keyHash long"
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
        options: Mapping[str, OptionValue] = MappingProxyType({}),
    ) -> None:
        """As of `keyrange.job`; `options` are those of the formats of keys and values. Raises
        INVALID_OPTIONS."""
        parsed = parse_options({**_NOWHERE, **options})
        self._values = reader_of(value_forms(parsed), parsed.registry)
        try:
            form = StateForm(variables_of(state))
            self._schema = schema_of_ddl(schema)
        except ValueError as failure:
            raise invalid_options([str(failure)]) from None
        self._function = function
        self._mode = mode
        self._states = FoldedState(form, time_ms=time_ms)
        self._offset = 0

    @property
    def time_ms(self) -> int:
        return self._states.time_ms

    @time_ms.setter
    def time_ms(self, time_ms: int) -> None:
        self._states.time_ms = time_ms

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
        job = Job(
            works, WorkSettings(), self._mode, self._schema, self._function, values=self._values
        )
        for batch in work_of(job, self._states)([given]):
            if batch.column(HIDDEN).null_count:
                rows += batch.select(self._schema.names).to_pylist()
            for told in outcomes_in(batch):
                failed.append((told["offset"], told["error"] or Cause(told["cause"]).name))
        if failed:
            raise RecordsFailed(failed)
        return rows

    def state(self, key: bytes, partition: int = 0) -> dict[str, Any]:
        """The state of a key: the value of each variable that it has."""
        wanted = Keys(np.array([hash_of(key)]), pa.array([key], pa.binary()))
        found = self._states.look_up(TopicPartition(_TOPIC, partition), wanted)
        form = self._states.form
        [entry] = Entries(form).read(found)
        named = zip(form.names, entry, strict=False)
        return {name: value for name, value in named if value is not ABSENT}

    def keys(self, partition: int = 0) -> list[bytes]:
        """The keys that have any state."""
        blocks = self._states.rows(TopicPartition(_TOPIC, partition))
        return sorted(key for block in blocks for key in block.column(KEY).to_pylist())

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
                "keyHash": hash_of_record(key, self._offset + at, nulls_first=False),
            }
            for at, (key, value, partition) in enumerate(records)
        ]
        self._offset += len(rows)
        return pa.RecordBatch.from_pylist(rows, _RECORDS)
