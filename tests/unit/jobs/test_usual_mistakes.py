"""Usual mistakes with `keyrange.job`, and what is said of them before a query starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.jobs.topic import prepared_topic
from keyrange.options import parse_options
from keyrange.testing import RecordsFailed, StateHarness
from keyrange.work.model.output_table import OutputTable

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
TYPED = GIVEN | {"valueFormat": "json", "valueSchema": "id bigint, at timestamp"}
KEEPS = TYPED | {"commitMode": "individual", "commitTable": "/lake/c", "splitBy": "keyRange"}
SCHEMA = StructType().add("id", "long")
TOTAL = {"n": keyrange.ValueState("n long")}
HOURS = keyrange.windows.tumbling("1h")


def yields(_: Any) -> Iterator[tuple[int]]:
    yield (1,)


async def waits(_: Any) -> tuple[int]:
    await asyncio.sleep(0)
    return (1,)


def job(*given: Any, **named: Any) -> Callable[[], Any]:
    return lambda: keyrange.job(*given, **named)


anything: Any = None
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no options": (job(None), "options must be a dictionary of texts, and is of type NoneType"),
    "schema in the place of the function": (job(TYPED, "id long"), "function must be a function"),
    "a module": (job(KEEPS, keyrange.windows), "function must be a function, and is of type mod"),
    "no call": (job(KEEPS, keyrange.last), "function is keyrange's own last: call it, and give"),
    "windows uncalled": (job(KEEPS, keyrange.windows.session, SCHEMA), "keyrange's own session"),
    "yield": (job(TYPED, yields, SCHEMA), "function is a generator: return a list of rows"),
    "async": (job(TYPED, waits, SCHEMA), "function is async, and nobody awaits it"),
    "mode": (job(TYPED, print, SCHEMA, mode=None), "mode must be record or arrow, and is 'None'"),
    "a class as time": (
        job(KEEPS, HOURS.count(), time=keyrange.EventTime),
        r"time must be keyrange.EventTime\(...\) .* and is <class",
    ),
    "apply": (
        lambda: HOURS.apply(lambda rows: rows, "n long", "id"),
        r"the function of apply cannot be called with \(rows, groups, windows\)",
    ),
    "schema of apply": (
        job(KEEPS, HOURS.apply(lambda *_: None, "n lnog"), time=keyrange.EventTime()),
        "the schema of apply must be columns and their types.* not 'lnog'",
    ),
    "checkpoint": (job(TYPED | {"checkpointLocation": "/c"}), r"second argument of into\(\)"),
    "no into": (lambda: keyrange.job(TYPED).start(), r"started by job.into\(table, checkpoint\)"),
    "writeStream": (lambda: keyrange.job(TYPED).writeStream, "UNSUPPORTED_WRITER_CALL"),
    "generator in a harness": (
        lambda: StateHarness(lambda record: record, "id long", TOTAL),
        r"function cannot be called with \(record, state\)",
    ),
    "schema of a harness": (
        lambda: StateHarness(lambda record, state: None, anything or 5, TOTAL),
        "schema must be DDL or a StructType, and is 5",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_is_said_at_once(name: str) -> None:
    call, said = MISTAKES[name]
    with pytest.raises(KeyrangeError, match=said):
        call()


def test_what_is_no_call_of_a_job_is_no_attribute() -> None:
    assert not hasattr(keyrange.job(TYPED), "starts")


@pytest.mark.parametrize(
    ("given", "only"),
    [
        ({"valueFormat": "JSON"}, "valueFormat"),
        ({"valueSchema": "id bigit"}, "valueSchema"),
        ({"valueFormat": "avro", "valueSchema": "", "schemaRegistry.url": "r:1"}, "schemaReg"),
    ],
)
def test_what_follows_from_a_mistake_is_not_said_beside_it(
    given: dict[str, str], only: str
) -> None:
    options = {name: value for name, value in (TYPED | given).items() if value}
    with pytest.raises(KeyrangeError) as raised:
        keyrange.job(options)
    assert raised.value.message.count("option '") == 1
    assert f"option '{only}" in raised.value.message


FIRST = (b"k", b'{"id": 1}')
MISTAKES_OF_FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a field of the record": (
        lambda r, _: (r.id,),
        r"whose value has it \(record.value.id\), has no attribute 'id'",
    ),
    "another field": (lambda r, _: (r.value.idd,), "with id, at, has no attribute 'idd'"),
    "as a dictionary": (lambda r, _: (r.value.get("id"),), "with id, at, has no attribute 'get'"),
    "another variable": (lambda _, s: s.m.get(), "with n, has no attribute 'm'"),
    "timers without time": (
        lambda r, s: s.timers.set(r.timestamp),
        "a job without time .time=keyrange.E",
    ),
}


@pytest.mark.parametrize("name", MISTAKES_OF_FUNCTIONS)
def test_a_name_that_is_not_there_is_told_with_those_that_are(name: str) -> None:
    function, said = MISTAKES_OF_FUNCTIONS[name]
    own = {each: TYPED[each] for each in ("valueFormat", "valueSchema")}
    with pytest.raises(RecordsFailed, match=said):
        StateHarness(function, SCHEMA, TOTAL, options=own).process([FIRST])


def test_a_timer_that_nobody_is_called_for_is_not_set() -> None:
    def sets(record: Any, state: Any) -> None:
        state.timers.set(record.timestamp)

    def sets_in_batches(records: Any, _: Any, state: Any) -> Any:
        return None, state.set_column(1, "timers", [[record] for record in records["timestamp"]])

    time = keyrange.EventTime()
    with pytest.raises(RecordsFailed, match="the job has no on_timer"):
        StateHarness(sets, SCHEMA, TOTAL, time=time).process([FIRST])
    harness = StateHarness(sets_in_batches, SCHEMA, TOTAL, "arrow", time=time)
    with pytest.raises(KeyrangeError, match=r"WRONG_RESULT.*timers, and the job has no on_timer"):
        harness.process([FIRST])


def test_a_harness_says_which_timers_failed() -> None:
    def sets(record: Any, state: Any) -> None:
        state.timers.set(record.timestamp)

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("never")

    harness = StateHarness(sets, SCHEMA, TOTAL, time=keyrange.ProcessingTime(), on_timer=fails)
    harness.process([FIRST])
    with pytest.raises(RecordsFailed, match=r"timer of key b'k' due at 1970.*Error: never") as said:
        harness.process([])
    assert [offset for offset, _ in said.value.errors] == [None]


@pytest.mark.parametrize(
    ("operator", "keys", "said"),
    [
        (keyrange.windows.tumbling("1h", emit="update").count(), (), "['key', 'window_start']"),
        (keyrange.last(by_time=True), (), "['key']"),
        (keyrange.last(by_time=True), ("key",), ""),
        (HOURS.count(), (), ""),
    ],
)
def test_rows_that_stand_for_earlier_ones_want_a_table_with_keys(
    caplog: pytest.LogCaptureFixture, operator: Any, keys: tuple[str, ...], said: str
) -> None:
    made = keyrange.job(KEEPS, operator, time=keyrange.EventTime("at"))
    made._check_keys([OutputTable("/t", SCHEMA.json(), keys=keys)])
    assert len(caplog.messages) == bool(said)
    assert all(f"keys={said}" in each for each in caplog.messages)


def test_an_output_may_not_have_the_name_of_what_sends_dead_letters() -> None:
    """Its sender would take the mark of a batch's letters for that of its rows, and send none."""
    options = parse_options(KEEPS | {"deadLetterTopic": "dead"}, "stream")
    topic = keyrange.Topic("out")
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*'deadLetterTopic' has the name"):
        prepared_topic("deadLetterTopic", topic, StructType().add("value", "string"), options)
