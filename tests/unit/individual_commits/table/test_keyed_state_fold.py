"""The state made once more from the log, in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits.model.partition_progress import fresh
from keyrange.individual_commits.table.keyed_state_fold import FoldPlan, StateFold
from keyrange.keyed_state.variables import StateForm, ValueState, variables_of
from samples.working import PLACE, Sent, batch_of

FORM = StateForm(variables_of({"total": ValueState("n long")}))
SECRET = b"s3cret"


def fold_of(function: Any, mode: str = "record") -> StateFold:
    plan = FoldPlan(1, {PLACE: fresh("", 0)}, {PLACE: fresh("", 4)}, 0)
    base: Any = SimpleNamespace(blocks=lambda *_: ())
    return StateFold(plan, base, FORM, function, mode)


def records(*values: bytes) -> Any:
    sent = [Sent(at, at % 2, b"k%d" % (at % 2), value) for at, value in enumerate(values)]
    return [batch_of(sent)]


def add(record: Any, state: Any) -> None:
    state.total.update(state.total.get(default=0) + record.value.amount)


def test_a_function_that_fails_with_every_record_tells_nothing_of_the_state() -> None:
    """Two fail, and two wait for them: the options say which values the function gets."""
    fold = fold_of(add)
    with pytest.raises(KeyrangeError, match=r"INVALID_OPTIONS.*failed with all 2 records") as told:
        fold.run(records(SECRET, SECRET, SECRET, SECRET), None)
    text = str(told.value)
    assert "AttributeError 2 (such as offset 0 of t-0; " in text
    assert "--option valueFormat=..., valueSchema=..." in text
    assert "s3cret" not in text


def test_a_function_that_fails_with_some_is_told_of() -> None:
    def some(record: Any, state: Any) -> None:
        state.total.update(10 // int(record.value))

    fold = fold_of(some)
    fold.run(records(b"0", b"1", b"2", b"3"), None)
    assert fold.records == 4
    assert [offset for _, offset, _ in fold.failures] == [0]
