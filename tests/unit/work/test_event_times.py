"""What is a record's event time, and what is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.model.watermarks import GREATEST_US, LEAST_US
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
        # Without a zone it is UTC.
        (b"2024-01-01T00:00:00.123456", 1_704_067_200_123_456),
        (b"2024-01-01 00:00:00", 1_704_067_200_000_000),
        (b"2024-01-01", 1_704_067_200_000_000),
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
    """Java's least long, which producers write for no time, has no absolute value. Microseconds
    where milliseconds should be are years that nobody can show."""
    least, most = LEAST_US // 1000, GREATEST_US // 1000
    values = pa.array([-(2**63), least - 1, least, 5, most, most + 1, 2**63 - 1, None])
    stretch: Any = SimpleNamespace(batch=pa.record_batch({"value": values}))
    times_us, has_time = event_times(stretch, JobTime(("value",)))
    assert has_time.tolist() == [False, False, True, True, True, False, False, False]
    assert times_us[has_time].tolist() == [LEAST_US, 5000, most * 1000]


def test_a_record_whose_producer_said_no_timestamp_has_no_time() -> None:
    harness = StateHarness(keyrange.windows.tumbling("1h").count(), time=keyrange.EventTime())
    told = [_BEGIN + timedelta(milliseconds=ms) for ms in (-2, -1, 0)]
    with pytest.raises(RecordsFailed) as caught:
        harness.process([(b"k", b"", each) for each in told])
    assert caught.value.errors == [(1, "it has no event time, or none in the years 1 to 9999")]
    rows = harness.advance(_BEGIN + timedelta(hours=1))
    assert [row["count"] for row in rows] == [1, 1]


TYPED = {"valueFormat": "json", "valueSchema": "at timestamp, order struct<at long>"}


@pytest.mark.parametrize(
    ("column", "key", "value"),
    [
        ("at", b"k", b'{"at": "1970-01-01T00:59:00Z"}'),
        ("order.at", b"k", b'{"order": {"at": 3540000}}'),
        ("key.at", b'{"at": 3540000}', b"{}"),
    ],
)
def test_a_field_may_say_the_time(column: str, key: bytes, value: bytes) -> None:
    options = TYPED | {"keyFormat": "json", "keySchema": "at long"} if column[0] == "k" else TYPED
    time = keyrange.EventTime(column, delay="1m")
    harness = StateHarness(keyrange.windows.tumbling("1h").count(), options=options, time=time)
    harness.process([(key, value)])
    assert harness.watermark() == _BEGIN + timedelta(minutes=58)
    assert [row["count"] for row in harness.advance(_BEGIN + timedelta(hours=1))] == [1]


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (keyrange.EventTime("att"), "no column value.att for event time"),
        (keyrange.EventTime("order.of.at"), "no column value.order.of for event time"),
        (keyrange.EventTime("key.at"), "no column key.at for event time"),
        (keyrange.EventTime("order"), "must be a timestamp or a long .* value.order is struct<"),
        (keyrange.EventTime(header="at"), "a header needs includeHeaders=true"),
    ],
)
def test_a_job_and_its_test_refuse_a_time_that_is_not_there(time: Any, said: str) -> None:
    hours = keyrange.windows.tumbling("1h").count()
    options = {"kafka.bootstrap.servers": "none:9092", "subscribe": "t", "splitBy": "keyRange"}
    options |= {"commitMode": "individual", "commitTable": "/lake/c", **TYPED}
    with pytest.raises(KeyrangeError, match=f"INVALID_OPTIONS.*{said}"):
        keyrange.job(options, hours, time=time)
    with pytest.raises(KeyrangeError, match=f"INVALID_OPTIONS.*{said}"):
        StateHarness(hours, options=TYPED, time=time)


def test_a_test_gives_records_headers() -> None:
    harness = StateHarness(
        keyrange.windows.tumbling("1h").count(),
        time=keyrange.EventTime(header="at"),
        options={"includeHeaders": "true"},
    )
    harness.process([(b"k", b"", _BEGIN + timedelta(days=1), [("at", b"5"), ("at", b"7")])])
    assert harness.watermark() == _BEGIN + timedelta(milliseconds=7)


def test_a_time_that_is_too_far_ahead_is_counted_and_moves_no_watermark() -> None:
    """Its record has its window all the same."""
    time = keyrange.EventTime(ahead="1h")
    made = keyrange.windows.tumbling("1m").count()
    harness = StateHarness(made, time=time, time_ms=60_000)
    ahead = _BEGIN + timedelta(minutes=61)
    harness.process([(b"k", b"", ahead), (b"k", b"", ahead + timedelta(microseconds=1))])
    assert harness.watermark() == ahead
    assert harness._states.figures.ahead == 1
    [row] = harness.advance(ahead + timedelta(minutes=1))
    assert row["count"] == 2


@pytest.mark.parametrize("late", ["drop", "deadLetter", "deliver"])
def test_what_becomes_of_a_late_record(late: Any) -> None:
    """One at the watermark itself is none."""

    def work(record: Any, state: Any) -> Any:
        return record.offset, record.late if late == "deliver" else None

    state = {"n": keyrange.ValueState("n long")}
    time = keyrange.EventTime(delay="1m", late=late)
    harness = StateHarness(work, "at long, late boolean", state, time=time)
    minutes = (1, 0, 2, 1)
    # Records of one batch do not make one another late.
    harness.process([(b"k", b"", _BEGIN + timedelta(minutes=each)) for each in minutes])
    given = [(b"k", b"", _BEGIN + timedelta(minutes=each)) for each in (1, 0.9, 3)]
    if late == "deadLetter":
        with pytest.raises(RecordsFailed) as caught:
            harness.process(given)
        assert caught.value.errors == [
            (5, "its event time is before the watermark of its partition")
        ]
        rows = caught.value.rows
    else:
        rows = harness.process(given)
    told = {row["at"]: row["late"] for row in rows}
    assert told == ({4: False, 5: True, 6: False} if late == "deliver" else {4: None, 6: None})
    assert harness._states.figures.late == 1
