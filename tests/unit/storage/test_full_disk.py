"""Files on a disk that takes no more: the system's error is told, and not what closing raises."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from keyrange.errors import KeyrangeError
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import StateForm, Variable
from keyrange.model.key_ranges import SPACE
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import let_go
from keyrange.work.appended_files import Output, Target, write_output
from keyrange.work.outcome_rows import member_rows, other_rows, output_rows

BYTES_MAX = 1 << 16
VALUE = np.random.default_rng(1).bytes(4 * BYTES_MAX)


@pytest.fixture(autouse=True)
def small_disk() -> Iterator[None]:
    """No file of this process grows beyond BYTES_MAX: Python ignores the signal that comes then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES_MAX, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_all_is_closed_whatever_the_first_raises() -> None:
    closed = []

    class File:
        def __init__(self, failure: Exception | None) -> None:
            self.failure = failure

        def close(self) -> None:
            closed.append(self)
            if self.failure:
                raise self.failure

    files = [File(RuntimeError("no metadata")), File(OSError()), File(None)]
    let_go(files[0], None, *files[1:])
    assert closed == files


def test_a_table_that_takes_no_more_is_named(tmp_path: Path) -> None:
    schema = pa.schema([("value", pa.binary())])
    target = Target((Output(f"{tmp_path}/table", schema),), f"{tmp_path}/outcomes", "1")
    output = output_rows(pa.record_batch([[VALUE]], schema), None)
    with pytest.raises(KeyrangeError, match=r"SINK_UNWRITABLE.*File too large"):
        list(write_output(iter([output]), target))
    said = {"topic": "t", "partition": 0, "offset": 0, "key_hash": 0, "cause": 1, "error": "x"}
    record = {"key": b"", "value": VALUE, "timestamp_ms": 0, "headers": []}
    outcome = other_rows(schema, member_rows("outcome", [{**said, "record": record}]))
    with pytest.raises(KeyrangeError, match=r"VERDICT_UNWRITABLE.*File too large"):
        list(write_output(iter([outcome]), target))


def test_state_that_takes_no_more_is_named(tmp_path: Path) -> None:
    form = StateForm((Variable("n", "value", StructType().add("n", "binary").json()),))
    writer = StateFileWriter(Directory(str(tmp_path)), "source", form)
    row = dict(zip(form.schema.names, (1, b"k", {"n": VALUE}), strict=True))
    block = pa.RecordBatch.from_pylist([row], form.schema)
    with pytest.raises(KeyrangeError, match=r"STATE_UNWRITABLE.*File too large"):
        writer.add(TopicPartition("t", 0), SPACE, 0, [block])
    writer.abandon()
