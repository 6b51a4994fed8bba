"""A job's rows and state do not depend on where batches end, whatever values a function gives."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.formats.schema_document import struct_type
from keyrange.keyed_state.exact_columns import VALUE_BYTES_MAX, cast_exactly, check_state
from keyrange.keyed_state.exact_values import converter_of, form_of
from keyrange.keyed_state.state_entries import ABSENT, Entries
from keyrange.keyed_state.variables import StateForm, variables_of
from keyrange.model.ddl import parse_ddl
from keyrange.testing import RecordsFailed, StateHarness
from keyrange.work.records import UNFIT, RowForm
from project.forms import EXAMPLES, FORM
from samples import strategies  # noqa: F401  registers the hypothesis profiles

_ZONE = timezone(timedelta(hours=2))
# What functions were seen to give, whatever the column: few of these fit, and none may be changed
# when nobody looks.
_ODD = [
    None, True, 0, 1, -1, 300, 2**53 + 1, 2**63, 0.0, 0.1, 0.5, 1.0, 1e40, float("inf"),
    float("nan"), Decimal("1.2"), Decimal("1.239"), Decimal(2), "", "a", "é", "\ud800",
    b"", b"\xff", bytearray(b"x"), memoryview(b"x"), date(2024, 1, 1), datetime(2024, 1, 1, 12),
    datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 12, tzinfo=_ZONE), np.int32(4),
    np.float32(0.1), np.float64(2.0), np.bool_(True), np.array([1, 2]), [], [1], [None, 2], (1, 2),
    (1, "b"), {"a": 1}, {"a": 1, "b": "x"}, {"a": 1, "c": 2}, {1: 1}, [("a", 1)],
    [("a", 1), ("a", 2)], {(1, 2): 3}, timedelta(1), object(),
]  # fmt: skip
_KINDS = [
    "boolean", "byte", "short", "int", "long", "float", "double", "decimal(5,2)", "string",
    "binary", "date", "timestamp", "timestamp_ntz", "array<int>", "array<float>",
    "array<array<long>>", "struct<a:int,b:string>", "array<struct<a:int,b:string>>",
    "map<string,int>", "map<float,int>",
    "map<string,array<int>>", "map<struct<a:int,b:string>,int>", "struct<m:map<string,float>>",
]  # fmt: skip
# Each example is of one kind of them.
_OFTEN = settings(max_examples=6 * EXAMPLES[FORM])


@pytest.mark.ordinary
@_OFTEN
@given(
    kind=st.sampled_from(_KINDS),
    values=st.lists(st.sampled_from(_ODD), min_size=1, max_size=6),
    cuts=st.sets(st.integers(1, 5)),
)
def test_rows_and_state_do_not_depend_on_where_batches_end(
    kind: str, values: list[Any], cuts: set[int]
) -> None:
    """Each value by itself is taken or refused, so that a failure holds back nothing."""
    assert _run(kind, values, set()) == _run(kind, values, cuts)


def _run(kind: str, values: list[Any], cuts: set[int]) -> Any:
    state = {
        "one": keyrange.ValueState(f"v {kind}"),
        "two": keyrange.ValueState(f"n int, v {kind}"),
        "many": keyrange.ListState(f"v {kind}"),
        "rows": keyrange.ListState(f"n int, v {kind}"),
        "known": keyrange.MapState(f"v {kind}", f"v {kind}"),
    }
    taken: list[Any] = []

    def work(record: Any, state: Any) -> Any:
        value = values[record.offset]
        seen = []
        for each in (
            lambda: state.one.update(value),
            lambda: state.two.update((1, value)),
            lambda: state.many.append(value),
            lambda: state.rows.append({"n": 1, "v": value}),
            lambda: seen.append(state.known.contains(value)),
            lambda: state.known.update(value, value),
        ):
            try:
                each()
            except (TypeError, ValueError, OverflowError, pa.ArrowException) as failure:
                seen.append(type(failure).__name__)
        kept = [
            state.one.get(), state.two.get(), list(state.many.get()), list(state.rows.get()),
            list(state.known.items()), seen,
        ]  # fmt: skip
        taken.append(repr(kept))
        return (state.one.get(),)

    harness = StateHarness(work, f"v {kind}", state)
    rows: list[Any] = []
    ends = [0, *sorted(cut for cut in cuts if cut < len(values)), len(values)]
    for start, stop in pairwise(ends):
        rows += harness.process([(b"k", b"")] * (stop - start))
    return repr(rows), taken, repr(harness.state(b"k"))


@_OFTEN
@given(kind=st.sampled_from(_KINDS), values=st.lists(st.sampled_from(_ODD), min_size=1, max_size=4))
def test_an_output_is_what_was_given_or_its_record_fails(kind: str, values: list[Any]) -> None:
    """A row by itself, and among others."""

    def alone(value: Any) -> Any:
        harness = StateHarness(
            lambda *_: (value,), f"v {kind}", {"s": keyrange.ValueState("n int")}
        )
        try:
            return repr(harness.process([(b"k", b"")]))
        except (RecordsFailed, KeyrangeError) as failure:
            return type(failure)

    found = [alone(value) for value in values]
    fit = [value for value, each in zip(values, found, strict=True) if isinstance(each, str)]
    harness = StateHarness(
        lambda record, _: (fit[record.offset],), f"v {kind}", {"s": keyrange.ValueState("n int")}
    )
    together = [repr([row]) for row in harness.process([(b"k", b"")] * len(fit))]
    assert together == [each for each in found if isinstance(each, str)]


@_OFTEN
@given(kind=st.sampled_from(_KINDS), values=st.lists(st.sampled_from(_ODD), min_size=1, max_size=4))
def test_one_rule_for_functions_of_records_and_of_batches(kind: str, values: list[Any]) -> None:
    """A value by itself, among others, and as a column of whatever type Arrow gives it."""
    schema = pa.schema(list(struct_type(parse_ddl(f"v {kind}"))))
    form, convert = RowForm(schema), converter_of(schema.field("v").type)
    fit = []
    for value in values:
        try:
            exact = convert(value)
        except UNFIT:
            with pytest.raises(ValueError, match="column 'v'"):
                form.batch_of([form.owned((value,))])
        else:
            fit.append(value)
            assert repr(_read(form.batch_of([form.owned((value,))]))) == repr([exact])
        try:
            given = pa.array([value])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        try:
            cast = form.cast(pa.RecordBatch.from_arrays([given], ["v"]))
        except (ValueError, KeyrangeError):
            continue
        assert repr(_read(cast)) == repr([convert(given[0].as_py())])
    assert repr(_read(form.batch_of([form.owned((value,)) for value in fit]))) == repr(
        list(map(convert, fit))
    )


def _read(batch: pa.RecordBatch) -> list[Any]:
    [column] = batch.columns
    form = form_of(column.type)
    return column.to_pylist() if form is None else list(map(form, column.to_pylist()))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([1e40]), pa.float32()),
        (pa.array([[1.0, 1e40]]), pa.list_(pa.float32())),
        (pa.array([1.5]), pa.int64()),
        (pa.array([300]), pa.int8()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us", "UTC")),
        (pa.array([Decimal("1.239")]), pa.decimal128(5, 2)),
        (pa.array([[(0.1, 1), (0.1, 2)]], pa.map_(pa.float64(), pa.int32())), None),
        (pa.array([[(float("nan"), 1)]], pa.map_(pa.float64(), pa.int32())), None),
        (pa.array([[({"a": 1}, 1)] * 2], pa.map_(pa.struct({"a": pa.int8()}), pa.int8())), None),
    ],
)
def test_a_column_that_would_lose_a_value_fails_its_record(
    given: pa.Array, kind: pa.DataType | None
) -> None:
    with pytest.raises(ValueError, match="column 'v'") as failure:
        cast_exactly("v", given, kind or given.type)
    assert not any(text in str(failure.value) for text in ("1e", "300", "1.5", "1.239"))


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([True]), pa.int64()),
        (pa.array([5]), pa.timestamp("us", "UTC")),
        (pa.array([datetime(2024, 1, 1)]), pa.date32()),
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([b"x"]), pa.string()),
        (pa.array(["x"]), pa.binary()),
        (pa.array([1.5]), pa.decimal128(5, 2)),
        (pa.array([[b"x"]]), pa.list_(pa.string())),
        (pa.array([{"a": 1, "z": 1}]), pa.struct({"a": pa.int64()})),
        (pa.array([[1]], pa.list_view(pa.int64())), pa.list_(pa.int64())),
    ],
)
def test_a_column_of_another_type_stops_the_query(given: pa.Array, kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="a column 'v' of"):
        cast_exactly("v", given, kind)


def test_a_column_of_a_wider_type_is_taken() -> None:
    for column, kind in [
        (pa.array([5]), pa.decimal128(5, 2)),
        (pa.array([5], pa.uint64()), pa.int8()),
        (pa.array([{"b": 1}]), pa.struct({"a": pa.string(), "b": pa.int8()})),
        (pa.array(["x"]).dictionary_encode(), pa.string()),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.list_(pa.int32())),
        (pa.nulls(2), pa.list_(pa.int32())),
        (pa.array([datetime(2024, 1, 1)]), pa.timestamp("us", "UTC")),
    ]:
        assert cast_exactly("v", column, kind).type == kind


def test_a_state_of_batches_that_no_function_of_records_could_keep_is_refused() -> None:
    long_text = "x" * (VALUE_BYTES_MAX + 1)
    for values in (
        pa.array([[[("a", long_text)]]], pa.list_(pa.map_(pa.string(), pa.string()))),
        pa.array([2**60], pa.timestamp("us", "UTC")),
        pa.array([2**30], pa.date32()),
    ):
        with pytest.raises(ValueError, match="column 'v'"):
            check_state("v", values)


def test_state_that_is_stored_is_read_whoever_wrote_it() -> None:
    """Refusing what is there already would stop a query for ever."""
    kind = pa.map_(pa.float64(), pa.string())
    form = form_of(kind)
    assert form is not None
    assert form([(0.5, "a"), (0.5, "b")]) == {0.5: "b"}
    assert len(form([(float("nan"), "x" * (VALUE_BYTES_MAX + 1))])) == 1


def _form(**state: Any) -> StateForm:
    return StateForm(variables_of(state))


VALUE, LIST, MAP = keyrange.ValueState, keyrange.ListState, keyrange.MapState


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (
            VALUE("n int, t string"),
            VALUE("n int"),
            "has no field t any more",
        ),
        (
            LIST("n int, t string"),
            LIST("n int"),
            "has no field t any more",
        ),
        (
            MAP("k string, d int", "v int"),
            MAP("k string", "v int"),
            "no field d any",
        ),
        (
            VALUE("n decimal(5,2)"),
            VALUE("n decimal(5,3)"),
            r"was decimal\(5,2\) in field n, and decimal\(5,3\) does",
        ),
        (
            VALUE("n decimal(5,2)"),
            VALUE("n decimal(9,1)"),
            r"decimal\(9,1\) does not",
        ),
        (
            VALUE("n bigint"),
            VALUE("n int"),
            "was bigint in field n, and int does not",
        ),
        (
            LIST("a struct<b: bigint>, c int"),
            LIST("a struct<b: string>, c int"),
            r"variable 'x' was bigint in field a\.b, and string does not hold all of that",
        ),
    ],
)
def test_a_schema_that_would_let_data_go_is_refused(was: Any, now: Any, why: str) -> None:
    with pytest.raises(KeyrangeError, match=rf"STATE_SCHEMA_CHANGED.*{why}"):
        _form(x=now).check(_form(x=was).schema, "file")


def test_decimals_may_grow() -> None:
    was = _form(x=keyrange.ValueState("n decimal(5,2)"))
    now = _form(x=keyrange.ValueState("n decimal(7,3)"))
    now.check(was.schema, "file")
    entries = [[Decimal("123.45"), None], [ABSENT, None]]
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), pa.array([b"a", b"b"]), *Entries(was).columns(entries)],
        schema=was.schema,
    )
    assert [entry[0] for entry in Entries(now).read(now.fitted(rows))] == [
        Decimal("123.450"),
        ABSENT,
    ]


@pytest.mark.parametrize(
    "now",
    [
        {"n": keyrange.ValueState("n int")},
        {"token_expires_ms": keyrange.ValueState("n int"), "n": keyrange.ValueState("n int")},
        {"token_expires_ms": keyrange.ListState("n long"), "n": keyrange.ValueState("n int")},
    ],
)
def test_a_variable_is_checked_whatever_its_name(now: Any) -> None:
    was = _form(token_expires_ms=keyrange.ValueState("n long"), n=keyrange.ValueState("n int"))
    with pytest.raises(KeyrangeError, match=r"STATE_SCHEMA_CHANGED.*'token_expires_ms'"):
        _form(**now).check(was.schema, "file")
