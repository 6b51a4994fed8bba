"""What `keyrange.job` is given, and whether it goes together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType, StructType

from keyrange.errors import invalid_options
from keyrange.keyed_state.variables import State, Variable, variables_of
from keyrange.model.columns import COLUMNS, OFFSET
from keyrange.model.subscription import Assign, Subscribe
from keyrange.options import SourceOptions
from keyrange.source.schema import source_schema, typed_schema
from keyrange.values.forms import value_forms
from keyrange.windowing.operators import JobParts, Operator, parts_of
from keyrange.work.event_times import no_time
from keyrange.work.function_signature import function_mistake, timer_call_mistake
from keyrange.work.job_time import EventTime, JobTime, ProcessingTime, job_time

_log = logging.getLogger(__name__)


def parts_of_job(
    options: SourceOptions, chosen: Sequence[str], operator: Operator, time: object, **given: object
) -> tuple[JobParts, StructType]:
    """What an operator makes a job of, and the columns of its table. `chosen`, `time` and `given`
    as of `keyrange.windowing.operators.parts_of`. Raises INVALID_OPTIONS."""
    read = typed_schema(source_schema(COLUMNS), value_forms(options))
    found = parts_of(operator, to_arrow_schema(read, timezone="UTC"), chosen, time, **given)
    schema = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
    is_of_value = OFFSET in schema.names and OFFSET not in chosen
    if is_of_value and options.commits.transactional and not found.only_timers:
        raise invalid_options(
            "commit.isolation=transactional needs the offset of each row's record, and column "
            "offset would be field offset of the value: leave it out of the value's schema, and "
            "let option columns name offset"
        )
    return found, schema.toNullable()


def check_job(options: SourceOptions, function: object, schema: object, mode: str) -> None:
    """Raises INVALID_OPTIONS."""
    if function is not None and (mistake := function_mistake("function", function)) is not None:
        raise invalid_options(mistake)
    wrong = []
    if mode not in ("record", "arrow"):
        wrong.append(f"mode must be record or arrow, and is {str(mode)[:40]!r}")
    if (function is None) != (schema is None):
        wrong.append("function and schema go together: the schema is that of what it answers with")
    if options.map_in_arrow is not None:
        wrong.append("option 'mapInArrow' is not for keyrange.job, which takes a function itself")
    if wrong:
        raise invalid_options(wrong)


def state_variables(state: Mapping[str, State] | None) -> tuple[Variable, ...]:
    """What a job keeps for keys. Raises INVALID_OPTIONS."""
    try:
        return () if state is None else variables_of(state)
    except ValueError as failure:
        raise invalid_options(str(failure)) from None


def check_state(options: SourceOptions, function: object, keeps_state: bool) -> None:
    """Of a job that keeps state, or not. Raises INVALID_OPTIONS."""
    wrong = []
    if not keeps_state:
        if options.commits.state_topic:
            raise invalid_options("state.topic is for jobs with state")
        return
    if function is None:
        wrong.append("state is for jobs with a function")
    if not options.commits.individual:
        wrong.append("state needs commitMode=individual")
    if options.key_ranges.split_by != "keyRange":
        wrong.append("state needs splitBy=keyRange")
    if not options.commits.keeps_order:
        wrong.append("state needs keyOrder=keep: it is made of a key's records in their order")
    if options.commits.state_topic:
        wrong += _not_shared(options)
    if wrong:
        raise invalid_options(wrong)
    topics = options.subscription.topics if isinstance(options.subscription, Subscribe) else ()
    if len(topics) > 1 and not options.commits.state_topic:
        _log.warning(
            "topics %s: each has a state of its own for a key; state.topic lets them share it",
            ", ".join(topics),
        )


def _not_shared(options: SourceOptions) -> Iterator[str]:
    """Why partitions of several topics cannot share the state of keys."""
    topic, read = options.commits.state_topic, options.subscription
    if options.key_ranges.ranges:
        yield "state.topic and keyRanges exclude each other: all topics are cut alike"
    if isinstance(read, Assign):
        yield "state.topic needs subscribe or subscribePattern: keyrange compares whole topics"
    elif isinstance(read, Subscribe) and topic not in read.topics:
        yield f"state.topic={topic} is none of the topics that option subscribe names"


def time_of(
    options: SourceOptions,
    time: EventTime | ProcessingTime | None,
    on_timer: object,
    mode: str,
    state: tuple[Variable, ...],
) -> JobTime | None:
    """What timers and late records go by. Raises INVALID_OPTIONS."""
    wrong = []
    if time is None:
        if on_timer is not None:
            wrong.append("on_timer needs time: keyrange.EventTime() or keyrange.ProcessingTime()")
    elif not state:
        wrong.append("time is for jobs with state")
    if on_timer is not None and (mistake := timer_call_mistake(on_timer, mode)) is not None:
        wrong.append(mistake)
    if wrong:
        raise invalid_options(wrong)
    if time is None:
        return None
    try:
        found = job_time(time)
    except ValueError as failure:
        raise invalid_options(str(failure)) from None
    if (mistake := _no_time(options, found)) is not None:
        raise invalid_options(mistake)
    if options.commits.transactional and options.commits.state_topic:
        text = "time, state.topic and commit.isolation=transactional exclude each other"
        raise invalid_options(f"{text}: a key's timers would have to wait in several topics")
    return found


def _no_time(options: SourceOptions, time: JobTime) -> str | None:
    """Why event time cannot be read of the records of a source."""
    columns = typed_schema(source_schema(COLUMNS), options.forms)
    return no_time(time, to_arrow_schema(columns, timezone="UTC"), options.include_headers)


def check_held(options: SourceOptions, schemas: Mapping[str, StructType]) -> None:
    """Of rows that wait for those before them it has to be known which record each is of, where
    they are made of many at once. Raises INVALID_OPTIONS."""
    if not options.commits.transactional:
        return
    unplaced = [
        name or "the output"
        for name, schema in schemas.items()
        if OFFSET not in schema.names or schema[OFFSET].dataType != LongType()
    ]
    if unplaced:
        raise invalid_options(
            "commit.isolation=transactional needs mode='record', windows with emit='final', or "
            "rows that have a column offset, a long: that of the record that each is of. Not so "
            f"{', '.join(unplaced)}"
        )


def check_types(checkpoint: object, size: object, every: object) -> None:
    """Of the arguments of `into` that are compared or opened before Spark sees them."""
    kinds: list[tuple[str, object, Any, str]] = [
        ("checkpoint", checkpoint, (str, PathLike), "a path or a URI"),
        ("target_bytes", size, int, "a whole number"),
        ("optimize_every", every, int, "a whole number"),
    ]
    wrong = [
        f"{name} must be {what}, and is {value!r}"[:200]
        for name, value, kind, what in kinds
        if not isinstance(value, kind)
    ]
    if wrong:
        raise invalid_options(wrong)
