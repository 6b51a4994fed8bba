"""The event time of records."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from keyrange.formats.schema_document import ddl_of_columns
from keyrange.model.watermarks import BEGIN, GREATEST_US, LEAST_US
from keyrange.work.job_time import TIMESTAMP, JobTime
from keyrange.work.record_stretches import Numbers, RecordStretch

# What a function of Arrow batches is told of the time of records.
EVENT_TIME: Final = "event_time"
WATERMARK: Final = "watermark"
MS_US: Final = 1000
# What Kafka has as the timestamp, in ms, of a record whose producer said none.
_NO_TIMESTAMP: Final = -1
# Digits of a second that a time in microseconds has no place for.
_FINER: Final = re.compile(r"(?<=\.\d{6})\d+")
MICROSECONDS: Final = pa.timestamp("us", "UTC")


def with_times(stretch: RecordStretch, times_us: pa.Array, clock_us: int) -> RecordStretch:
    """Records as a function of batches is given them: column `event_time` says the time of each,
    and `watermark` how far time had come before them, null where it had not begun."""
    count = len(times_us)
    if clock_us == BEGIN:
        watermark = pa.nulls(count, MICROSECONDS)
    else:
        watermark = pa.repeat(pa.scalar(clock_us, pa.int64()), count).view(MICROSECONDS)
    batch = stretch.batch.append_column(EVENT_TIME, times_us.view(MICROSECONDS))
    return replace(stretch, batch=batch.append_column(WATERMARK, watermark))


def event_times(stretch: RecordStretch, time: JobTime) -> tuple[Numbers, NDArray[np.bool_]]:
    """Of each record its event time in microseconds since 1970, and whether it has one."""
    if time.header is not None:
        found = _in_headers(stretch.raw.column("headers"), time.header)
    else:
        batch = stretch.raw if time.path == (TIMESTAMP,) else stretch.batch
        found = column_at(batch, time.path)
        if pa.types.is_integer(found.type):
            found = _of_ms(found)
        elif found.type != MICROSECONDS:
            found = _utc(found)
    has_time = np.array(found.is_valid().to_numpy(zero_copy_only=False), bool)
    times_us = pc.fill_null(found.cast(pa.int64()), 0).to_numpy()
    if time.path == (TIMESTAMP,):
        has_time &= times_us != _NO_TIMESTAMP * MS_US
    # Neither Python nor SQL has others.
    has_time &= (times_us >= LEAST_US) & (times_us <= GREATEST_US)
    return times_us, has_time


def no_time(time: JobTime, columns: pa.Schema, has_headers: bool) -> str | None:
    """Why the event time of records with these columns cannot be read; None where it can."""
    if time.header is not None:
        return None if has_headers else "a header needs includeHeaders=true"
    if not time.is_event_time:
        return None
    kind: pa.DataType = pa.struct(list(columns))
    for at, name in enumerate(time.path, 1):
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            path = ".".join(time.path[:at])
            return f"there is no column {path} for event time: see valueFormat and valueSchema"
        kind = kind.field(name).type
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return None
    path, found = ".".join(time.path), ddl_of_columns(pa.schema([("n", kind)])).partition(" ")[2]
    return f"event time must be a timestamp or a long with ms since 1970; {path} is {found}"


def column_at(records: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """A column, or a field in it."""
    name, *fields = path
    found = records.column(name)
    for field in fields:
        found = pc.struct_field(found, field)
    return found


def _utc(times: pa.Array) -> pa.Array:
    """Timestamps in microseconds; those without a zone count as UTC."""
    zoneless = times.cast(pa.timestamp("us", times.type.tz), safe=False)
    return zoneless.cast(pa.int64()).cast(MICROSECONDS)


def _of_ms(values: pa.Array) -> pa.Array:
    """Milliseconds since 1970 as times; a number that is none is null."""
    numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    most = np.iinfo(np.int64).max // MS_US
    # The least of all has no absolute value: for some producers it stands for no time.
    is_none = (numbers > most) | (numbers < -most)
    is_none |= values.is_null().to_numpy(zero_copy_only=False)
    micros = np.where(is_none, 0, numbers) * MS_US
    return pa.array(micros, mask=is_none).cast(MICROSECONDS)


def _in_headers(headers: pa.Array, name: str) -> pa.Array:
    """The time in the last header of a name, of each record."""
    return pa.array([_header_time(each, name) for each in headers.to_pylist()], MICROSECONDS)


def _header_time(headers: Any, name: str) -> int | None:
    values = [each["value"] for each in headers or () if each["key"] == name]
    if not values or values[-1] is None:
        return None
    text = values[-1].decode("ascii", "replace").strip()
    if text.removeprefix("-").isdigit():
        found = _of_ms(pa.array([int(text)])) if len(text) < 19 else pa.nulls(1, MICROSECONDS)
    else:
        found = _of_text(text)
    micros: int | None = found.cast(pa.int64())[0].as_py()
    return micros


def _of_text(text: str) -> pa.Array:
    """A time as ISO 8601 has it, null for what is none. Without a zone it counts as UTC, as in a
    field of the value."""
    written = pa.array([_FINER.sub("", text)])
    for kind in (MICROSECONDS, pa.timestamp("us")):
        with suppress(pa.ArrowInvalid):
            return written.cast(kind)
    return pa.nulls(1, MICROSECONDS)
