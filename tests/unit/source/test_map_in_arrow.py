"""A function over the rows of a task: what it gets, what it may yield, and what goes wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError, error
from keyrange.options import parse_options
from keyrange.source.data_source import KeyRangeDataSource
from keyrange.source.map_in_arrow import map_in_arrow
from keyrange.source.schema import source_schema
from keyrange.source.task_reader import read_task

GIVEN = {
    "subscribe": "t",
    "kafka.bootstrap.servers": "h:1",
    "mapInArrow": "mapped_here:work",
    "mapInArrowSchema": "n int",
}
Batches = Iterator[pa.RecordBatch]
Named = Callable[[Any], None]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Named:
    """Puts a function where the option names it."""
    module: Any = ModuleType("mapped_here")
    monkeypatch.setitem(sys.modules, "mapped_here", module)
    return lambda work: setattr(module, "work", work)


def numbers(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int32())})


class Rows:
    """Three batches, or a failure after the second; notes whether it was closed."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.closed = False
        self.read = self._read(failure)

    def _read(self, failure: Exception | None) -> Iterator[pa.RecordBatch]:
        try:
            yield numbers(1, 2)
            yield numbers(3)
            if failure is not None:
                raise failure
            yield numbers(4, 5, 6)
        finally:
            self.closed = True


def mapped(rows: Rows, **given: str) -> Iterator[pa.RecordBatch]:
    mapping = parse_options({**GIVEN, **given}).map_in_arrow
    assert mapping is not None
    return map_in_arrow(mapping, rows.read)


def failure_of(rows: Rows, **given: str) -> KeyrangeError:
    with pytest.raises(KeyrangeError) as caught:
        list(mapped(rows, **given))
    return caught.value


def test_batch_by_batch_in_one_call(named: Named) -> None:
    calls = []

    def work(batches: Batches) -> Batches:
        calls.append(batches)
        total = 0
        for batch in batches:
            total += sum(batch["n"].to_pylist())
            yield numbers(batch.num_rows, total)

    named(work)
    rows = Rows()
    found = [batch["n"].to_pylist() for batch in mapped(rows)]
    assert found == [[2, 3], [1, 6], [3, 21]]
    assert len(calls) == 1
    assert next(calls[0], None) is None
    assert rows.closed


def test_any_iterator_and_any_callable_will_do(named: Named) -> None:
    class Firsts:
        def __call__(self, batches: Batches) -> Batches:
            return (batch.slice(0, 1) for batch in batches)

    named(SimpleNamespace(fold=Firsts()))
    found = mapped(Rows(), mapInArrow="mapped_here:work.fold")
    assert [batch["n"].to_pylist() for batch in found] == [[1], [3], [4]]


def test_an_empty_task_is_a_call_without_rows(named: Named) -> None:
    named(lambda batches: iter([numbers(len(list(batches)))]))
    [batch] = read_task(parse_options(GIVEN), InputPartition(None))
    assert batch["n"].to_pylist() == [0]


def test_who_stops_early_closes_all(named: Named) -> None:
    closed = []

    def work(batches: Batches) -> Batches:
        try:
            yield from batches
        finally:
            closed.append(rows.closed)

    named(work)
    rows = Rows()
    results: Any = mapped(rows)
    next(results)
    results.close()
    # The function first: it may still hold the rows.
    assert closed == [False]
    assert rows.closed


def test_a_function_need_not_read_to_the_end(named: Named) -> None:
    named(lambda batches: iter([next(batches)]))
    rows = Rows()
    assert len(list(mapped(rows))) == 1
    assert rows.closed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no_such_package.work:fold", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("mapped_here:nothing", "AttributeError: module 'mapped_here' has no attribute 'nothing'"),
    ],
)
def test_what_cannot_be_imported(named: Named, name: str, text: str) -> None:
    rows = Rows()
    failure = failure_of(rows, mapInArrow=name)
    assert failure.condition.name == "MAP_FUNCTION_NOT_FOUND"
    assert failure.message == (
        f"option mapInArrow: {name} cannot be imported in the executor: {text} "
        f"(module={name.partition(':')[0]})"
    )
    assert "install the module where the executors' Python finds it" in str(failure)
    assert isinstance(failure.__cause__, ImportError | AttributeError)


def test_a_module_that_fails_when_it_is_imported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mapped_broken.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    failure = failure_of(Rows(), mapInArrow="mapped_broken:work")
    assert failure.condition.name == "MAP_FUNCTION_NOT_FOUND"
    assert isinstance(failure.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (5, "mapped_here:work is int"),
        (lambda batches: None, "mapped_here:work returned NoneType and no iterator"),
        (list, "mapped_here:work returned list and no iterator"),
    ],
)
def test_what_is_no_function_of_this_kind(named: Named, work: Any, text: str) -> None:
    named(work)
    failure = failure_of(Rows())
    assert failure.condition.name == "MAP_FUNCTION_UNFIT"
    assert failure.message == f"option mapInArrow: {text}"


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        (pa.record_batch({"n": pa.array([1], pa.int64())}), "[n int64]"),
        (pa.record_batch({"m": pa.array([1], pa.int32())}), "[m int32]"),
        (pa.record_batch({"n": numbers(1)["n"], "m": numbers(1)["n"]}), "[n int32, m int32]"),
        (
            numbers(1).cast(pa.schema([pa.field("n", pa.int32(), nullable=False)])),
            "[n int32 not null]",
        ),
        (pa.table({"n": pa.array([1], pa.int32())}), "Table"),
        (None, "NoneType"),
    ],
)
def test_every_batch_has_the_schema(named: Named, last: Any, shown: str) -> None:
    """Spark would check the first alone."""
    named(lambda batches: iter([numbers(1), numbers(), last]))
    results = mapped(Rows())
    assert [next(results).num_rows, next(results).num_rows] == [1, 0]
    with pytest.raises(KeyrangeError) as caught:
        next(results)
    assert caught.value.condition.name == "MAP_RESULT_MISMATCH"
    assert caught.value.message == (
        f"option mapInArrow: mapped_here:work yielded {shown}, and mapInArrowSchema says [n int32]"
    )


def test_a_function_that_fails_is_the_cause(named: Named) -> None:
    def work(batches: Batches) -> Batches:
        yield next(batches)
        raise LookupError("secret key")

    named(work)
    rows = Rows()
    failure = failure_of(rows)
    assert failure.condition.name == "MAP_FUNCTION_FAILED"
    assert failure.message == "option mapInArrow: mapped_here:work raised LookupError"
    assert isinstance(failure.__cause__, LookupError)
    [note] = failure.__notes__
    assert note.startswith("Traceback")
    # From the function on, and with nothing of ours.
    assert re.findall("in (.*)", note) == ["work"]
    assert note.endswith("LookupError: secret key\n")
    assert rows.closed


def test_a_function_that_fails_before_its_first_batch(named: Named) -> None:
    named(lambda: None)
    failure = failure_of(Rows())
    assert failure.condition.name == "MAP_FUNCTION_FAILED"
    assert isinstance(failure.__cause__, TypeError)


def passes(batches: Batches) -> Batches:
    yield from batches


def ends(batches: Batches) -> Batches:
    try:
        yield from batches
    except KeyrangeError:
        return


def goes_on(batches: Batches) -> Batches:
    try:
        yield from batches
    except KeyrangeError:
        yield numbers(0)


def wraps(batches: Batches) -> Batches:
    try:
        yield from batches
    except KeyrangeError as failure:
        raise RuntimeError("no rows") from failure


def collects(batches: Batches) -> Batches:
    return iter(list(batches))


@pytest.mark.parametrize("work", [passes, ends, goes_on, wraps, collects])
def test_what_reading_fails_with_stays_what_it_is(named: Named, work: Any) -> None:
    """Also where the function would end early, or go on, without the records that are missing."""
    named(work)
    lost = error("KAFKA_DATA_LOSS.LOG_TRUNCATED", "some data may have been lost")
    failure = failure_of(Rows(lost))
    assert failure is lost


def test_the_schema_is_the_functions() -> None:
    source = KeyRangeDataSource({**GIVEN, "mapInArrowSchema": "k binary, n decimal(5,2)"})
    schema = source.schema()
    assert schema.simpleString() == "struct<k:binary,n:decimal(5,2)>"
    source.reader(schema)
    source.streamReader(StructType.fromJson(schema.jsonValue()))
    with pytest.raises(KeyrangeError, match=r"INVALID_SCHEMA.*mapInArrowSchema"):
        source.reader(source_schema(["key"]))
