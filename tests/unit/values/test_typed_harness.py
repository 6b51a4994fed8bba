"""The harness for functions with state gives them typed records."""

from __future__ import annotations

from typing import Any

import pytest

import keyrange
from keyrange.testing import RecordsFailed, StateHarness

TYPED = {
    "valueFormat": "json",
    "valueSchema": "n bigint",
    "badValues": "deadLetter",
    "commitMode": "individual",
    "commitTable": "/none",
}


def total(record: Any, state: Any) -> Any:
    state.n.update(state.n.get(default=0) + record.value.n)
    return (record.value.n,)


def test_a_function_of_typed_records() -> None:
    harness = StateHarness(total, "n long", {"n": keyrange.ValueState("n long")}, options=TYPED)
    assert harness.process([(b"k", b'{"n": 2}'), (b"k", b'{"n": 3}')]) == [{"n": 2}, {"n": 3}]
    assert harness.state(b"k") == {"n": 5}
    with pytest.raises(RecordsFailed, match="value: field n: a string is no int64"):
        harness.process([(b"k", b'{"n": "x"}')])
