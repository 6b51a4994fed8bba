"""Windows over the state of earlier ones: the same ones go on, and others are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.jobs.state_check import check_variables
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import (
    KEY,
    StateForm,
    Variable,
    timer_variables,
    variables_of,
)
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import CommitOptions
from keyrange.storage.directory import Directory
from keyrange.work.job_time import job_time

w = keyrange.windows
_COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def variables(operator: Any) -> tuple[Variable, ...]:
    made = operator.parts(_COLUMNS, ["key", "value"])
    return (*variables_of(made.state), *timer_variables())


def check(was: Any, now: Any) -> None:
    StateForm(variables(now)).check(StateForm(variables(was)).schema, "file")


def mended(rows: Any, groups: Any, windows: Any) -> Any: ...


SAME = {
    "the same size in other words": (w.tumbling("60m").count(), w.tumbling("1h").count()),
    "a step of the size": (w.hopping("1h", "1h").count(), w.tumbling("1h").count()),
    "another order": (w.tumbling("1h").sum("a").count(), w.tumbling("1h").count().sum("a")),
    "another time to write": (w.tumbling("1h", emit="update").count(), w.tumbling("1h").count()),
    "a mended function": (
        w.tumbling("1h").apply(mended, "n long", "a"),
        w.tumbling("1h").apply(lambda *_: None, "n long", "a"),
    ),
    "another time between ids": (
        keyrange.deduplicate(by="a", within="1d"),
        keyrange.deduplicate(by="a", within="2d"),
    ),
}
OTHERS = {
    "size": (w.tumbling("1h").count(), w.tumbling("2h").count(), "3600 s.*7200 s"),
    "step": (w.hopping("1h", "5m").count(), w.hopping("1h", "10m").count(), "each 300 s.*600 s"),
    "kind": (w.tumbling("30m").count(), w.session("30m").count(), "windows of.*sessions with"),
    "gap": (w.session("30m").count(), w.session("20m").count(), "gap of 1800 s.*gap of 1200 s"),
    "aggregate": (w.tumbling("1h").min(x="a"), w.tumbling("1h").max(x="a"), "min.*max"),
    "column": (w.tumbling("1h").sum(x="a"), w.tumbling("1h").sum(x="b"), r"sum\(a\).*sum\(b\)"),
    "one more": (w.tumbling("1h").count(), w.tumbling("1h").count().sum("a"), "sum_a = sum"),
    "one less": (w.tumbling("1h").count().sum("a"), w.tumbling("1h").count(), "sum_a = sum"),
    "id": (
        keyrange.deduplicate(by="a", within="1d"),
        keyrange.deduplicate(by="b", within="1d"),
        "by a.*by b",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_means_the_same_goes_on(name: str) -> None:
    was, now = SAME[name]
    check(was, now)
    check(now, was)


@pytest.mark.parametrize("name", OTHERS)
def test_other_windows_are_refused(name: str) -> None:
    was, now, text = OTHERS[name]
    with pytest.raises(KeyrangeError, match=rf"STATE_SCHEMA_CHANGED.*{text}"):
        check(was, now)


TIMES = {
    "event time": keyrange.EventTime(),
    "processing time": keyrange.ProcessingTime(),
    "field": keyrange.EventTime("at"),
    "key": keyrange.EventTime("key.at"),
    "header": keyrange.EventTime(header="at"),
}


def kept_by(time: Any) -> StateForm:
    return StateForm(timer_variables(job_time(time).words))


@pytest.mark.parametrize("was", TIMES)
@pytest.mark.parametrize("now", TIMES)
def test_another_time_is_refused(was: str, now: str) -> None:
    forms = [kept_by(TIMES[each]) for each in (was, now)]
    if was == now:
        forms[1].check(forms[0].schema, "file")
        return
    with pytest.raises(KeyrangeError, match=r"'timers' was made by \w+Time\(.*has \w+Time\("):
        forms[1].check(forms[0].schema, "file")


def test_the_same_time_with_another_delay_goes_on() -> None:
    was = keyrange.EventTime("at", delay="1h")
    others = {"delay": "0s", "late": "deliver", "idle_after": "1m", "ahead": "1d"}
    for now in (*(replace(was, **{name: told}) for name, told in others.items()), was):
        kept_by(now).check(kept_by(was).schema, "file")
    kept_by(replace(was, column="value.at")).check(kept_by(was).schema, "file")
    # Of rows that somebody imported nobody knows.
    kept_by(was).check(StateForm(timer_variables()).schema, "file")


def test_a_job_is_refused_by_the_file_that_was_written_last(tmp_path: Path) -> None:
    was, now, _ = OTHERS["size"]
    options = CommitOptions(state_directory=str(tmp_path))
    form = StateForm(variables(was))
    writer = StateFileWriter(Directory(str(tmp_path), {}), "source", form)
    row = dict.fromkeys(form.schema.names) | {form.schema.names[0]: 1, KEY: b"k"}
    block = pa.RecordBatch.from_pylist([row], schema=form.schema)
    writer.add(TopicPartition("t", 0), SPACE, 0, [block])
    [(_, made)] = writer.finish()
    run = made.committed(0)
    check_variables(variables(was), [run], options)
    check_variables(variables(now), [], options)
    with pytest.raises(KeyrangeError, match="STATE_SCHEMA_CHANGED"):
        check_variables(variables(now), [run], options)
    # Of a file that is gone the task says so that needs it.
    (tmp_path / writer.name).unlink()
    check_variables(variables(now), [run], options)
