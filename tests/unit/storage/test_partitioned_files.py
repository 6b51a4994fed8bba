"""Files of a partitioned table: which rows are in which, and what the log is told of them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage.data_files import DataFile, DataFileWriter, FileSettings
from keyrange.storage.delta_partitions import table_schema
from keyrange.storage.directory import Directory
from keyrange.storage.model.partition_columns import (
    PartitionColumn,
    Unit,
    generated_column,
    partition_columns,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(
    table: Path, rows: list[pa.RecordBatch], by: list[str], how: FileSettings | None = None
) -> list[DataFile]:
    columns = partition_columns(by)
    writer = DataFileWriter(str(table), rows[0].schema, columns, how or FileSettings())
    for each in rows:
        writer.add(each)
    return writer.finish()


VALUES = [
    (pa.string(), "a/b=c%", "a/b=c%", "a%2Fb%3Dc%25"),
    (pa.string(), "é 世:#?", "é 世:#?", "%C3%A9%20%E4%B8%96%3A%23%3F"),
    (pa.string(), "..", "..", ".."),
    (pa.string(), None, None, "__HIVE_DEFAULT_PARTITION__"),
    (pa.string(), "", None, "__HIVE_DEFAULT_PARTITION__"),
    (pa.int32(), -7, "-7", "-7"),
    (pa.int64(), None, None, "__HIVE_DEFAULT_PARTITION__"),
    (pa.bool_(), True, "true", "true"),
    (pa.bool_(), False, "false", "false"),
    (pa.date32(), date(1969, 12, 31), "1969-12-31", "1969-12-31"),
    (
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 31, 7, 8, 9, 120000, UTC),
        "2026-01-31T07:08:09.120000Z",
        "2026-01-31T07%3A08%3A09.120000Z",
    ),
    (
        pa.timestamp("us"),
        datetime(2026, 1, 31, 7, 8, 9),
        "2026-01-31 07:08:09.000000",
        "2026-01-31%2007%3A08%3A09.000000",
    ),
    # Years that Python has no date for, as Spark writes and reads them.
    (pa.date32(), 20_716_000, "+58688-06-25", "%2B58688-06-25"),
    (pa.date32(), -800_000, "-0221-09-04", "-0221-09-04"),
    (
        pa.timestamp("us", "UTC"),
        1_789_862_400_000_000_000,
        "+58688-06-25T00:00:00.000000Z",
        "%2B58688-06-25T00%3A00%3A00.000000Z",
    ),
    (pa.timestamp("ns"), 1_000, "1970-01-01 00:00:00.000001", "1970-01-01%2000%3A00%3A00.000001"),
    # As Java writes them.
    (pa.float64(), 1.5, "1.5", "1.5"),
    (pa.float32(), 0.1, "0.1", "0.1"),
    (pa.float64(), 100, "100.0", "100.0"),
    (pa.float64(), 1e300, "1.0E300", "1.0E300"),
    (pa.float64(), 1.25e-4, "1.25E-4", "1.25E-4"),
    (pa.float64(), -0.001, "-0.001", "-0.001"),
    (pa.float32(), 1e7, "1.0E7", "1.0E7"),
    (pa.float64(), 9999999.5, "9999999.5", "9999999.5"),
    (pa.float64(), -0.0, "-0.0", "-0.0"),
    (pa.float64(), float("nan"), "NaN", "NaN"),
    (pa.float64(), float("-inf"), "-Infinity", "-Infinity"),
    (pa.decimal128(10, 7), Decimal("0.0000000"), "0.0000000", "0.0000000"),
]


@pytest.mark.parametrize(("kind", "value", "text", "segment"), VALUES)
def test_what_the_log_and_the_directory_call_a_value(
    tmp_path: Path, kind: pa.DataType, value: Any, text: str | None, segment: str
) -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"of": value, "at": 1}], pa.schema([("of", kind), ("at", pa.int64())])
    )
    [file] = written(tmp_path, [rows], ["of"])
    assert file.partition_values == {"of": text}
    assert file.name.startswith(f"of={segment}/part-")
    # The column is in the log only, and no statistics are kept of it.
    assert pq.read_schema(tmp_path / file.name).names == ["at"]
    said = json.loads(file.statistics)
    assert (said["numRecords"], said["nullCount"], said["minValues"]) == (1, {"at": 0}, {"at": 1})


@pytest.mark.parametrize("value", ["\u00e9" * 100, "a" * 300, "a" * 127 + "\u00e9", "%" * 60])
def test_a_value_that_is_too_long_for_a_directory_is_whole_in_the_log(
    tmp_path: Path, value: str
) -> None:
    rows = pa.RecordBatch.from_pylist([{"of": each, "at": 1} for each in (value, value + "b")])
    first, second = written(tmp_path, [rows], ["of"])
    assert [first.partition_values, second.partition_values] == [{"of": value}, {"of": value + "b"}]
    directories = {each.name.rpartition("/")[0] for each in (first, second)}
    assert len(directories) == 2
    for each in directories:
        assert each.startswith(f"of={quote(value[:15], safe='')}")
        assert len(each) <= 128
        assert re.fullmatch(r"of=(%[0-9A-F]{2}|a)*~[0-9a-f]{16}", each)


ROW = st.fixed_dictionaries(
    {
        "name": st.none() | st.sampled_from(["", "a", "a/b", "é"]),
        "flag": st.none() | st.booleans(),
        "time": st.none() | st.integers(-(10**12), 10**12),
        "at": st.integers(0, 9),
    }
)
ROWS = pa.schema(
    [
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("ms", "Europe/Berlin")),
        ("at", pa.int64()),
    ]
)


@settings(deadline=None)
@given(
    batches=st.lists(st.lists(ROW, max_size=8), min_size=1, max_size=4),
    open_max=st.integers(1, 5),
    group_bytes=st.sampled_from([0, 200, 1 << 20]),
    waiting_bytes=st.sampled_from([0, 100, 1 << 20]),
    target_bytes=st.sampled_from([0, 1 << 20]),
)
def test_every_row_is_in_a_file_of_its_partition(
    batches: list[list[dict[str, Any]]],
    tmp_path_factory: pytest.TempPathFactory,
    **how: int,
) -> None:
    table = tmp_path_factory.mktemp("files")
    rows = [pa.RecordBatch.from_pylist(each, ROWS) for each in batches]
    files = written(table, rows, ["name", "day(time)", "hour(time)", "flag"], FileSettings(**how))
    expected: dict[tuple[Any, ...], list[tuple[Any, Any]]] = defaultdict(list)
    for row in (row for each in batches for row in each):
        time = None if row["time"] is None else EPOCH + timedelta(milliseconds=row["time"])
        key = (
            row["name"] or None,
            time and time.date().isoformat(),
            time and str(time.hour),
            None if row["flag"] is None else str(row["flag"]).lower(),
        )
        expected[key].append((row["time"], row["at"]))
    found: dict[tuple[Any, ...], list[tuple[Any, Any]]] = defaultdict(list)
    for file in files:
        held = pq.ParquetFile(table / file.name).read()
        assert held.num_rows == file.rows == json.loads(file.statistics)["numRecords"]
        assert (table / file.name).stat().st_size == file.size_bytes
        times = held.column("time").cast(pa.int64()).to_pylist()
        found[tuple(file.partition_values.values())] += zip(
            times, held.column("at").to_pylist(), strict=True
        )
    # In their order too, in files one behind another.
    assert found == expected


def numbered(*parts: int) -> pa.RecordBatch:
    return pa.record_batch({"part": list(parts), "text": ["x" * 100] * len(parts)})


def test_the_file_that_was_written_to_longest_ago_makes_room(tmp_path: Path) -> None:
    rows = [numbered(1), numbered(2), numbered(1), numbered(3), numbered(1), numbered(2)]
    files = written(tmp_path, rows, ["part"], FileSettings(open_max=2, group_bytes=0))
    assert [(file.partition_values["part"], file.rows) for file in files] == [
        ("2", 1),
        ("3", 1),
        ("1", 3),
        ("2", 1),
    ]


def test_more_partitions_than_open_files(tmp_path: Path) -> None:
    """Rows wait for the rest of their partition, although its turn comes again and again."""
    files = written(tmp_path, [numbered(*range(20))] * 5, ["part"], FileSettings(open_max=2))
    assert [file.rows for file in files] == [5] * 20
    assert len({file.partition_values["part"] for file in files}) == 20


def test_no_more_files_are_open_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[pa.NativeFile] = []
    most = 0
    whole = Directory.create

    def create(self: Directory, path: str) -> pa.NativeFile:
        nonlocal most
        streams.append(whole(self, path))
        most = max(most, sum(not each.closed for each in streams))
        return streams[-1]

    monkeypatch.setattr(Directory, "create", create)
    how = FileSettings(open_max=3, waiting_bytes=20_000)
    rows = [numbered(*range(20))] * 5
    files = written(tmp_path, rows, ["part"], how)
    assert (most, sum(each.rows for each in files)) == (3, 100)
    assert all(each.closed for each in streams)


def test_rows_that_wait_are_bounded_in_all_files_together(tmp_path: Path) -> None:
    how = FileSettings(waiting_bytes=10_000)
    writer = DataFileWriter(str(tmp_path), numbered(1).schema, partition_columns(["part"]), how)
    for at in range(50):
        writer.add(numbered(*[at % 7] * (1 + at % 3)))
        waiting = sum(each.waiting_bytes for each in writer._parts.values())
        assert waiting == writer._waiting_bytes <= 10_000
    assert sum(each.rows for each in writer.finish()) == sum(1 + at % 3 for at in range(50))


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_a_file_is_closed_at_its_size(tmp_path: Path, codec: str) -> None:
    how = FileSettings(codec=codec, target_bytes=100, group_bytes=0)
    rows = pa.record_batch({"at": list(range(40))})
    files = written(tmp_path, [rows] * 3, [], how)
    assert [each.rows for each in files] == [40, 40, 40]
    assert all(each.name.endswith(f".{codec}.parquet") and "/" not in each.name for each in files)
    metadata = pq.read_metadata(tmp_path / files[0].name)
    assert metadata.row_group(0).column(0).compression.lower() == codec


def test_values_that_repeat_are_written_once(tmp_path: Path) -> None:
    rows = pa.record_batch(
        {
            "topic": ["t"] * 80,
            "offset": list(range(80)),
            "none": pa.nulls(80, pa.int32()),
            "list": [[at] for at in range(80)],
            "struct": [{"a.b": at, "c": {"d": at}} for at in range(80)],
            "map": pa.array([[("k", at)] for at in range(80)], pa.map_(pa.string(), pa.int64())),
        }
    )
    [file] = written(tmp_path, [rows], [])
    group = pq.read_metadata(tmp_path / file.name).row_group(0)
    columns = [group.column(at) for at in range(group.num_columns)]
    by_dictionary = {each.path_in_schema for each in columns if each.has_dictionary_page}
    assert by_dictionary == {each.path_in_schema for each in columns} - {"offset"}
    assert pq.read_table(tmp_path / file.name).equals(pa.table(rows))


def test_what_a_partition_column_may_be() -> None:
    assert partition_columns(
        ["topic", "`a b`", "day(timestamp)", "HOUR( ts )", "date(`t s`) AS at"]
    ) == (
        PartitionColumn("topic"),
        PartitionColumn("a b"),
        PartitionColumn("day", "timestamp", Unit.DATE),
        PartitionColumn("hour", "ts", Unit.HOUR),
        PartitionColumn("at", "t s", Unit.DATE),
    )
    for text in ("minute(timestamp)", "day()", "day(a, b)", "a b", "", "day(timestamp) at"):
        with pytest.raises(KeyrangeError, match="INVALID_OPTIONS"):
            partition_columns([text])
    with pytest.raises(KeyrangeError, match="twice"):
        partition_columns(["day", "day(timestamp)"])


@pytest.mark.parametrize(
    ("expression", "unit"),
    [
        ("CAST(ts AS DATE)", Unit.DATE),
        (" cast( `ts` as date ) ", Unit.DATE),
        ("to_date(ts)", Unit.DATE),
        ("DATE(ts)", Unit.DATE),
        ("HOUR(ts)", Unit.HOUR),
        # The day of the month in SQL.
        ("DAY(ts)", None),
        ("CAST(ts AS TIMESTAMP)", None),
        ("CAST(ts AS DATE) + 1", None),
        ("DATE_FORMAT(ts, 'yyyy-MM')", None),
    ],
)
def test_expressions_of_generated_columns(expression: str, unit: Unit | None) -> None:
    expected = unit and PartitionColumn("of", "ts", unit)
    assert generated_column("of", expression) == expected


def test_columns_of_the_table() -> None:
    rows = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("data", pa.binary())])
    columns = partition_columns(["day(timestamp)", "hour(timestamp)"])
    assert table_schema(rows, columns) == rows.append(pa.field("day", pa.date32())).append(
        pa.field("hour", pa.int32())
    )
    for by in (["none"], ["data"], ["day(data)"], ["day(none)"], ["date(timestamp) as data"]):
        with pytest.raises(KeyrangeError, match="partition_by"):
            table_schema(rows, partition_columns(by))
    with pytest.raises(KeyrangeError, match="names all columns"):
        table_schema(pa.schema([("a", pa.int64())]), partition_columns(["a"]))
