"""For tests of functions that keep state: no Spark, no broker, and a clock in the hand."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.formats.schema_document import ddl_of_columns, in_utc, schema_of_ddl, struct_type
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
from keyrange.model.subscription import Subscribe
from keyrange.model.watermarks import (
    BEGIN,
    PartitionClock,
    PartitionTime,
    Watermark,
    known_by,
    moved,
    shared_clock_us,
    shared_from,
)
from keyrange.options import parse_options
from keyrange.options.option import OptionValue
from keyrange.values.forms import value_forms
from keyrange.values.reading import reader_of, types_of
from keyrange.windowing.operators import Operator, parts_of
from keyrange.work.event_times import no_time
from keyrange.work.function_signature import call_mistake, timer_call_mistake
from keyrange.work.job_time import EventTime, JobTime, ProcessingTime, job_time
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.state_in_memory import FoldedState, told_in
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
    """Records for which the function raised, and timers. `errors`: (offset, text) of each record,
    and (None, text) of each timer, of which the message has the first ones. `rows`: what the
    function answered for the others."""

    def __init__(
        self, errors: list[tuple[int | None, str]], rows: list[dict[str, Any]] | None = None
    ) -> None:
        shown = [
            text if offset is None else f"offset {offset}: {text}"
            for offset, text in errors[:_ERRORS_SHOWN]
        ]
        if len(errors) > _ERRORS_SHOWN:
            shown.append(f"and {len(errors) - _ERRORS_SHOWN:,} more")
        super().__init__("; ".join(shown))
        self.errors, self.rows = errors, rows or []


class StateHarness:
    """Runs a function with state as `keyrange.job(..., state=...)` does, in this process.

    `time_ms`: the time of the batch, in ms since 1970, by which times to live are counted, and
    timers of a job with `keyrange.ProcessingTime`; set it to let time pass. Event time passes with
    the records, and by `advance`. Where `time_ms` is not said it is 0, and no event time is ahead
    of the clock. With the options `subscribe` and `state.topic` several topics share the state of
    keys.
    """

    def __init__(
        self,
        function: Callable[..., Any] | Operator,
        schema: Any = None,
        state: Mapping[str, State] | None = None,
        mode: str = "record",
        time_ms: int | None = None,
        options: Mapping[str, OptionValue] = MappingProxyType({}),
        time: EventTime | ProcessingTime | None = None,
        on_timer: Callable[..., Any] | None = None,
    ) -> None:
        """As of `keyrange.job`; `options` are those of the formats of keys and values, and of the
        topics. Raises INVALID_OPTIONS."""
        parsed = parse_options({**_NOWHERE, **options})
        if not isinstance(parsed.subscription, Subscribe):
            raise invalid_options("option subscribe names the topics of a harness")
        self._scope = parsed.commits.scope
        self._topics = parsed.subscription.topics
        forms = value_forms(parsed)
        self._values = reader_of(forms, parsed.registry)
        columns = pa.schema(list(types_of(forms, _SOURCE).items()))
        if isinstance(function, Operator):
            chosen = [name for name in columns.names if name not in ("headers", "keyHash")]
            given = {"schema": schema, "state": state, "on_timer": on_timer}
            made = parts_of(function, columns, chosen, time, **given)
            function, state, on_timer, mode = made.function, made.state, made.on_timer, "arrow"
            schema = ddl_of_columns(made.schema)
        elif (mistake := call_mistake(function, mode, keeps_state=True)) is not None:
            raise invalid_options(mistake)
        if on_timer is not None and (mistake := timer_call_mistake(on_timer, mode)) is not None:
            raise invalid_options(mistake)
        if schema is None or state is None:
            raise invalid_options("schema and state must be said of a function")
        try:
            self._time: JobTime | None = None if time is None else job_time(time)
            if self._time is not None and time_ms is None:
                self._time = replace(self._time, ahead_us=_UNBOUNDED_US)
            timers = () if time is None else timer_variables()
            form = StateForm((*variables_of(state), *timers))
            self._schema = _schema_of(schema)
        except ValueError as failure:
            raise invalid_options(str(failure)) from None
        if self._time is not None and (
            mistake := no_time(self._time, columns, parsed.include_headers)
        ):
            raise invalid_options(mistake)
        self._function = function
        self._mode = mode
        self._on_timer = on_timer
        self._states = FoldedState(form, time_ms=time_ms or 0, scope=self._scope)
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
            tuple[bytes | None, bytes | None]
            | tuple[bytes | None, bytes | None, datetime]
            | tuple[bytes | None, bytes | None, datetime, Iterable[tuple[str, bytes | None]]]
        ],
        partition: int = 0,
        topic: str | None = None,
    ) -> list[dict[str, Any]]:
        """The rows that the function answers with, for records as (key, value), (key, value,
        timestamp) or (key, value, timestamp, headers), in one batch; before them those of timers
        that are due. The timestamp is the time of the batch where none is said, and headers are
        (name, value). `topic`: that of the records, else the first one.

        Raises RecordsFailed where it raised for some records or timers. What it did for the others
        stays.
        """
        at = TopicPartition(topic or self._topics[0], partition)
        given = self._batch(at, list(records))
        clock = self._clock_us(partition, {at} if given.num_rows else ())
        told = PartitionClock(clock)
        self._states.clocks |= dict.fromkeys({at, self._scope.home(at)}, told)
        self._states.fires = [self._scope.home(at)] if self._time is not None else []
        rows, failed, seen_us = self._worked_on(at, given)
        if self._time is not None and self._time.is_event_time:
            delays_us = self._time.delay_us, self._time.idle_after_us
            for each in self._partitions(partition):
                own_us = seen_us if each == at else None
                known = self._watermarks.get(each)
                known = moved(known, clock, own_us, *delays_us, self.time_ms)
                if self._scope.is_shared:
                    known = shared_from(known, clock, self.time_ms)
                self._watermarks[each] = known
        if failed:
            raise RecordsFailed(failed, rows)
        return rows

    def advance(self, watermark: datetime, partition: int = 0) -> list[dict[str, Any]]:
        """Let event time come as far as `watermark`, and fire the timers that are due then: the
        rows that they answer with. Raises as `process`."""
        at_us = max(microseconds(watermark), self._clock_us(partition))
        for each in self._partitions(partition):
            known = self._watermarks.get(each)
            at_least = max(at_us, known.at_us) if known is not None else at_us
            self._watermarks[each] = Watermark(at_least, self.time_ms)
        return self.process([], partition)

    def watermark(self, partition: int = 0) -> datetime | None:
        """How far event time has come; None before the first record."""
        known = [self._watermarks.get(each) for each in self._partitions(partition)]
        at_us = min((each.at_us for each in known if each is not None), default=BEGIN)
        return None if at_us == BEGIN else instant(at_us)

    def _partitions(self, number: int) -> list[TopicPartition]:
        """The partitions of one number that are read."""
        return [TopicPartition(each, number) for each in self._topics]

    def _clock_us(self, partition: int, unread: Container[TopicPartition] = ()) -> int:
        if self._time is None or not self._time.is_event_time:
            return self.time_ms * 1000
        partitions = self._partitions(partition)
        times = {each: PartitionTime(self._watermarks.get(each)) for each in partitions}
        known = known_by(times, unread, self.time_ms)
        return shared_clock_us(known, self._time.idle_after_us, self.time_ms)

    def _worked_on(
        self, at: TopicPartition, given: pa.RecordBatch
    ) -> tuple[list[dict[str, Any]], list[tuple[int | None, str]], int | None]:
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
            scope=self._scope,
        )
        rows: list[dict[str, Any]] = []
        failed: list[tuple[int | None, str]] = []
        seen_us = None
        for batch in work_of(job, self._states)([given]):
            if batch.column(HIDDEN).null_count:
                rows += batch.select(self._schema.names).to_pylist()
            for told in told_in(batch, "outcome"):
                failed.append((told["offset"], told["error"] or Cause(told["cause"]).name))
            for told in told_in(batch, "failed_timer"):
                due = instant(told["at_us"]).isoformat()
                why = told["error"] or Cause(told["cause"]).name
                failed.append((None, f"timer of key {told['key']!r} due at {due}: {why}"))
            for told in told_in(batch, "event_time"):
                seen_us = told["latest_us"]
        return rows, failed, seen_us

    def state(self, key: bytes, partition: int = 0) -> dict[str, Any]:
        """The state of a key: the value of each variable that it has."""
        wanted = Keys(np.array([hash_of(key)]), pa.array([key], pa.binary()))
        found = self._states.look_up(TopicPartition(self._topics[0], partition), wanted)
        form = self._states.form
        [entry] = Entries(form).read(found)
        named = zip(form.names, entry, strict=False)
        return {name: value for name, value in named if value is not ABSENT}

    def keys(self, partition: int = 0) -> list[bytes]:
        """The keys that have any state."""
        blocks = self._states.rows(TopicPartition(self._topics[0], partition))
        return sorted(key for block in blocks for key in block.column(KEY).to_pylist())

    def _batch(self, at: TopicPartition, records: list[tuple[Any, ...]]) -> pa.RecordBatch:
        now = datetime.fromtimestamp(self.time_ms / 1000, UTC)
        rows = [
            {
                "key": key,
                "value": value,
                "topic": at.topic,
                "partition": at.partition,
                "offset": offset,
                "timestamp": told[0] if told else now,
                "headers": [{"key": n, "value": v} for n, v in told[1]] if told[1:] else None,
                "keyHash": hash_of_record(key, offset, nulls_first=False),
            }
            for offset, (key, value, *told) in enumerate(records, self._offset)
        ]
        self._offset += len(rows)
        return pa.RecordBatch.from_pylist(rows, _RECORDS)


def _schema_of(schema: Any) -> pa.Schema:
    """DDL, or Spark's own type for it. Raises ValueError."""
    if isinstance(schema, str):
        return schema_of_ddl(schema)
    if not hasattr(schema, "jsonValue"):
        raise ValueError(f"schema must be DDL or a StructType, and is {schema!r}"[:200])
    return pa.schema(list(struct_type(schema.jsonValue())))
