"""For tests of functions that keep state: no Spark, no broker, and a clock in the hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import ddl_of_columns, in_utc, schema_of_ddl
from keyrange.keyed_state.sorted_blocks import Keys
from keyrange.keyed_state.state_entries import ABSENT, Entries
from keyrange.keyed_state.state_handles import instant, microseconds
from keyrange.keyed_state.variables import (
    KEY,
    State,
    StateForm,
    timer_variables,
    variables_of,
)
from keyrange.model.key_ranges import SPACE, hash_of, hash_of_record
from keyrange.model.offsets import TopicPartition
from keyrange.model.watermarks import PartitionClock, Watermark, clock_us, moved
from keyrange.options import parse_options
from keyrange.options.option import OptionValue
from keyrange.values.forms import value_forms
from keyrange.values.reading import reader_of, types_of
from keyrange.windowing.operators import Operator, parts_of
from keyrange.work.job_time import EventTime, JobTime, ProcessingTime, job_time
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.state_in_memory import FoldedState, outcomes_in, told_in
from keyrange.work.task_context import Job
from keyrange.work.task_run import work_of

_TOPIC: Final = "topic"
_NOWHERE: Final = {"kafka.bootstrap.servers": "none:9092", "subscribe": _TOPIC}
_RECORDS: Final = schema_of_ddl(
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
    "headers array<struct<key string, value binary>>, keyHash long"
)


_UNBOUNDED_US: Final = 1 << 62
_SOURCE: Final = {field.name: in_utc(field.type) for field in _RECORDS}


# How many of them an exception shows.
_ERRORS_SHOWN: Final = 10


class RecordsFailed(Exception):
    """Records for which the function raised. `errors`: (offset, text) of each, of which the message
    has the first ones."""

    def __init__(self, errors: list[tuple[int, str]]) -> None:
        shown = [f"offset {offset}: {text}" for offset, text in errors[:_ERRORS_SHOWN]]
        if len(errors) > _ERRORS_SHOWN:
            shown.append(f"and {len(errors) - _ERRORS_SHOWN:,} more")
        super().__init__("; ".join(shown))
        self.errors = errors


class StateHarness:
    """Runs a function with state as `keyrange.job(..., state=...)` does, in this process.

    `time_ms`: the time of the batch, in ms since 1970, by which times to live are counted, and
    timers of a job with `keyrange.ProcessingTime`; set it to let time pass. Event time passes with
    the records, and by `advance`. Where `time_ms` is not said it is 0, and no event time is ahead
    of the clock.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Operator,
        schema: str | None = None,
        state: Mapping[str, State] | None = None,
        mode: str = "record",
        time_ms: int | None = None,
        options: Mapping[str, OptionValue] = MappingProxyType({}),
        time: EventTime | ProcessingTime | None = None,
        on_timer: Callable[..., Any] | None = None,
    ) -> None:
        """As of `keyrange.job`; `options` are those of the formats of keys and values. Raises
        INVALID_OPTIONS."""
        parsed = parse_options({**_NOWHERE, **options})
        forms = value_forms(parsed)
        self._values = reader_of(forms, parsed.registry)
        if isinstance(function, Operator):
            columns = pa.schema(list(types_of(forms, _SOURCE).items()))
            chosen = [name for name in columns.names if name not in ("headers", "keyHash")]
            given = {"schema": schema, "state": state, "on_timer": on_timer}
            made = parts_of(function, columns, chosen, time, **given)
            function, state, on_timer, mode = made.function, made.state, made.on_timer, "arrow"
            schema = ddl_of_columns(made.schema)
        if schema is None or state is None:
            raise invalid_options(["schema and state must be said of a function"])
        try:
            self._time: JobTime | None = None if time is None else job_time(time)
            if self._time is not None and time_ms is None:
                self._time = replace(self._time, ahead_us=_UNBOUNDED_US)
            timers = () if time is None else timer_variables()
            form = StateForm((*variables_of(state), *timers))
            self._schema = schema_of_ddl(schema)
        except ValueError as failure:
            raise invalid_options([str(failure)]) from None
        self._function = function
        self._mode = mode
        self._on_timer = on_timer
        self._states = FoldedState(form, time_ms=time_ms or 0)
        self._watermarks: dict[TopicPartition, Watermark | None] = {}
        self._offset = 0

    @property
    def time_ms(self) -> int:
        return self._states.time_ms

    @time_ms.setter
    def time_ms(self, time_ms: int) -> None:
        self._states.time_ms = time_ms

    def process(
        self,
        records: Iterable[
            tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, datetime]
        ],
        partition: int = 0,
    ) -> list[dict[str, Any]]:
        """The rows that the function answers with, for records as (key, value) or (key, value,
        timestamp), in one batch; before them those of timers that are due. The timestamp is the
        time of the batch where none is said.

        Raises RecordsFailed where it raised for some. What it did for the others stays.
        """
        at = TopicPartition(_TOPIC, partition)
        clock = self._clock_us(at)
        self._states.clocks[at] = PartitionClock(clock)
        self._states.fires = [at] if self._time is not None else []
        given = self._batch(partition, list(records))
        rows, failed, seen_us = self._worked_on(at, given)
        if self._time is not None and self._time.is_event_time:
            before, delay_us = self._watermarks.get(at), self._time.delay_us
            self._watermarks[at] = moved(before, clock, seen_us, delay_us, self.time_ms)
        if failed:
            raise RecordsFailed(failed)
        return rows

    def advance(self, watermark: datetime, partition: int = 0) -> list[dict[str, Any]]:
        """Let event time come as far as `watermark`, and fire the timers that are due then: the
        rows that they answer with. Raises as `process`."""
        at = TopicPartition(_TOPIC, partition)
        at_us = max(microseconds(watermark), self._clock_us(at))
        self._watermarks[at] = Watermark(at_us, self.time_ms)
        return self.process([], partition)

    def watermark(self, partition: int = 0) -> datetime | None:
        """How far event time has come; None before the first record."""
        known = self._watermarks.get(TopicPartition(_TOPIC, partition))
        return None if known is None else instant(known.at_us)

    def _clock_us(self, at: TopicPartition) -> int:
        if self._time is None or not self._time.is_event_time:
            return self.time_ms * 1000
        return clock_us(self._watermarks.get(at), self._time.idle_after_us, self.time_ms)

    def _worked_on(
        self, at: TopicPartition, given: pa.RecordBatch
    ) -> tuple[list[dict[str, Any]], list[tuple[int, str]], int | None]:
        """The rows of one batch, what failed, and the greatest event time."""
        job = Job(
            {at: TaskPartition((SPACE,))},
            WorkSettings(),
            self._mode,
            self._schema,
            self._function,
            values=self._values,
            on_timer=self._on_timer,
            time=self._time,
        )
        rows: list[dict[str, Any]] = []
        failed: list[tuple[int, str]] = []
        seen_us = None
        for batch in work_of(job, self._states)([given]):
            if batch.column(HIDDEN).null_count:
                rows += batch.select(self._schema.names).to_pylist()
            for told in outcomes_in(batch):
                failed.append((told["offset"], told["error"] or Cause(told["cause"]).name))
            for told in told_in(batch, "event_time"):
                seen_us = told["latest_us"]
        return rows, failed, seen_us

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

    def _batch(self, partition: int, records: list[tuple[Any, ...]]) -> pa.RecordBatch:
        now = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        rows = [
            {
                "key": key,
                "value": value,
                "topic": _TOPIC,
                "partition": partition,
                "offset": self._offset + at,
                "timestamp": told[0] if told else now,
                "keyHash": hash_of_record(key, self._offset + at, nulls_first=False),
            }
            for at, (key, value, *told) in enumerate(records)
        ]
        self._offset += len(rows)
        return pa.RecordBatch.from_pylist(rows, _RECORDS)
