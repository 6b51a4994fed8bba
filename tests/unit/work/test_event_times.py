"""What is a record's event time, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import keyrange
from keyrange.testing import RecordsFailed, StateHarness
from keyrange.work.event_times import event_times
from keyrange.work.job_time import JobTime

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        (b"5", 5000),
        (b"-5", -5000),
        (b" 2024-01-01T00:00:00Z", 1_704_067_200_000_000),
        # Java's Instant says nanoseconds where its clock has them.
        (b"2024-01-01T00:00:00.000001999Z", 1_704_067_200_000_001),
        (b"2024-01-01T02:00:00.123456789+02:00", 1_704_067_200_123_456),
        *((each, None) for each in (b"--5", b"-", b"", b"5-", b"1e3", b"\xb2", b"9" * 30, None)),
    ],
)
def test_a_header_that_is_no_time_is_none(text: bytes | None, time_us: int | None) -> None:
    headers = pa.array([[{"key": "at", "value": text}]], _HEADERS)
    stretch: Any = SimpleNamespace(raw=pa.record_batch({"headers": headers}))
    [found], [has_time] = event_times(stretch, JobTime(("headers", "at")))
    assert (found if has_time else None) == time_us


def test_a_number_that_is_no_time_is_none() -> None:
    """Java's least long, which producers write for no time, has no absolute value."""
    most = (2**63 - 1) // 1000
    values = pa.array([-(2**63), -most - 1, -most, 5, most, most + 1, 2**63 - 1, None])
    stretch: Any = SimpleNamespace(batch=pa.record_batch({"value": values}))
    times_us, has_time = event_times(stretch, JobTime(("value",)))
    assert has_time.tolist() == [False, False, True, True, True, False, False, False]
    assert times_us[has_time].tolist() == [-most * 1000, 5000, most * 1000]


def test_a_record_whose_producer_said_no_timestamp_has_no_time() -> None:
    harness = StateHarness(keyrange.windows.tumbling("1h").count(), time=keyrange.EventTime())
    told = [_BEGIN + timedelta(milliseconds=ms) for ms in (-2, -1, 0)]
    with pytest.raises(RecordsFailed) as caught:
        harness.process([(b"k", b"", each) for each in told])
    assert caught.value.errors == [(1, "it has no event time")]
    rows = harness.advance(_BEGIN + timedelta(hours=1))
    assert [row["count"] for row in rows] == [1, 1]
