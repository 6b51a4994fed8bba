"""State of keys whose records make rows that a table or a topic does not take: it is what the
records that are done have made of it, as a loop over them says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import keyrange
from keyrange.formats.schema_document import schema_of_ddl
from keyrange.keyed_state.variables import KEY, StateForm, variables_of
from keyrange.model.key_ranges import SPACE
from keyrange.wire.topic_limits import BatchSettings, TopicLimits
from keyrange.work.model.outcome import Cause
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import table_of
from keyrange.work.state_in_memory import FoldedState, told_in
from keyrange.work.task_context import Job, RowsOf, Task
from keyrange.work.task_run import run_task
from keyrange.work.topic_rows import TopicRows
from samples.working import PLACE, Sent, VirtualAlarm, batches_of

_DELIVERIES_MAX = 2
_TOO_LARGE = 2_000
_ROW = schema_of_ddl("id string, n long, total long, seen string")
_SENT = TopicRows(TopicLimits(BatchSettings(), message_bytes=1_000))
_KINDS = {
    "keys": (RowsOf(_ROW, ("id",)),),
    "tables": (RowsOf(_ROW, name="all"), RowsOf(_ROW, ("id",), name="last")),
    "topic": (
        RowsOf(_ROW, name="all"),
        RowsOf(schema_of_ddl("key binary, value binary"), name="sent", topic=_SENT),
    ),
}
_FORM = StateForm(
    variables_of(
        {
            "total": keyrange.ValueState("n long"),
            "seen": keyrange.ListState("n long"),
            "times": keyrange.MapState("n long", "times long"),
        }
    )
)


def _function(kind: str, refused: dict[int, int]) -> Any:
    """Of a record: a total, and which numbers were seen how often. `refused`: in how many
    deliveries the row of a number is none that what it is for would take."""

    def work(record: Any, state: Any) -> Any:
        n = int(record.value)
        total = state.total.get(0) + n
        state.total.update(total)
        state.seen.append(n)
        state.times.update(n, state.times.get(n, 0) + 1)
        fits = record.deliveries >= refused[n]
        row = ("x" if fits or kind == "topic" else None, n, total, _said(state))
        if kind == "keys":
            return row
        if kind == "tables":
            return {"all": ("x", *row[1:]), "last": [row]}
        return {"all": row, "sent": (record.key, bytes(1 if fits else _TOO_LARGE))}

    return work


def _said(state: Any) -> str:
    return f"{[*state.seen.get()]} {sorted(state.times.items())}"


@given(
    kind=st.sampled_from(sorted(_KINDS)),
    records=st.lists(
        st.tuples(st.sampled_from([b"a", b"b"]), st.sampled_from([0, 0, 0, 1, 9])), max_size=12
    ),
    counts=st.lists(st.integers(1, 5), max_size=6),
    stretch_rows=st.integers(1, 4),
    hashes=st.sampled_from([(1, 2), (1, 1)]),
)
def test_state_is_what_records_have_made_that_are_done(
    kind: str,
    records: list[tuple[bytes, int]],
    counts: list[int],
    stretch_rows: int,
    hashes: tuple[int, int],
) -> None:
    function = _function(kind, {n: times for n, (_, times) in enumerate(records)})
    states = FoldedState(_FORM)
    rows: dict[bytes, list[dict[str, Any]]] = {b"a": [], b"b": []}
    given_up = set[int]()
    # How often records that come again were worked on, by offset.
    again: dict[int, int] = {}
    until = 0
    while until < len(records) or again:
        before, until = until, min(until + (counts.pop() if counts else 3), len(records))
        handed = sorted([*again, *range(before, until)])
        left: dict[int, int] = {}
        for output in _batch(kind, function, records, handed, again, stretch_rows, states, hashes):
            for told in told_in(output, "outcome"):
                at, cause = told["offset"], Cause(told["cause"])
                deliveries = again.get(at, 0) + cause.was_worked_on
                if cause.is_given_up(deliveries, _DELIVERIES_MAX):
                    given_up.add(at)
                else:
                    left[at] = deliveries
            if table_of(output) in ("", "all"):
                for row in output.to_pylist():
                    if row["n"] is not None:
                        rows[records[row["n"]][0]].append(row)
        again = left
    assert given_up == {n for n, (_, times) in enumerate(records) if times >= _DELIVERIES_MAX}
    for key, found in rows.items():
        numbers = [n for n, (own, _) in enumerate(records) if own == key and n not in given_up]
        assert [row["n"] for row in found] == numbers
        for count, row in enumerate(found, 1):
            done = numbers[:count]
            said = f"{done} {[(n, 1) for n in done]}"
            assert (row["total"], row["seen"]) == (sum(done), said)
    totals = {key: {"n": found[-1]["total"]} for key, found in rows.items() if found}
    kept = [row for each in states.rows(PLACE) for row in each.to_pylist()]
    assert {row[KEY]: row["total"] for row in kept} == totals


def _batch(
    kind: str,
    function: Any,
    records: list[tuple[bytes, int]],
    handed: list[int],
    again: dict[int, int],
    stretch_rows: int,
    states: FoldedState,
    hashes: tuple[int, int],
) -> Iterator[pa.RecordBatch]:
    """What a task makes of the records at the offsets `handed`."""
    outputs = _KINDS[kind]
    work = TaskPartition((SPACE,), deliveries={at: times for at, times in again.items() if times})
    settings = WorkSettings(deliveries_max=_DELIVERIES_MAX)
    job = Job({PLACE: work}, settings, "record", outputs[0].schema, function, outputs=outputs)
    # Of two keys the hashes may be the same: then one waits with the other.
    places = dict(zip((b"a", b"b"), hashes, strict=True))
    sent = [Sent(at, places[records[at][0]], records[at][0], b"%d" % at) for at in handed]
    yield from run_task(Task(job, VirtualAlarm()), batches_of(sent, stretch_rows), states)
