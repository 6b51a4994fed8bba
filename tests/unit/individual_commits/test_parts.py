"""What the files of a verdict say, as one process reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keyrange.errors import KeyrangeError
from keyrange.individual_commits import parts
from keyrange.individual_commits.collecting import TOLD, TOLD_FIELDS, told_in
from keyrange.individual_commits.model.state import Cause
from keyrange.individual_commits.model.state_after_batch import NotDone
from keyrange.individual_commits.verdicts import Manifest, VerdictStore, planned
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.ranges.model.key_ranges import KeyRange
from keyrange.source.model.checkpoint import Checkpoint, CommitMark
from keyrange.work.outcome_rows import (
    Code,
    handed_back_rows,
    hidden_rows,
    other_rows,
    output_rows,
    tally_rows,
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


def record(offset: int, code: Code) -> pa.RecordBatch:
    row = {
        "code": int(code),
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "key_hash": offset + 7,
    }
    return other_rows(OUTPUT, hidden_rows([row]))


def file_of(*batches: pa.RecordBatch) -> bytes:
    """A file with a row group for each batch."""
    data = io.BytesIO()
    with pq.ParquetWriter(data, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return data.getvalue()


def rows_in(data: bytes) -> list[tuple[object, ...]]:
    return parts.rows_in(pa.BufferReader(data), TOLD, TOLD_FIELDS)


@pytest.mark.parametrize("placed", [False, True])
def test_rows_that_are_output_are_passed_over(placed: bool) -> None:
    back = handed_back_rows({PLACE: {0: 90}}, {PLACE: [KeyRange(5, 9)]})
    data = file_of(
        output(5, placed),
        record(3, Code.REJECTED),
        output(5, placed),
        record(4, Code.HELD_BACK),
        record(6, Code.MENTIONED),
        other_rows(OUTPUT, back),
        other_rows(OUTPUT, tally_rows({PLACE: 10})),
    )
    told = told_in(rows_in(data))
    assert told.not_done == {
        PLACE: {3: NotDone(3, 10, Cause.REJECTED), 4: NotDone(4, 11, Cause.HELD_BACK)}
    }
    assert told.handed_back == {PLACE: [(KeyRange(5, 9), 90)]}
    assert told.done == {PLACE: 10}


def test_a_group_of_nothing_but_output_is_not_read() -> None:
    metadata = pq.ParquetFile(
        pa.BufferReader(file_of(output(5), record(3, Code.REJECTED), output(2)))
    ).metadata
    assert list(parts._groups_with_rows(metadata)) == [1]


def test_a_file_of_output_alone_says_nothing() -> None:
    assert rows_in(file_of(output(5))) == []


def test_large_verdicts_are_left_to_executors() -> None:
    assert parts.is_small([parts.BYTES_MAX])
    assert not parts.is_small([parts.BYTES_MAX, 1])
    assert not parts.is_small([1] * (parts.FILES_MAX + 1))


def test_all_parts_are_read_and_a_broken_one_is_damage(tmp_path: Path) -> None:
    store = VerdictStore(str(tmp_path), "s")
    attempt, path = store.new_attempt(3)
    Path(path).mkdir(parents=True)
    for number in range(3):
        tally = other_rows(OUTPUT, tally_rows({PLACE: 10**number}))
        (Path(path) / f"part-{number}").write_bytes(file_of(tally))
    end = Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))
    made = Manifest(3, attempt, store.files_of(3, attempt), {}, *planned(end, end))
    assert told_in(store.told_rows(made, TOLD, TOLD_FIELDS)).done == {PLACE: 111}
    (Path(path) / "part-1").write_bytes(b"rows")
    with pytest.raises(KeyrangeError, match=r"\[VERDICT_DAMAGED\]"):
        store.told_rows(made, TOLD, TOLD_FIELDS)
