"""Rows that are to become state: which are refused, and what the refusal names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from keyrange.cli.state.given_variables import form_of_rows
from keyrange.errors import KeyrangeError
from keyrange.keyed_state import initial_runs
from keyrange.keyed_state.initial_rows import InitialRows
from keyrange.keyed_state.initial_runs import by_bucket
from keyrange.keyed_state.initial_spill import buckets_of, sorted_rows
from keyrange.keyed_state.variables import (
    ListState,
    MapState,
    StateForm,
    ValueState,
    timer_variables,
    variables_of,
)
from keyrange.storage.given_rows import GivenRows

DECLARED = {"total": ValueState("n int"), "soon": ValueState("n long", ttl="1m")}
FORM = StateForm(variables_of(DECLARED))
TOPICS = {"orders": 4}
NOW_MS = 1_000_000


def placed(form: StateForm = FORM, topics: Any = None, texts: bool = True, **given: Any) -> Any:
    columns = {
        name: each if isinstance(each, pa.Array) else pa.array(each) for name, each in given.items()
    }
    batch = pa.RecordBatch.from_pydict(columns)
    return InitialRows(form, batch.schema, topics or TOPICS, NOW_MS, texts).placed(batch)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"total": [1]}, "no column 'key'"),
        ({"key": ["a"]}, "no column of a variable: total, soon"),
        ({"key": ["a"], "totl": [1]}, "column 'totl' is no variable of the state"),
        ({"key": ["a"], "total": [1], "timers": [None]}, "'timers' is for a job with time"),
        ({"key": ["a", None], "total": [1, 2]}, "column 'key' is null in 1 of the rows"),
        ({"key": [1], "total": [1]}, "column 'key' is int64, and must be binary or string"),
        ({"key": ["a"], "total": ["1"]}, "'total' is string, and the variable is a value of n int"),
        ({"key": ["a"], "total": [1.5]}, "column 'total': a value of "),
        ({"key": ["a"], "total": [1 << 40]}, "column 'total': a value of "),
        ({"key": ["a"], "total": [1], "partition": [4]}, "'partition' has 4, and topic orders"),
        ({"key": ["a"], "total": [1], "partition": [-1]}, "'partition' has -1"),
        ({"key": ["a"], "total": [1], "partition": [None]}, "'partition' is null in 1"),
        ({"key": ["a"], "total": [1], "partition": ["x"]}, "'partition' of string"),
        ({"key": ["a"], "total": [1], "topic": ["other"]}, "'topic' names a topic that is not"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_columns_name(given: dict[str, Any], said: str) -> None:
    columns = {
        name: pa.array(each, pa.int32()) if each == [None] and name == "partition" else each
        for name, each in given.items()
    }
    with pytest.raises(KeyrangeError) as refused:
        placed(**columns)
    assert refused.value.condition.name == "INITIAL_STATE_UNFIT"
    assert said in refused.value.message


def test_types_are_refused_before_a_row_is_read() -> None:
    columns = pa.schema({"key": pa.string(), "total": pa.string()})
    with pytest.raises(
        KeyrangeError, match="column 'total' is string, and the variable is a value of n int"
    ):
        InitialRows(FORM, columns, TOPICS, NOW_MS)


def test_a_refusal_quotes_no_value() -> None:
    with pytest.raises(KeyrangeError) as refused:
        placed(key=["secret"], total=[987654.5])
    assert "secret" not in str(refused.value)
    assert "987654" not in str(refused.value)


def test_several_topics_need_a_column() -> None:
    with pytest.raises(KeyrangeError, match="no column 'topic', and there are 2 topics"):
        placed(topics={"a": 1, "b": 2}, key=["k"], total=[1])
    found = placed(topics={"a": 1, "b": 2}, key=["k"], total=[1], topic=["b"], partition=[1])
    assert found.column("place").to_pylist() == [2]


def test_texts_are_no_keys_of_a_format_with_bytes_of_its_own() -> None:
    with pytest.raises(KeyrangeError, match="keyFormat wants the bytes"):
        placed(texts=False, key=["a"], total=[1])
    assert placed(texts=False, key=[b"a"], total=[1]).num_rows == 1


def test_a_time_to_live_begins_with_the_import_unless_the_row_says_its_end() -> None:
    found = placed(key=["a", "b", "c"], soon=[1, 2, None], soon_expires_ms=[None, 7, None])
    assert found.column("soon_expires_ms").to_pylist() == [NOW_MS + 60_000, 7, None]
    found = placed(key=["a"], soon=[1])
    assert found.column("soon_expires_ms").to_pylist() == [NOW_MS + 60_000]


TEXTS = {
    "total: value of n long": {"total": ValueState("n long")},
    "many:list of id string, price decimal(10,2), for 30d": {
        "many": ListState("id string, price decimal(10,2)", ttl="30d")
    },
    "seen: map of id string -> at timestamp": {"seen": MapState("id string", "at timestamp")},
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_variable_is_named_as_it_is_printed(text: str) -> None:
    assert form_of_rows(pa.schema([]), [text]).variables == variables_of(TEXTS[text])


def test_columns_that_are_structs_say_their_variables() -> None:
    row = pa.struct([("n", pa.int64())])
    columns = {"key": pa.binary(), "total": row, "many": pa.list_(row), "seen": pa.map_(row, row)}
    columns["timers"] = pa.list_(pa.timestamp("us", "UTC"))
    declared = {
        "total": ValueState("n long"),
        "many": ListState("n long"),
        "seen": MapState("n long", "n long"),
    }
    form = form_of_rows(pa.schema(columns), [])
    assert form.variables == (*variables_of(declared), *timer_variables())
    assert form_of_rows(form.schema, []).variables == form.variables
    with pytest.raises(KeyrangeError, match="column 'total' is int64: say by --variable"):
        form_of_rows(pa.schema({"key": pa.binary(), "total": pa.int64()}), [])


def test_of_large_rows_few_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes of a hundred thousand keys are neither sorted at once nor made one run."""
    keys = pa.array([f"k{n}" for n in range(100)])
    batch = pa.RecordBatch.from_pydict({"key": keys, "total": pa.array(range(100))})
    reader = InitialRows(FORM, batch.schema, TOPICS, NOW_MS)
    given = GivenRows(batch.schema, 100, 10 << 30, lambda: iter([batch]))
    buckets = buckets_of(reader, given)
    assert len(buckets) >= 160
    monkeypatch.setattr(initial_runs, "RUN_BYTES", 1_000)
    batches = list(sorted_rows(reader, given, buckets))
    runs = [rows for _, _, rows in by_bucket(batches, buckets, FORM)]
    assert sum(rows.num_rows for rows in runs) == 100
    assert max(rows.nbytes for rows in runs) < 2_000
