"""What the files of a verdict say, as one process reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits import verdict_files
from keyrange.individual_commits.model.verdict_manifest import Manifest, planned
from keyrange.individual_commits.reported_outcomes import REPORTED, reported_in
from keyrange.individual_commits.verdict_store import VerdictStore
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition
from keyrange.storage.data_files import PartFile
from keyrange.work.model.outcome import Cause, RecordOutcome
from keyrange.work.outcome_rows import (
    member_rows,
    other_rows,
    output_rows,
)

PLACE = TopicPartition("t", 0)
OUTPUT = pa.schema([pa.field("text", pa.string())])


def output(count: int, placed: bool = False) -> pa.RecordBatch:
    place = None
    if placed:
        place = {
            "topic": pa.array(["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    rows = pa.RecordBatch.from_arrays([pa.array(["x"] * count)], schema=OUTPUT)
    return output_rows(rows, place)


def record(offset: int, cause: Cause) -> pa.RecordBatch:
    row = {
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "key_hash": offset + 7,
        "cause": int(cause),
    }
    return other_rows(OUTPUT, member_rows("outcome", [row]))


def mentioned() -> pa.RecordBatch:
    row = {"topic": "t", "partition": 0, "block": 6, "bits": b"x"}
    return other_rows(OUTPUT, member_rows("mentioned", [row]))


def file_of(*batches: pa.RecordBatch) -> bytes:
    """A file with a row group for each batch."""
    data = io.BytesIO()
    with pq.ParquetWriter(data, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return data.getvalue()


def rows_in(data: bytes) -> verdict_files.Found:
    return verdict_files.rows_in(pa.BufferReader(data), REPORTED)


@pytest.mark.parametrize("placed", [False, True])
def test_rows_that_are_output_are_passed_over(placed: bool) -> None:
    back = member_rows("handed_back", [(*PLACE, 5, 8, 90)])
    data = file_of(
        output(5, placed),
        record(3, Cause.REJECTED),
        output(5, placed),
        record(4, Cause.HELD_BACK),
        mentioned(),
        other_rows(OUTPUT, back),
        other_rows(OUTPUT, member_rows("done", [(*PLACE, 10)])),
    )
    told = reported_in(rows_in(data))
    assert told.not_done == {
        PLACE: {3: RecordOutcome(3, 10, Cause.REJECTED), 4: RecordOutcome(4, 11, Cause.HELD_BACK)}
    }
    assert told.handed_back == {PLACE: [(KeyRange(5, 9), 90)]}
    assert told.done == {PLACE: 10}


def test_a_key_range_in_two_tasks_is_out_of_order() -> None:
    """Each finds its own records in order, and a record that fails holds back nothing elsewhere."""

    def said(*spans: tuple[int, int], partition: int = 0) -> bytes:
        rows = [("t", partition, first, last) for first, last in spans]
        return file_of(other_rows(OUTPUT, member_rows("worked_on", rows)))

    def of(*tasks: bytes) -> verdict_files.Found:
        each = [rows_in(task) for task in tasks]
        return {name: [row for found in each for row in found[name]] for name in REPORTED}

    reported_in(of(said((0, 4), (5, 9)), said((10, 12)), said((0, 9), partition=1)))
    with pytest.raises(KeyrangeError, match=r"\[RECORDS_OUT_OF_ORDER\].*t-0"):
        reported_in(of(said((0, 4), (5, 9)), said((5, 9))))


def test_a_group_of_nothing_but_output_is_not_read() -> None:
    metadata = pq.ParquetFile(
        pa.BufferReader(file_of(output(5), record(3, Cause.REJECTED), output(2)))
    ).metadata
    assert list(verdict_files._groups_with(metadata, "_keyrange.outcome.topic")) == [1]


def test_a_file_of_output_alone_says_nothing() -> None:
    assert rows_in(file_of(output(5))) == {member: [] for member in REPORTED}


def test_records_are_looked_up_by_their_offsets() -> None:
    data = file_of(record(3, Cause.REJECTED), output(2), record(4, Cause.REJECTED))
    wanted = {"outcome": ("topic", "offset", "record")}
    assert verdict_files.rows_in(pa.BufferReader(data), wanted, {4, 9}) == {
        "outcome": [("t", 4, None)]
    }


def test_all_parts_are_read_and_a_broken_one_is_damage(tmp_path: Path) -> None:
    store = VerdictStore(str(tmp_path), "s")
    attempt, path = store.new_attempt(3)
    Path(path).mkdir(parents=True)
    for number in range(3):
        done = other_rows(OUTPUT, member_rows("done", [(*PLACE, 10**number)]))
        (Path(path) / f"part-{number}").write_bytes(file_of(done))
    end = Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))
    made = Manifest(3, attempt, store.files_of(3, attempt), {}, *planned(end, end))
    assert reported_in(store.rows_in(made, REPORTED)).done == {PLACE: 111}
    (Path(path) / "part-1").write_bytes(b"rows")
    with pytest.raises(KeyrangeError, match=r"\[VERDICT_DAMAGED\]"):
        store.rows_in(made, REPORTED)


def test_a_bit_that_has_changed_is_no_other_record() -> None:
    """An offset beside it is as plausible, and the record that failed would be done."""
    part = PartFile(io.BytesIO, "part-0", record(3, Cause.REJECTED).schema, {}, "zstd")
    for offset in range(3, 40, 2):
        part.add(record(offset, Cause.REJECTED))
    data = part.to_bytes()
    found = rows_in(data)
    refused = 0
    for at in range(0, len(data) - 8 - int.from_bytes(data[-8:-4], "little"), 23):
        try:
            read = rows_in(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        except (OSError, pa.ArrowInvalid):
            refused += 1
        else:
            assert read == found
    assert refused > 10
