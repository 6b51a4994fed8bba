"""Filters as Spark passes them, and when a reader takes them at all."""

from __future__ import annotations

import operator
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from types import ModuleType, SimpleNamespace

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader

from keyrange.model.offsets import OffsetRange, TopicPartition
from keyrange.options import parse_options
from keyrange.source.batch import KeyRangeBatchReader, narrow
from keyrange.source.data_source import KeyRangeDataSource
from keyrange.source.model.filters import Condition, Constraints, constrain
from keyrange.source.pushdown import KeyRangePushdownReader, conditions, takes_filters
from keyrange.source.schema import source_schema

WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
GIVEN = {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "filterPushdown": "true"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RANGES = {A0: OffsetRange(0, 100), A1: OffsetRange(0, 100), B0: OffsetRange(50, 60)}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Cluster:
    """Answers questions by time with what the test says."""

    def __init__(self, found: Mapping[TopicPartition, int]) -> None:
        self.found = found
        self.asked: list[Mapping[TopicPartition, int]] = []

    def list_offsets(
        self, view: object, wanted: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        self.asked.append(dict(wanted))
        return {partition: (self.found[partition], 3) for partition in wanted}


def narrowed(
    *filters: spark.Filter, found: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, OffsetRange]:
    return narrow(Cluster(found or {}), None, RANGES, constrain(conditions(filters)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (spark.EqualTo(("partition",), 1), [A1]),
        (spark.EqualNullSafe(("partition",), 1), [A1]),
        (spark.Not(spark.EqualTo(("partition",), 1)), [A0, B0]),
        (spark.In(("partition",), (1, None, 7)), [A1]),
        (spark.Not(spark.In(("partition",), (1, 7))), [A0, B0]),
        (spark.GreaterThan(("partition",), 0), [A1]),
        (spark.Not(spark.GreaterThanOrEqual(("partition",), 1)), [A0, B0]),
        (spark.EqualTo(("topic",), "b"), [B0]),
        (spark.StringStartsWith(("topic",), "a"), [A0, A1]),
        (spark.Not(spark.StringStartsWith(("topic",), "a")), [B0]),
        (spark.LessThan(("topic",), "b"), [A0, A1]),
        (spark.In(("topic",), ()), []),
    ],
    ids=str,
)
def test_topics_and_partitions_that_cannot_match_are_not_read(
    given: spark.Filter, expected: list[TopicPartition]
) -> None:
    assert narrowed(given) == {partition: RANGES[partition] for partition in expected}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([spark.GreaterThanOrEqual(("offset",), 10), spark.LessThan(("offset",), 20)], (10, 20)),
        ([spark.GreaterThan(("offset",), 10), spark.LessThanOrEqual(("offset",), 20)], (11, 21)),
        ([spark.EqualTo(("offset",), 7)], (7, 8)),
        ([spark.In(("offset",), (9, 4, None))], (4, 10)),
        ([spark.Not(spark.LessThan(("offset",), 5))], (5, 100)),
        ([spark.Not(spark.EqualTo(("offset",), 5))], (0, 100)),
        ([spark.LessThanOrEqual(("offset",), 2**63 - 1)], (0, 100)),
    ],
    ids=str,
)
def test_offsets_are_cut_to_the_bounds(
    filters: list[spark.Filter], expected: tuple[int, int]
) -> None:
    assert narrowed(*filters)[A0] == OffsetRange(*expected)


def test_a_partition_without_an_allowed_offset_is_not_read() -> None:
    assert narrowed(spark.LessThan(("offset",), 50)).keys() == {A0, A1}
    assert narrowed(spark.GreaterThan(("offset",), 2**63 - 1)) == {}
    assert narrowed(spark.In(("offset",), (None,))) == {}


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        (spark.GreaterThanOrEqual(("timestamp",), at(5_000)), 5),
        (spark.GreaterThanOrEqual(("timestamp",), at(5_001)), 6),
        (spark.GreaterThan(("timestamp",), at(5_000)), 6),
        (spark.GreaterThan(("timestamp",), at(4_999)), 5),
        (spark.EqualTo(("timestamp",), at(5_000)), 5),
        (spark.In(("timestamp",), (at(9_000), None, at(5_000))), 5),
        (spark.Not(spark.LessThan(("timestamp",), at(5_000))), 5),
        (spark.LessThan(("timestamp",), at(5_000)), None),
        (spark.Not(spark.EqualTo(("timestamp",), at(5_000))), None),
        (spark.GreaterThan(("timestamp",), datetime(2020, 1, 1)), None),
        (spark.GreaterThan(("timestamp",), date(2020, 1, 1)), None),
        (
            spark.EqualTo(
                ("timestamp",), datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))
            ),
            3_600_000,
        ),
    ],
    ids=str,
)
def test_times_are_rounded_up_to_the_milliseconds_of_records(
    given: spark.Filter, expected_ms: int | None
) -> None:
    assert constrain(conditions([given])).from_timestamp_ms == expected_ms


def test_a_bound_in_time_is_asked_for_once_and_of_what_is_left() -> None:
    cluster = Cluster({A0: 40, A1: -1})
    filters = [
        spark.GreaterThan(("timestamp",), at(5_000)),
        spark.GreaterThan(("timestamp",), at(9_000)),
        spark.EqualTo(("topic",), "a"),
        spark.GreaterThan(("offset",), 4),
    ]

    read = narrow(cluster, None, RANGES, constrain(conditions(filters)))

    assert cluster.asked == [{A0: 10, A1: 10}]
    assert read == {A0: OffsetRange(40, 100)}


def test_an_answer_outside_of_the_range_does_not_widen_it() -> None:
    later = spark.GreaterThan(("timestamp",), at(5_000))
    found = {A0: 0, A1: 100, B0: 3}
    assert narrowed(later, found=found) == {A0: RANGES[A0], B0: RANGES[B0]}


@pytest.mark.parametrize("microseconds", [0, -1, -5_000_000])
def test_times_that_kafka_would_take_for_other_questions_are_not_asked(microseconds: int) -> None:
    assert narrowed(spark.GreaterThanOrEqual(("timestamp",), at(microseconds))) == RANGES


@pytest.mark.parametrize(
    "given",
    [
        spark.IsNotNull(("offset",)),
        spark.Not(spark.IsNull(("topic",))),
        spark.EqualTo(("value",), b"x"),
        spark.EqualTo(("partition", "x"), 5),
        spark.EqualTo(("partition",), None),
        spark.EqualTo(("partition",), True),
        spark.EqualTo(("partition",), 5.0),
        spark.In(("partition",), (5, 5.5)),
        spark.EqualTo(("topic",), 5),
        spark.StringStartsWith(("partition",), "5"),
        spark.StringContains(("topic",), "z"),
        spark.GreaterThan(("timestampType",), 5),
    ],
    ids=str,
)
def test_what_is_not_understood_narrows_nothing(given: spark.Filter) -> None:
    assert narrowed(given) == narrowed(spark.Not(given)) == RANGES


def test_every_filter_goes_back_to_spark() -> None:
    """By reference, and the reader keeps what they say."""
    reader = KeyRangePushdownReader(parse_options(GIVEN, "batch"))
    given = [spark.EqualTo(("partition",), 1), spark.EqualTo(("value",), b"x")]

    assert [id(each) for each in reader.pushFilters(given)] == [id(each) for each in given]
    assert reader._constraints == Constraints((Condition("partition", operator.eq, 1),))


def reader(options: Mapping[str, str]) -> DataSourceReader:
    return KeyRangeDataSource(dict(options)).reader(
        source_schema(parse_options(options, "batch").chosen_columns)
    )


def test_filters_are_taken_where_spark_asks_and_the_option_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's plain planner refuses a reader that takes filters while they are switched off."""
    assert not takes_filters()
    assert type(reader(GIVEN)) is KeyRangeBatchReader
    assert "'filterPushdown' restricts nothing here" in caplog.text
    caplog.clear()
    monkeypatch.setitem(sys.modules, WORKER, ModuleType(WORKER))
    assert takes_filters()
    assert type(reader(GIVEN)) is KeyRangePushdownReader
    assert type(reader({**GIVEN, "filterPushdown": "false"})) is KeyRangeBatchReader
    assert KeyRangeBatchReader.pushFilters is DataSourceReader.pushFilters
    assert caplog.text == ""


def test_a_worker_without_a_daemon_is_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = SimpleNamespace(__spec__=SimpleNamespace(name=WORKER))
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert takes_filters()
    program.__spec__ = None
    assert not takes_filters()


def test_the_plain_planner_does_not_load_the_worker_for_filters() -> None:
    """The other way round it does; that is how one is told from the other."""
    body = (
        "import sys, pyspark.sql.worker.plan_data_source_read, keyrange.source.pushdown as own; "
        "print(own.takes_filters()); "
        f"import {WORKER}; print(own.takes_filters())"
    )
    result = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.split() == ["False", "True"]
