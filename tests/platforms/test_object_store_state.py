"""State for keys, and jobs that keep it, with all that they have on S3."""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import keyrange
from keyrange.individual_commits.verdicts import Manifest, VerdictStore, planned
from keyrange.kafka.model.offsets import TopicPartition
from keyrange.keyed_state.files import FileBlocks, StateFileWriter
from keyrange.keyed_state.model.runs import StateRun
from keyrange.keyed_state.variables import KEY_HASH, StateForm, variables_of
from keyrange.ranges.model.key_ranges import SPACE
from keyrange.source.model.checkpoint import Checkpoint, CommitMark
from keyrange.storage.directory import Directory
from keyrange.work.outcome_rows import done_rows, other_rows
from platforms.s3_server import S3Server

PLACE = TopicPartition("t", 0)
FORM = StateForm(variables_of({"total": keyrange.ValueState("n long")}))


@pytest.fixture(params=["failing", "throttled"])
def fault(request: pytest.FixtureRequest) -> str:
    """A range that is shorter than the answer of a failure: Arrow does not ask for it again."""
    return request.param


@pytest.mark.parametrize("others", [1, 40_000])
def test_state_of_few_keys_is_read_from_a_store_that_fails(
    s3: S3Server, fault: str, others: int
) -> None:
    """Beside that of other keys, with which the file is read whole or in parts."""
    directory = Directory(f"s3://lake/{fault}-{others}")
    writer = StateFileWriter(directory, "s", FORM)
    assert writer.add([states(secrets.token_bytes(32) for _ in range(others))])
    block = states([b"k"])
    assert writer.add([block])
    _, written = writer.finish()
    run = StateRun(writer.name, written.groups, SPACE, 0, 1, written.rows, written.size_bytes)
    s3.set_faults(**{fault: 1.0, "matching": "^GET "})
    assert FileBlocks(directory, run, FORM).block(0) == block
    assert s3.happened()[fault] >= 2


def states(keys: Iterable[bytes]) -> pa.RecordBatch:
    rows = [{KEY_HASH: at, "key": key, "total": {"n": at}} for at, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(rows, FORM.schema)


def test_a_small_verdict_is_read_from_a_store_that_fails(s3: S3Server, fault: str) -> None:
    home = f"s3://lake/{fault}-verdicts"
    store = VerdictStore(home, "s")
    attempt, path = store.new_attempt(3)
    rows = other_rows(pa.schema([("text", pa.string())]), done_rows({PLACE: 5}))
    data = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), data)
    Directory(path).write("part-0", [data.getvalue()])
    end = Checkpoint({PLACE: 9}, commits=CommitMark("s", 1))
    made = Manifest(3, attempt, store.files_of(3, attempt), {}, *planned(end, end))
    wanted = {"done": ("topic", "records")}
    before = store.rows_in(made, wanted)
    s3.set_faults(**{fault: 1.0, "matching": "^GET "})
    assert store.rows_in(made, wanted) == before != [{"done": []}]
    assert s3.happened()[fault] == 2
