"""The rows of a verdict that are no output, read from its files without a Spark job.

A job costs more than reading what a small verdict says: the column is null wherever a row is
output, and what is null throughout is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from keyrange.work.outcome_rows import HIDDEN

# Beyond these the executors are quicker than one process.
FILES_MAX: Final = 32
BYTES_MAX: Final = 256 * 1024 * 1024
_ROWS_AT_A_TIME: Final = 65_536


def is_small(sizes: Sequence[int]) -> bool:
    """Whether one process is to read files of these sizes."""
    return len(sizes) <= FILES_MAX and sum(sizes) <= BYTES_MAX


def rows_in(
    source: pa.NativeFile, codes: Sequence[int], names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Fields of the hidden column, where its code is one of `codes`; `names` begins with it.

    Raises OSError or ValueError where the file is not a verdict's.
    """
    # Near columns of a remote file come in one request.
    file = pq.ParquetFile(source, pre_buffer=True)
    wanted = pa.array(codes, pa.int8())
    found: list[tuple[Any, ...]] = []
    for batch in file.iter_batches(
        _ROWS_AT_A_TIME,
        row_groups=list(_groups_with_rows(file.metadata)),
        columns=[f"{HIDDEN}.{name}" for name in names],
        use_threads=False,
    ):
        hidden = batch.column(HIDDEN)
        chosen = hidden.filter(pc.is_in(pc.struct_field(hidden, "code"), wanted))
        columns = [pc.struct_field(chosen, name).to_pylist() for name in names]
        found += zip(*columns, strict=True)
    return found


def _groups_with_rows(metadata: pq.FileMetaData) -> Iterator[int]:
    """The row groups in which some row is no output, as far as the file says so."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema == f"{HIDDEN}.code":
                told = column.statistics
                known = told is not None and told.has_null_count
                if not known or told.null_count < group.num_rows:
                    yield number
