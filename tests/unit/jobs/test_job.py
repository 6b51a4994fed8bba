"""What `keyrange.job` refuses before a query starts, in place of every record's error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    VarcharType,
    VariantType,
)

import keyrange
from keyrange.errors import KeyrangeError
from keyrange.jobs.output_checks import check_places
from keyrange.jobs.output_tables import TableArguments
from keyrange.jobs.table_writer import TableWriter
from keyrange.options import parse_options
from keyrange.storage.directory import no_place

COLUMNS = StructType([StructField("id", LongType()), StructField("name", StringType())])
OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
KEYED = OPTIONS | {"splitBy": "keyRange", "commitMode": "individual", "commitTable": "/lake/c"}
SESSION: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None), version="4.2.0")
TOTAL = {"total": keyrange.ValueState("n long")}


def of_record(record: Any) -> None: ...


def of_state(record: Any, state: Any) -> None: ...


def of_batches(records: Any, groups: Any, state: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "settings", "said"),
    [
        ("orders:priced", {}, "function must be a function, and is of type str"),
        (of_state, {}, r"called with \(record\).*missing a required argument: 'state'"),
        (of_record, {"state": TOTAL}, r"called with \(record, state\).*too many"),
        (of_state, {"state": TOTAL, "mode": "arrow"}, r"called with \(records, groups, state\)"),
        (of_state, {"state": ["total"]}, "state must be a dictionary, such as"),
    ],
)
def test_a_function_that_no_task_could_call_is_refused(
    function: Any, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(KeyrangeError, match=said):
        keyrange.job(KEYED, function, COLUMNS, **settings)


@pytest.mark.parametrize("function", [of_record, lambda *found: None, print, str])
def test_a_function_that_can_be_called_or_is_not_known_is_taken(function: Any) -> None:
    assert keyrange.job(OPTIONS, function, COLUMNS) is not None


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [
        (
            {"state.topic": "customers"},
            {"state": TOTAL},
            "none of the topics that option subscribe",
        ),
        ({"state.topic": "orders"}, {}, "state.topic is for jobs with state"),
        ({"state.topic": "a/b"}, {"state": TOTAL}, "'state.topic' must be the name of a topic"),
        (
            {"state.topic": "orders", "keyRanges": '{"orders": {"0": [[0, 9223372036854775807]]}}'},
            {"state": TOTAL},
            "state.topic and keyRanges exclude each other",
        ),
    ],
)
def test_topics_that_cannot_share_a_state_are_refused(
    given: dict[str, str], settings: dict[str, Any], said: str
) -> None:
    function = of_state if settings else of_record
    with pytest.raises(KeyrangeError, match=said):
        keyrange.job(KEYED | given, function, COLUMNS, **settings)


def test_single_partitions_cannot_share_a_state() -> None:
    given = {name: each for name, each in KEYED.items() if name != "subscribe"}
    given |= {"assign": '{"orders": [0]}', "state.topic": "orders"}
    with pytest.raises(KeyrangeError, match=r"state\.topic needs subscribe"):
        keyrange.job(given, of_state, COLUMNS, state=TOTAL)


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ({"subscribe": "orders,customers"}, True),
        ({"subscribe": "orders,customers", "state.topic": "customers"}, False),
        ({"subscribe": "orders"}, False),
    ],
)
def test_topics_that_do_not_share_their_state_are_told(
    caplog: pytest.LogCaptureFixture, given: dict[str, str], is_told: bool
) -> None:
    keyrange.job(KEYED | given, of_state, COLUMNS, state=TOTAL)
    assert ("state.topic lets them share it" in caplog.text) == is_told


def test_functions_with_state_are_called_with_it() -> None:
    assert keyrange.job(KEYED, of_state, COLUMNS, state=TOTAL) is not None
    assert keyrange.job(KEYED, of_batches, COLUMNS, mode="arrow", state=TOTAL) is not None


@pytest.mark.parametrize(
    ("names", "said"), [([], "names no column"), (["id", "ID"], "names column 'id' twice")]
)
def test_columns_that_no_table_has_are_refused(names: list[str], said: str) -> None:
    columns = StructType([StructField(name, LongType()) for name in names])
    with pytest.raises(KeyrangeError, match=said):
        keyrange.job(OPTIONS, of_record, columns)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (VariantType(), "variant"),
        (NullType(), "void"),
        (DayTimeIntervalType(), "interval day to second"),
        (ArrayType(VarcharType(3)), "varchar"),
        (MapType(StringType(), StructType([StructField("a", NullType())])), "void"),
        (ArrayType(StringType("UTF8_LCASE")), "string collate"),
        (StructType([]), "struct"),
    ],
    ids=str,
)
def test_types_that_no_file_gets_are_refused(kind: DataType, named: str) -> None:
    columns = StructType([StructField("id", LongType()), StructField("v", kind)])
    with pytest.raises(KeyrangeError, match=f"column 'v' .* cannot write: '{named}"):
        keyrange.job(OPTIONS, of_record, columns)


def test_columns_that_may_not_be_null_are_refused() -> None:
    inner = StructType([StructField("x", LongType(), False)])
    for columns in (
        StructType([StructField("id", LongType()), StructField("v", LongType(), False)]),
        StructType([StructField("id", LongType()), StructField("v", inner)]),
    ):
        with pytest.raises(KeyrangeError, match="column 'v' of schema is not nullable"):
            keyrange.job(OPTIONS, of_record, columns)


def test_a_directory_of_other_files_is_no_place_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "_checkpoint").mkdir()
    assert no_place(str(tmp_path)) is None
    (tmp_path / "a.parquet").write_text("")
    with pytest.raises(KeyrangeError, match=r"a\.parquet is in it, which is no table's: VACUUM"):
        keyrange.job(OPTIONS, of_record, COLUMNS).into(tmp_path, "/lake/c", spark=SESSION)
    (tmp_path / "_delta_log").mkdir()
    assert no_place(str(tmp_path)) is None


def test_places_that_no_table_can_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = keyrange.job(OPTIONS, of_record, COLUMNS)
    with pytest.raises(KeyrangeError, match=r"table must be a Delta table or .* is a file"):
        job.into(str(tmp_path / "file" / "t"), "/lake/c", spark=SESSION)
    with pytest.raises(KeyrangeError, match="table must not be the same path as checkpoint"):
        job.into(f"{tmp_path}/t/", f"{tmp_path}/t", spark=SESSION)
    with pytest.raises(KeyrangeError, match="table must not be the same path as option 'commitTab"):
        keyrange.job(KEYED, of_record, COLUMNS).into("/lake/c/", "/lake/cp", spark=SESSION)


@pytest.mark.parametrize(
    ("table", "checkpoint", "more", "said"),
    [
        ("/lake/t", "/lake/t/cp", {}, "checkpoint must not be in the directory of table: VACUUM"),
        ("file:///lake//t/", "/lake/x/../t/cp", {}, "checkpoint must not be in the directory of t"),
        ("s3a://lake/t", "s3://lake/t/cp", {}, "checkpoint must not be in the directory of table"),
        (
            "/lake/t",
            "/lake/t/_delta_log/cp",
            {},
            "checkpoint must not be in the directory of table",
        ),
        ("/lake/t", "/lake/t/_cp", {}, ""),
        ("/lake/t", "/lake/t2", {}, ""),
        ("s3://lake/t", "s3://other/t/cp", {}, ""),
        ("/lake/t", "cp", {}, "checkpoint must be an absolute path"),
        ("t", "/lake/cp", {}, "absolute path or a URI; a topic of Kafka is written by into_topic"),
        ("/lake/a%20b", "/lake/cp", {}, "table must not have %20 in it: Delta takes it for one"),
        (r"/lake/a\b", "/lake/cp", {}, r"table must not have '\\' in it: Delta has no files of s"),
        ("/lake/t", "/lake/c\np", {}, r"checkpoint must not have '\n' in it"),
        ("s3://lake/a?b", "/lake/cp", {}, "table must not have '?' in it"),
        ("file:///lake/a#b", "/lake/cp", {}, "table must not have '#' in it"),
        ("/lake/100%", "/lake/cp", {}, ""),
        ("dbfs:/lake/t", "/lake/cp", {}, "table must be a path of Databricks' own files such as"),
        ("/lake/t", "/lake/cp", {"commitTable": "/lake/t/c"}, "'commitTable' must not be in the d"),
        ("/lake/c/t", "/lake/cp", {"commitTable": "/lake/c"}, "table must not be in the directory"),
        ("/lake/t", "/lake/cp", {"verdictDirectory": "/lake/cp/v"}, ""),
        ("/lake/v/1/t", "/lake/cp", {"verdictDirectory": "/lake/v"}, "keyrange would remove it"),
        ("/lake/t", "/lake/cp", {"stateDirectory": "/lake/t/s"}, "'stateDirectory' must not be in"),
    ],
)
def test_nothing_lies_where_another_one_removes_files(
    table: str, checkpoint: str, more: dict[str, str], said: str
) -> None:
    options = parse_options({**KEYED, "commitTable": "/lake/c", **more}, "stream")
    found: list[str] = []
    try:
        check_places([TableArguments("", table)], checkpoint, options)
    except KeyrangeError as failure:
        found = [str(failure)]
    assert bool(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"table": None}, "table must be a path or a URI, and is None"),
        ({"checkpoint": 7}, "checkpoint must be a path or a URI, and is 7"),
        ({"target_bytes": "256m"}, "target_bytes must be a whole number, and is '256m'"),
        ({"optimize_every": "5"}, "optimize_every must be a whole number, and is '5'"),
        ({"evolve": "yes"}, "evolve must be none or add, and is 'yes'"),
        ({"evolve": True}, "evolve must be none or add, and is True"),
    ],
    ids=str,
)
def test_arguments_of_another_type_are_named(named: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"table": "/lake/t", "checkpoint": "/lake/c", "spark": SESSION}
    with pytest.raises(KeyrangeError, match=said):
        keyrange.job(OPTIONS, of_record, COLUMNS).into(**given | named)


def test_paths_may_be_paths(tmp_path: Path) -> None:
    job = keyrange.job(OPTIONS, of_record, COLUMNS)
    with pytest.raises(KeyrangeError, match="table must not be the same path as checkpoint"):
        job.into(tmp_path / "t", tmp_path / "t", spark=SESSION)


def test_calls_that_would_aim_a_query_elsewhere_are_refused() -> None:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    class Spark:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def __getattr__(self, name: str) -> Any:
            return lambda *given, **named: self.calls.append((name, given, named)) or self

    spark: Any = Spark()
    writer = TableWriter(spark)
    writer.trigger(availableNow=True).queryName("q").outputMode("append").start()
    named = [("trigger", (), {"availableNow": True}), ("queryName", ("q",), {}), ("start", (), {})]
    assert spark.calls == named
    kept = {"trigger", "queryName", "outputMode", "start"}
    others = {name for name in dir(DataStreamWriter) if not name.startswith("_")} - kept
    assert {"format", "foreachBatch", "option", "toTable"} <= others
    for name in sorted(others):
        with pytest.raises(KeyrangeError, match=rf"UNSUPPORTED_WRITER_CALL\] {name} is no call"):
            getattr(writer, name)
    for call in (lambda: writer.start("/lake/t"), lambda: writer.outputMode("complete")):
        with pytest.raises(KeyrangeError, match="UNSUPPORTED_WRITER_CALL"):
            call()
    assert not hasattr(writer, "no_such_name")
    assert spark.calls == named


def test_a_table_may_be_partitioned_by_one_name(tmp_path: Path) -> None:
    job = keyrange.job(OPTIONS, of_record, COLUMNS)
    with pytest.raises(KeyrangeError, match="partition_by: rows have no column day"):
        job.into(str(tmp_path / "t"), "/lake/c", partition_by="day", spark=SESSION)
    job = keyrange.job(OPTIONS, of_record, StructType().add("offset", "long").add("day", "binary"))
    with pytest.raises(KeyrangeError, match="partition_by: column day is binary, and"):
        job.into(str(tmp_path / "t"), "/lake/c", partition_by="day", spark=SESSION)


TWO: dict[Any, Any] = {
    "a": StructType([*COLUMNS, StructField("gone", BooleanType())]),
    "b": COLUMNS,
}


@pytest.mark.parametrize(
    ("schemas", "into", "said"),
    [
        ({}, {}, "schema names no table"),
        ({"": COLUMNS}, {}, "schema names table '', and names are texts that are not empty"),
        ({7: COLUMNS}, {}, "schema names table 7, and names are texts"),
        (TWO, {"table": "/lake/t"}, "table must be a mapping with a path for each of 'a', 'b'"),
        (TWO, {"table": {"a": "/lake/a"}}, "table has no path for 'b'"),
        (TWO, {"table": {"a": "/l/a", "b": "/l/b", "c": "/l/c"}}, "table names table 'c', and the"),
        (TWO, {"keys": {"c": ["id"]}}, "keys names table 'c', and the job's schema names 'a', 'b'"),
        (TWO, {"table": {"a": "/lake/t/", "b": "file:///lake/x/../t"}}, "are the same path"),
        (TWO, {"table": {"a": "/lake/a", "b": 7}}, "table 'b' must be a path or a URI, and is 7"),
        (TWO, {"evolve": {"b": "yes"}}, "evolve must be none or add, and is 'yes'"),
        (TWO, {"keys": {"a": ["no"]}}, "keys: the output has no column 'no'"),
        (TWO, {"deletes": {"a": "gone"}}, "deletes needs keys"),
        (TWO["a"], {"table": {"a": "/lake/a"}}, "table names several tables, and the schema"),
        (TWO["a"], {"keys": {"a": ["id"]}}, "keys names several tables, and the schema of the job"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_several_tables_are_named_rightly(schemas: Any, into: dict[str, Any], said: str) -> None:
    given = {"table": {"a": "/lake/a", "b": "/lake/b"}, **into}
    if not isinstance(schemas, dict):
        given = {"table": "/lake/t", **into}
    with pytest.raises(KeyrangeError, match=said):
        keyrange.job(OPTIONS, of_record, schemas).into(checkpoint="/lake/c", spark=SESSION, **given)


def test_ids_that_initial_state_could_not_tell_apart_are_refused() -> None:
    """Both would be read from one column."""
    given = KEYED | {"valueFormat": "json", "valueSchema": "o struct<p: bigint>, o_p bigint"}
    once = keyrange.deduplicate(by=("o.p", "o_p"))
    told: dict[str, Any] = {"time": keyrange.EventTime()}
    assert keyrange.job(given, once, **told) is not None
    with pytest.raises(KeyrangeError, match="two columns 'o_p'"):
        keyrange.job(given, once, **told, initial_state="a path")
