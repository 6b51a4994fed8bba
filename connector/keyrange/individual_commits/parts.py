"""What the files of a verdict say besides output, read without a Spark job.

A job costs more than reading what a small verdict says: a member is null wherever a row says
something else, and what is null throughout is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from keyrange.work.outcome_rows import HIDDEN

# Beyond these the executors are quicker than one process.
FILES_MAX: Final = 32
BYTES_MAX: Final = 256 * 1024 * 1024
_ROWS_AT_A_TIME: Final = 65_536

# Of each member that is asked for the fields; the first of them is never null where it is set.
Wanted = Mapping[str, Sequence[str]]
Found = dict[str, list[tuple[Any, ...]]]


def merged(found: Iterable[Found], wanted: Wanted) -> Found:
    """The rows of each member, of all that were found."""
    all_of: Found = {member: [] for member in wanted}
    for each in found:
        for member in wanted:
            all_of[member] += each.get(member, ())
    return all_of


def is_small(sizes: Sequence[int]) -> bool:
    """Whether one process is to read files of these sizes."""
    return len(sizes) <= FILES_MAX and sum(sizes) <= BYTES_MAX


def rows_in(source: pa.NativeFile, wanted: Wanted) -> Found:
    """The fields of each member, of the rows where it is set.

    Raises OSError or ValueError where the file is not a verdict's.
    """
    # Near columns of a remote file come in one request.
    file = pq.ParquetFile(source, pre_buffer=True)
    found: Found = {member: [] for member in wanted}
    for member, names in wanted.items():
        for batch in file.iter_batches(
            _ROWS_AT_A_TIME,
            row_groups=list(_groups_with(file.metadata, f"{HIDDEN}.{member}.{names[0]}")),
            columns=[f"{HIDDEN}.{member}.{name}" for name in names],
            use_threads=False,
        ):
            values = pc.struct_field(batch.column(HIDDEN), member)
            said = values.filter(pc.is_valid(values))
            columns = [pc.struct_field(said, name).to_pylist() for name in names]
            found[member] += zip(*columns, strict=True)
    return found


def _groups_with(metadata: pq.FileMetaData, path: str) -> Iterator[int]:
    """The row groups in which a column is not null throughout, as far as the file says so."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema == path:
                told = column.statistics
                known = told is not None and told.has_null_count
                if not known or told.null_count < group.num_rows:
                    yield number
