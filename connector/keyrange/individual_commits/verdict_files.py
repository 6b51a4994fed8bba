"""What the files of a verdict say besides output, read without a Spark job.

A job costs more than reading what a small verdict says: a member is null wherever a row says
something else, and what is null throughout is not read at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from keyrange.individual_commits.model.batch_results import Failure
from keyrange.individual_commits.model.verdict_manifest import Found
from keyrange.model.offsets import TopicPartition
from keyrange.work.model.outcome import Cause
from keyrange.work.outcome_rows import HIDDEN

_ROWS_AT_A_TIME: Final = 65_536
# The name of an exception is among so many characters.
_NAME_CHARACTERS_MAX: Final = 200
_FAILED: Final = ("topic", "partition", "offset", "cause", "frames", "error")

# Of each member that is asked for the fields; the first of them is never null where it is set.
Wanted = Mapping[str, Sequence[str]]


def rows_in(source: pa.NativeFile, wanted: Wanted, offsets: Collection[int] | None = None) -> Found:
    """The fields of each member, of the rows where it is set; with `offsets` those alone that have
    one of these.

    Raises OSError or ValueError where the file is not a verdict's.
    """
    file = _open(source)
    found: Found = {member: [] for member in wanted}
    for member, names in wanted.items():
        for values in _values(file, member, names, names[0]):
            is_said = pc.is_valid(values)
            if offsets is not None:
                among = pc.is_in(pc.struct_field(values, "offset"), pa.array(offsets, pa.int64()))
                is_said = pc.and_(is_said, among)
            said = values.filter(is_said)
            columns = [pc.struct_field(said, name).to_pylist() for name in names]
            found[member] += zip(*columns, strict=True)
    return found


def failures_in(source: pa.NativeFile) -> Iterator[Failure]:
    """The records that failed, each with the beginning of its error.

    Raises as `rows_in` does.
    """
    for values in _values(_open(source), "outcome", _FAILED, "error"):
        failed = values.filter(pc.is_valid(pc.struct_field(values, "error")))
        *places, texts = (pc.struct_field(failed, name) for name in _FAILED)
        begins = pc.utf8_slice_codeunits(texts, 0, _NAME_CHARACTERS_MAX)
        rows = zip(*(each.to_pylist() for each in (*places, begins)), strict=True)
        for topic, number, offset, cause, frames, text in rows:
            is_cut = frames and len(text) == _NAME_CHARACTERS_MAX
            told = f"{text}... ({frames[-1]})" if is_cut else text
            yield Failure(TopicPartition(topic, number), offset, Cause(cause), told)


def _open(source: pa.NativeFile) -> pq.ParquetFile:
    # Near columns of a remote file come in one request.
    return pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True)


def _values(
    file: pq.ParquetFile, member: str, names: Sequence[str], never_null: str
) -> Iterator[pa.StructArray]:
    """The fields of a member, of the row groups in which one of them is not null throughout."""
    for batch in file.iter_batches(
        _ROWS_AT_A_TIME,
        row_groups=list(_groups_with(file.metadata, f"{HIDDEN}.{member}.{never_null}")),
        columns=[f"{HIDDEN}.{member}.{name}" for name in names],
        use_threads=False,
    ):
        yield pc.struct_field(batch.column(HIDDEN), member)


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
