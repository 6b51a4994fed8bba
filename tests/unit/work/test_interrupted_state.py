"""Functions with state whose calls are interrupted at any line, as by the end of a batch's time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import keyrange
from keyrange import keyed_state, work
from keyrange.keyed_state.variables import StateForm, variables_of
from keyrange.model.key_ranges import SPACE, hash_of
from keyrange.work.model.work_order import TaskPartition, WorkSettings
from keyrange.work.outcome_rows import HIDDEN
from keyrange.work.record_alarm import RecordTimeout
from keyrange.work.state_in_memory import FoldedState
from keyrange.work.task_context import Job, Task
from keyrange.work.task_run import run_task
from project.forms import everyday
from queries.interrupted_calls import interrupted
from samples.working import PLACE, Sent, VirtualAlarm, batch_of

OWN = (__file__, *(str(Path(str(each.__file__)).parent) for each in (keyed_state, work)))
STATE = {
    "total": keyrange.ValueState("n long"),
    "seen": keyrange.ListState("at long"),
    "known": keyrange.MapState("at long", "n long"),
}
KEYS = [b"a", b"a", b"b", b"a"]


class LineAlarm(VirtualAlarm):
    """The time is up at a line of one of the calls."""

    def __init__(self, call: int, line: int) -> None:
        super().__init__()
        self._left, self._line = call, line
        self.where = ""

    def call(self, function: Callable[[Any], Any], argument: Any, timeout_ms: float | None) -> Any:
        self._left -= 1
        if self._left:
            return super().call(function, argument, timeout_ms)
        found: list[Any] = []
        self.where = interrupted(
            lambda: found.append(function(argument)), self._line, RecordTimeout, OWN
        )
        if self.where:
            raise RecordTimeout
        return found[0]


def count(record: Any, state: Any) -> Any:
    state.total.update(state.total.get(default=0) + 1)
    state.seen.append(record.offset)
    state.known.update(record.offset, 1)
    return (record.offset,)


@pytest.mark.parametrize("call", everyday(*range(2, len(KEYS) + 1)))
def test_state_has_what_is_done_and_nothing_else(call: int) -> None:
    """What a call changed that is handed back is taken back, and what the one before it has changed
    stays."""
    terms, columns = WorkSettings(budget_ms=10), pa.schema([("at", pa.int64())])
    for line in range(1_000):
        states, alarm = FoldedState(StateForm(variables_of(STATE))), LineAlarm(call, line)
        job = Job({PLACE: TaskPartition((SPACE,))}, terms, "record", columns, count)
        records = batch_of([Sent(at, hash_of(key), key) for at, key in enumerate(KEYS)])
        done = [
            at
            for batch in run_task(Task(job, alarm), [records], states)
            if batch.column(HIDDEN).null_count
            for at in batch.column("at").to_pylist()
        ]
        found = {row["key"]: row for batch in states.rows(PLACE) for row in batch.to_pylist()}
        for key in set(KEYS):
            own = [at for at in done if KEYS[at] == key]
            row = found.get(key) or {"total": {"n": 0}, "seen": [], "known": []}
            assert row["total"] == {"n": len(own)}, alarm.where
            assert row["seen"] == [{"at": at} for at in own], alarm.where
            assert [each["at"] for each, _ in row["known"]] == own, alarm.where
        if not alarm.where:
            break
        assert len(done) == call - 1
    assert line > 10
