"""Files that a user's table takes as they are: once for each batch, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from keyrange.errors import KeyrangeError
from keyrange.storage.data_files import DataFile, DataFileWriter, FileSettings
from keyrange.storage.model.writer_rules import OWN, SPARK
from keyrange.storage.sink_history import note_of
from keyrange.storage.sink_table import SinkTable

SCHEMA = pa.schema([pa.field("at", pa.int64()), pa.field("text", pa.string())])


def written(table: Path, rows: pa.RecordBatch) -> list[DataFile]:
    writer = DataFileWriter(str(table), rows.schema)
    writer.add(rows)
    return writer.finish()


def rows_of(*at: int) -> pa.RecordBatch:
    return pa.record_batch({"at": list(at), "text": [f"t{each}" for each in at]}, schema=SCHEMA)


def held(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table().column("at").to_pylist())


def sink_at(table: Path, schema: pa.Schema = SCHEMA) -> SinkTable:
    sink = SinkTable(str(table), schema, {})
    sink.prepare()
    return sink


def refused(condition: str, text: str) -> Any:
    return pytest.raises(KeyrangeError, match=rf"\[{condition}\].*{text}")


def test_a_batch_is_taken_once_by_whoever_comes(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = sink_at(table)
    first = written(table, rows_of(1, 2))
    sink.append(first, "app", 0, check_files=False)
    sink.append(first, "app", 0, check_files=True)
    sink_at(table).append(written(table, rows_of(3)), "app", 0, check_files=True)
    assert held(table) == [1, 2]
    sink.append(written(table, rows_of(4)), "app", 1, check_files=False)
    sink.append(written(table, rows_of(5)), "other", 0, check_files=False)
    assert held(table) == [1, 2, 4, 5]
    assert DeltaTable(table).transaction_version("app") == 1
    # Spark's rows by the same transaction are the same batch.
    assert DeltaTable(table).version() == 3


def test_a_batch_that_was_just_made_is_no_old_one_of_its_number(tmp_path: Path) -> None:
    """A checkpoint that lost its last batch makes it anew with other offsets, and by then others
    may have written more than is looked at of the log."""
    sink, note = sink_at(tmp_path), note_of("app", 0, ["t"], "plan")
    first = written(tmp_path, rows_of(1))
    sink.append(first, "app", 0, check_files=False, note=note)
    for batch_id in range(20):
        sink.append(written(tmp_path, rows_of(2)), "other", batch_id, check_files=False)
    sink.append(first, "app", 0, check_files=True, note=note)
    with refused("CHECKPOINT_BEHIND", "has batch 0 of this query, .* batch 0 with other offsets"):
        more = written(tmp_path, rows_of(1, 3))
        sink.append(more, "app", 0, check_files=False, note=note_of("app", 0, ["t"], "other"))
    assert held(tmp_path) == [1, *[2] * 20]


def test_a_batch_by_another_verdict_is_not_the_batch_that_is_there(tmp_path: Path) -> None:
    """What failed by the one may be done by the other, and its rows would be in no table."""
    sink, notes = sink_at(tmp_path), [note_of("app", 0, ["t"], "plan", each) for each in "ab"]
    first = written(tmp_path, rows_of(1))
    for _ in range(2):
        sink.append(first, "app", 0, check_files=True, note=notes[0])
    with refused("UNCOMMITTED_OUTPUT", "by a verdict that is not there any more"):
        sink.append(written(tmp_path, rows_of(1, 2)), "app", 0, check_files=False, note=notes[1])
    assert held(tmp_path) == [1]


def test_a_batch_without_output_writes_nothing(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = sink_at(table)
    assert DataFileWriter(str(table), SCHEMA).finish() == []
    sink.append([], "app", 0, check_files=False)
    assert DeltaTable(table).version() == 0
    assert [each.name for each in table.iterdir()] == ["_delta_log"]


def test_a_commit_that_landed_although_it_failed_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    sink = sink_at(table)
    whole = SinkTable._commit

    def landing(self: SinkTable, *arguments: Any) -> None:
        whole(self, *arguments)
        raise OSError("no answer")

    monkeypatch.setattr(SinkTable, "_commit", landing)
    sink.append(written(table, rows_of(1)), "app", 0, check_files=False)
    assert held(table) == [1]
    monkeypatch.setattr(SinkTable, "_commit", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with refused("SINK_UNWRITABLE", "full"):
        sink.append(written(table, rows_of(2)), "app", 1, check_files=False)
    assert held(table) == [1]


@pytest.mark.parametrize("change", ["column", "property"])
def test_who_changes_the_table_between_look_and_write_does_not_end_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table, whole, changed = tmp_path / "table", SinkTable._commit, list[str]()
    sink = sink_at(table)
    sink.prepare()
    files = written(table, rows_of(1))

    def late(*given: Any) -> Any:
        if not changed:
            changed.append(change)
            alter = DeltaTable(table).alter
            if change == "column":
                alter.add_columns(
                    [deltalake.Field("more", deltalake.schema.PrimitiveType("string"))]
                )
            else:
                alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        return whole(*given)

    monkeypatch.setattr(SinkTable, "_commit", late)
    sink.append(files, "app", 0, check_files=False)
    assert held(table) == [1]
    assert changed == [change]


def test_of_two_drivers_one_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has the table open as it was before, and finds out when it commits."""
    table = tmp_path / "t"
    sink, other = sink_at(table), sink_at(table)
    whole, rivals = SinkTable._commit, [written(table, rows_of(7))]

    def late(self: SinkTable, *arguments: Any) -> None:
        if rivals:
            other.append(rivals.pop(), "app", 0, check_files=False)
        whole(self, *arguments)

    monkeypatch.setattr(SinkTable, "_commit", late)
    sink.append(written(table, rows_of(1)), "app", 0, check_files=False)
    assert held(table) == [7]


def test_files_that_are_gone_before_the_log_names_them(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = sink_at(table)
    files = written(table, rows_of(1))
    (table / files[0].name).unlink()
    with refused("VERDICT_DAMAGED", "is not there as it was written"):
        sink.append(files, "app", 0, check_files=True)
    assert DeltaTable(table).version() == 0


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ({"schema": pa.schema([SCHEMA.field("at")])}, "no column text"),
        (
            {"schema": pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])},
            "must takes no nulls",
        ),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "other names"),
        (
            {"configuration": {"delta.compatibility.symlinkFormatManifest.enabled": "true"}},
            "by manifests",
        ),
        (
            {"configuration": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
            "forget which batches",
        ),
        (
            {
                "schema": pa.schema([*SCHEMA, pa.field("day", pa.date32())]),
                "partition_by": ["at", "day"],
            },
            "partitioned by at, day: .*no column day",
        ),
        ({"partition_by": ["at", "text"]}, "names all columns"),
        (
            {
                "schema": pa.schema(
                    [
                        SCHEMA.field("at").with_metadata({"delta.generationExpression": "1"}),
                        SCHEMA.field("text"),
                    ]
                )
            },
            "or another rule",
        ),
    ],
)
def test_tables_that_files_would_not_fit(tmp_path: Path, made: dict[str, Any], text: str) -> None:
    settings = {"schema": SCHEMA, "raise_if_key_not_exists": False, **made}
    DeltaTable.create(tmp_path / "t", **settings)
    with refused("SINK_UNSUITABLE", text):
        sink_at(tmp_path / "t")


def test_a_column_of_another_type_needs_another_table(tmp_path: Path) -> None:
    settings = {"schema": pa.schema([("at", pa.int32()), ("text", pa.string())])}
    DeltaTable.create(tmp_path / "t", **settings)
    for evolves in (False, True):
        sink = SinkTable(str(tmp_path / "t"), SCHEMA, {}, evolves=evolves)
        with refused("SINK_TYPES_DIFFER", "at is INT and would be BIGINT") as raised:
            sink.prepare()
        assert "another table, with a new checkpoint" in str(raised.value)
        assert "another commitTable" in str(raised.value)


def test_constraints_are_not_passed_by(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = sink_at(table)
    DeltaTable(table).alter.add_constraint({"positive": "at > 0"})
    with refused("SINK_UNSUITABLE", "positive"):
        sink.append(written(table, rows_of(-1)), "app", 0, check_files=False)


def test_who_writes_a_table_that_asks_for_more(tmp_path: Path) -> None:
    """Where files are not appended to it: another writer, if there is one that keeps to it."""
    table = tmp_path / "t"
    sink = sink_at(table)
    assert (sink.by, sink.why) == (OWN, "")
    DeltaTable(table).alter.add_constraint({"positive": "at > 0"})
    other = SinkTable(str(table), SCHEMA, {})
    other.prepare(otherwise=SPARK)
    assert other.by == SPARK
    assert other.why == "rows would not be held to delta.constraints.positive"
    with refused("SINK_UNSUITABLE", "positive: a query that is started in a session with Delta"):
        sink_at(table)
    # Files that lie below the table are not appended for all that.
    with refused("SINK_UNSUITABLE", "positive"):
        other.append(written(table, rows_of(1)), "app", 0, check_files=False)
    lacks = SinkTable(str(table), SCHEMA.append(pa.field("more", pa.int64())), {})
    with refused("SINK_UNSUITABLE", "no column more"):
        lacks.prepare(otherwise=SPARK)


def test_a_log_with_a_clock_of_its_own(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink_at(table)
    first = table / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    found = {name: each for line in lines for name, each in line.items()}
    found["protocol"] |= {"minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
    found["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
    ahead = 1 << 42
    found["commitInfo"]["inCommitTimestamp"] = ahead
    names = ("commitInfo", "protocol", "metaData")
    first.write_text("\n".join(json.dumps({name: found[name]}) for name in names))
    sink = sink_at(table)
    for at in (0, 1):
        sink.append(written(table, rows_of(at)), "app", at, check_files=False)
    logs = sorted((table / "_delta_log").glob("*.json"))
    told = [json.loads(each.read_text().splitlines()[0])["commitInfo"] for each in logs]
    assert [each["inCommitTimestamp"] for each in told] == [ahead, ahead + 1, ahead + 2]
    assert held(table) == [0, 1]


def test_a_table_may_have_more_columns_in_another_order(tmp_path: Path) -> None:
    more = pa.schema([SCHEMA.field("text"), pa.field("more", pa.date32()), SCHEMA.field("at")])
    DeltaTable.create(tmp_path / "t", more)
    files = written(tmp_path / "t", rows_of(1))
    sink_at(tmp_path / "t").append(files, "app", 0, check_files=True)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == [
        {"text": "t1", "more": None, "at": 1}
    ]


def test_a_place_that_takes_no_files(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("no directory")
    with refused("SINK_UNWRITABLE", ""):
        sink_at(tmp_path / "t")
    with refused("SINK_UNWRITABLE", "cannot be written"):
        written(tmp_path / "t", rows_of(1))


WIDE = pa.schema(
    [
        pa.field("whole", pa.int32()),
        pa.field("text", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("plain", pa.timestamp("us")),
        pa.field("number", pa.float64()),
        pa.field("data", pa.binary()),
        pa.field("list", pa.list_(pa.int64())),
        pa.field("flag", pa.bool_()),
    ]
)
SOME = {
    "whole": st.integers(-(2**31), 2**31 - 1),
    "text": st.text(max_size=40),
    "day": st.integers(-(2**31), 2**31 - 1),
    "time": st.integers(-(2**62), 2**62),
    "plain": st.integers(-(10**15), 10**15),
    "number": st.floats(),
    "data": st.binary(max_size=3),
    "list": st.lists(st.integers(0, 3), max_size=2),
    "flag": st.booleans(),
}
ROWS = st.fixed_dictionaries({name: st.none() | some for name, some in SOME.items()})


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array([row[field.name] for row in rows], _number(field.type)).cast(field.type)
        for field in WIDE
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=WIDE)


def _number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


@settings(deadline=None)
@given(groups=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=3))
def test_statistics_hold_for_every_row(
    groups: list[list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = tmp_path_factory.mktemp("files")
    writer = DataFileWriter(str(table), WIDE, settings=FileSettings(group_bytes=0))
    for rows in groups:
        writer.add(batch_of(rows))
    [file] = writer.finish()
    said, rows = json.loads(file.statistics), [row for group in groups for row in group]
    assert said["numRecords"] == file.rows == len(rows)
    assert said["nullCount"] == {
        name: sum(row[name] is None for row in rows) for name in SOME if name != "list"
    }
    assert said["minValues"].keys() == said["maxValues"].keys()
    assert said["minValues"].keys() <= {"whole", "text", "day", "time", "plain"}
    for name, low in said["minValues"].items():
        high, values = said["maxValues"][name], [row[name] for row in rows]
        values = [value for value in values if value is not None]
        if name in ("time", "plain"):
            unit = pa.timestamp("us", "UTC") if low.endswith("Z") else pa.timestamp("us")
            bounds = pa.array([low, high]).cast(unit).cast(pa.int64()).to_pylist()
            assert bounds[0] <= min(values) < bounds[0] + 1000
            assert bounds[1] - 1000 < max(values) <= bounds[1]
        elif name == "day":
            bounds = pa.array([low, high]).cast(pa.date32()).cast(pa.int32()).to_pylist()
            assert bounds == [min(values), max(values)]
        else:
            order = (lambda value: value.encode()) if name == "text" else None
            assert (low, high) == (min(values, key=order), max(values, key=order))
    if any(row["whole"] is not None for row in rows):
        assert "whole" in said["minValues"]


def test_delta_takes_the_statistics(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, WIDE)
    row: dict[str, Any] = dict.fromkeys(SOME) | {"whole": 5, "time": 1_500, "text": "x"}
    sink.append(written(tmp_path, batch_of([row])), "app", 0, check_files=False)
    [said] = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True)).to_pylist()
    assert (said["min.whole"], said["max.whole"], said["null_count.day"]) == (5, 5, 1)
    assert said["min.time"].microsecond == 1000
    assert said["max.time"].microsecond == 2000
    found = deltalake.DeltaTable(tmp_path).to_pyarrow_table(filters=[("whole", "=", 5)])
    assert found.num_rows == 1


@pytest.mark.parametrize("order", [("a.b", "a"), ("a", "a.b")])
def test_a_column_with_a_dot_is_not_the_field_of_a_struct(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """Parquet gives both one path, and a reader would pass over files that have the rows."""
    kinds = {"a.b": pa.int64(), "a": pa.struct([("b", pa.int64())])}
    schema = pa.schema([(name, kinds[name]) for name in order])
    sink = sink_at(tmp_path, schema)
    rows = pa.RecordBatch.from_pylist([{"a.b": 5, "a": {"b": 900}}], schema)
    sink.append(written(tmp_path, rows), "app", 0, check_files=False)
    table = DeltaTable(tmp_path).to_pyarrow_dataset()
    assert table.count_rows(filter=pc.field("a.b") == 5) == 1
    assert table.count_rows(filter=pc.field("a", "b") == 900) == 1
    assert table.count_rows(filter=pc.field("a.b") == 6) == 0
