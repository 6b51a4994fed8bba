"""A partitioned table takes files by its own columns, or as a job says, and others read it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from keyrange.errors import KeyrangeError
from keyrange.storage.data_files import DataFile, DataFileWriter
from keyrange.storage.model.partition_columns import PartitionColumn, partition_columns
from keyrange.storage.sink_table import SinkTable

ROWS = pa.schema([("at", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
TIME = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
DATE = pa.date32()
VALUES = ["a/b=c%", "é 世:#?'\"+&", "%2F", None, "x"]


def sink_at(table: Path, by: list[str] | None) -> SinkTable:
    sink = SinkTable(str(table), ROWS, {}, None if by is None else partition_columns(by))
    sink.prepare()
    return sink


def written(table: Path, by: tuple[PartitionColumn, ...], *names: str | None) -> list[DataFile]:
    rows = [{"at": at, "name": name, "ts": TIME} for at, name in enumerate(names)]
    writer = DataFileWriter(str(table), ROWS, by)
    writer.add(pa.RecordBatch.from_pylist(rows, ROWS))
    return writer.finish()


def refused(text: str) -> Any:
    return pytest.raises(KeyrangeError, match=rf"\[SINK_(UNSUITABLE|TYPES_DIFFER)\].*{text}")


def made(table: Path, generated: dict[str, str], kind: pa.DataType = DATE) -> None:
    """A table with a generated column of each expression, by which it is partitioned."""
    fields = [
        pa.field(name, kind, metadata={"delta.generationExpression": text})
        for name, text in generated.items()
    ]
    DeltaTable.create(
        table,
        pa.schema([*ROWS, *fields]),
        partition_by=list(generated),
        raise_if_key_not_exists=False,
    )


def test_a_new_table_is_partitioned_as_the_job_says(tmp_path: Path) -> None:
    by = ["name", "day(ts)", "hour(ts)"]
    sink = sink_at(tmp_path, by)
    assert sink.partition_by == partition_columns(by)
    sink.append(written(tmp_path, sink.partition_by, *VALUES), "app", 0, check_files=True)
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["name", "day", "hour"]
    found = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["at"])
    assert found == [
        {"at": at, "name": name, "ts": TIME, "day": date(2026, 1, 31), "hour": 23}
        for at, name in enumerate(VALUES)
    ]
    for at, name in enumerate(VALUES):
        if name is not None:
            rows = table.to_pyarrow_table(filters=[("name", "=", name)])
            assert rows.column("at").to_pylist() == [at]
    # Nothing is left behind, and nothing that the log names is taken for left behind.
    assert table.vacuum(0, enforce_retention_duration=False, full=True) == []


def test_a_partitioned_table_is_appended_to(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, ROWS, partition_by=["name"])
    sink = sink_at(tmp_path, None)
    assert sink.partition_by == (PartitionColumn("name"),)
    sink.append(written(tmp_path, sink.partition_by, "a", "b", "a"), "app", 0, check_files=True)
    sink_at(tmp_path, ["name"])
    added = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert sorted((row["partition.name"], row["num_records"]) for row in added) == [
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    ("own", "by", "text"),
    [
        (["name"], ["at"], "partitioned by name and would be by at"),
        (["name"], [], "partitioned by name and would be by nothing"),
        ([], ["name"], "partitioned by nothing and would be by name"),
        (["name"], ["name", "day(ts)"], r"by name and would be by name, date\(ts\) as day"),
    ],
)
def test_table_and_job_agree(tmp_path: Path, own: list[str], by: list[str], text: str) -> None:
    DeltaTable.create(tmp_path, ROWS, partition_by=own or None)
    with refused(text):
        sink_at(tmp_path, by)


@pytest.mark.parametrize("by", [None, ["date(ts) as day"]])
def test_a_generated_date_is_computed(tmp_path: Path, by: list[str] | None) -> None:
    made(tmp_path, {"day": "CAST(ts AS DATE)"})
    sink = sink_at(tmp_path, by)
    sink.append(written(tmp_path, sink.partition_by, "a"), "app", 0, check_files=False)
    [row] = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert row == {"at": 0, "name": "a", "ts": TIME, "day": date(2026, 1, 31)}


@pytest.mark.parametrize(
    ("text", "by", "why"),
    [
        ("DATE_ADD(ts, 1)", None, "day is generated as DATE_ADD"),
        ("DATE_ADD(ts, 1)", ["date(ts) as day"], "day is generated as DATE_ADD"),
        ("CAST(name AS DATE)", None, "name is no timestamp"),
        ("CAST(other AS DATE)", None, "other is no timestamp"),
        ("CAST(other AS DATE)", ["day(ts)"], "generated as .*other.* would be date"),
    ],
)
def test_other_expressions_are_refused(
    tmp_path: Path, text: str, by: list[str] | None, why: str
) -> None:
    made(tmp_path, {"day": text})
    with refused(why):
        sink_at(tmp_path, by)


def test_an_hour_of_another_type_is_refused(tmp_path: Path) -> None:
    made(tmp_path, {"hour": "HOUR(ts)"}, pa.int64())
    with refused("column hour is BIGINT and would be INT"):
        sink_at(tmp_path, None)


def test_files_of_a_table_that_was_made_anew(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, None)
    with refused("partitioned by nothing, and file .* by name"):
        sink.append(written(tmp_path, partition_columns(["name"]), "a"), "app", 0, check_files=True)
    assert DeltaTable(tmp_path).version() == 0
