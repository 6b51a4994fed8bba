"""The state of keys as a person reads it."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from keyrange.individual_commits.table.keyed_state_rows import plain_rows
from keyrange.keyed_state.variables import StateForm, ValueState, timer_variables, variables_of


def test_a_variable_of_one_column_is_its_value_and_a_timer_its_time() -> None:
    form = StateForm((*variables_of({"seen": ValueState("n long")}), *timer_variables()))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"key_hash": 1, "key": b"k", "seen": {"n": 7}, "timers": [at]}
    rows = pa.RecordBatch.from_pylist([row], form.schema)
    assert plain_rows(rows, form) == [(b"k", {"seen": 7, "timers": [at]})]
