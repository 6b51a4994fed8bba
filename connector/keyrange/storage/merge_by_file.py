"""A merge in the process of the driver: each file of the table that has a row with a key of the
batch is written anew.

The batch is in memory, and of a file one row group at a time. Times are read as they are: delta-rs
1.6.6 counts those of Spark's files, INT96, in nanoseconds, and makes other times of all before 1677
and after 2262 in each file that it writes anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from keyrange.storage.data_files import DataFileWriter, leaves
from keyrange.storage.delta_log import DeltaLog, is_on
from keyrange.storage.directory import Directory
from keyrange.storage.key_rows import KeyRows
from keyrange.storage.last_rows import CHANGE, kept_columns, last_rows
from keyrange.storage.log_actions import Action, added, changed, removed
from keyrange.storage.logged_files import may_hold
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.model.writer_rules import MERGED
from keyrange.storage.staged import Staged, Unfit
from keyrange.storage.table_store import Conflict

# Where Delta has the rows of its change feed, and the column that says what became of them.
_CHANGES: Final = "_change_data"
_CHANGE_TYPE: Final = pa.field("_change_type", pa.string())
# What Spark leaves in a footer where days before 1582 are those of another calendar.
_OLD_DAYS: Final = frozenset((b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
_SPARK: Final = b"org.apache.spark.version"


class FileMerger:
    """`bytes_max`: what the batch and the files of the table that may have its keys take at most;
    None for any size. `other_zone` as of `WriterRules`."""

    evolves = False

    def __init__(self, bytes_max: int | None = None, other_zone: str = "") -> None:
        self._bytes_max = bytes_max
        self.rules = replace(MERGED, other_zone=other_zone)

    def write(self, log: DeltaLog, staged: Staged) -> Merged:
        files = list(_files(log.current(), staged))
        size = sum(each.size_bytes for each in files)
        size += sum(each.size_bytes for each in staged.files)
        if self._bytes_max is not None and size > self._bytes_max:
            raise Unfit(f"{size} bytes of it and of the batch are too many for one process")
        merge = _Merge(log, staged)
        said = staged.transactions, staged.note
        log.append(lambda: merge.actions(files), *said, "MERGE", holds=merge.holds)
        return merge.counts


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the table by its path as the log has it, and its values of partition columns."""

    path: str
    size_bytes: int
    partition: Mapping[str, pa.Scalar]


def _files(table: Any, staged: Staged) -> Iterator[_File]:
    """Those that may have keys of the batch, by its least and greatest ones. Raises Unfit."""
    # Not flattened: a column `a.b` may stand beside a field b of column `a`.
    told = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    names, bounds = table.metadata().partition_columns, staged.bounds()
    least, most, of_partition = (_each(told, kind) for kind in ("min", "max", "partition"))
    for at in range(told.num_rows):
        low, high = (
            {name: known[name][at].as_py() for name in bounds if name in known}
            for known in (least, most)
        )
        path = told.column("path")[at].as_py()
        if "://" in path or path.startswith(("/", "file:")):
            raise Unfit(f"file {path} does not lie below it")
        if may_hold(low, high, bounds):
            partition = {name: of_partition[name][at] for name in names}
            yield _File(path, told.column("size_bytes")[at].as_py(), partition)


def _each(told: pa.Table, kind: str) -> dict[str, pa.ChunkedArray]:
    """What is told of each column that has no fields itself."""
    if kind not in told.column_names:
        return {}
    structs = told.column(kind)
    return {
        each.name: pc.struct_field(structs, at)
        for at, each in enumerate(structs.type)
        if not pa.types.is_struct(each.type)
    }


class _Merge:
    """The rows of a batch and of the table's files, column by column as the table has them."""

    def __init__(self, log: DeltaLog, staged: Staged) -> None:
        table = log.current()
        self._log, self._staged = log, staged
        columns = pa.schema(table.schema().to_arrow())
        self._schema = pa.schema([pa.field(each.name, each.type) for each in columns])
        rows = _rows(staged)
        self._kept = kept_columns(rows)
        self._deletes = pc.struct_field(rows.column(CHANGE), "deleted").to_numpy()
        own = pa.schema([self._schema.field(name) for name in staged.columns])
        # In one piece: rows are taken of it by their numbers.
        self._rows = rows.select(own.names).cast(own).combine_chunks()
        self._keys = KeyRows(self._keys_of(self._rows))
        # Python has no days behind the year 9999.
        self._of_partitions = {name: self._rows.column(name).unique() for name in staged.pruning}
        self._is_there = np.zeros(rows.num_rows, np.bool_)
        # Files that were looked at, and those among them that are written anew.
        self._known: set[str] = set()
        self._gone: set[str] = set()
        self.counts = Merged()
        settings, names = table.metadata().configuration, table.metadata().partition_columns
        self._has_feed = is_on(settings, "delta.enableChangeDataFeed")
        self._written, self._changes = (
            DataFileWriter(uri, schema, list(map(PartitionColumn, names)), storage=staged.storage)
            for uri, schema in (
                (log.uri, self._schema),
                (f"{log.uri}/{_CHANGES}", self._schema.append(_CHANGE_TYPE)),
            )
        )

    def actions(self, files: Sequence[_File]) -> list[Action]:
        """What the log is to say, once files are written. Raises Unfit, and Conflict where the
        table was made again meanwhile."""
        try:
            gone = [each for each in self._with_keys(files) if self._is_written_anew(each)]
            self._insert()
            new, changes = self._written.finish(), self._changes.finish()
        except BaseException:
            self._written.abandon()
            self._changes.abandon()
            raise
        if not self._log.is_same():
            raise Conflict
        self._known, self._gone = {each.path for each in files}, {each.path for each in gone}
        actions = [removed(each.path, each.size_bytes, is_change=True) for each in gone]
        below = (replace(each, name=f"{_CHANGES}/{each.name}") for each in changes)
        return [*actions, *map(added, new), *map(changed, below)]

    def holds(self) -> bool:
        """Whether it is right behind what others have written since: the files that it writes anew
        are there, and no file that came has a key of the batch."""
        files = {each.path: each for each in _files(self._log.current(), self._staged)}
        came = filter(self._may_have, [files[path] for path in files.keys() - self._known])
        self._known |= files.keys()
        has_key = self._log.directory.of_each(self._has_key, list(came))
        return self._gone <= files.keys() and not any(has_key)

    def _with_keys(self, files: Sequence[_File]) -> list[_File]:
        """Files that may have keys of the batch; in a store of objects those that have some."""
        found, directory = [each for each in files if self._may_have(each)], self._log.directory
        if directory.is_local:
            return found
        has_key = directory.of_each(self._has_key, found)
        return [each for each, has in zip(found, has_key, strict=True) if has]

    def _has_key(self, file: _File) -> bool:
        with self._opened(file) as (_, at):
            return bool((at >= 0).any())

    def _may_have(self, file: _File) -> bool:
        """Whether keys of the batch belong to the partition of a file."""
        for name, values in self._of_partitions.items():
            own = file.partition[name].cast(values.type)
            if name in self._staged.may_be_null:
                own = pc.fill_null(own, "")
            if not pc.is_in(own, value_set=values).as_py():
                return False
        return True

    def _is_written_anew(self, file: _File) -> bool:
        """Write the rows of a file anew, where the batch changes one."""
        with self._opened(file) as (opened, at):
            if (at < 0).all():
                return False
            first = 0
            for number in range(opened.num_row_groups):
                rows = self._whole(opened.read_row_group(number), file, self._schema.names)
                self._put(rows, at[first : first + rows.num_rows])
                first += rows.num_rows
        return True

    @contextmanager
    def _opened(self, file: _File) -> Iterator[tuple[pq.ParquetFile, NDArray[np.int64]]]:
        """A file, and at each of its rows the row of the batch with its key, -1 for none."""
        directory: Directory = self._log.directory
        with directory.open(unquote(file.path)) as source:
            opened = pq.ParquetFile(
                source, coerce_int96_timestamp_unit="us", page_checksum_verification=True
            )
            _check_days(opened.metadata, file.path)
            _check_names(opened.schema_arrow, self._schema, file.path)
            names = [name for name in self._staged.keys if name in opened.schema_arrow.names]
            own = self._whole(opened.read(names), file, self._staged.keys)
            yield opened, self._keys.rows_of(self._keys_of(own))

    def _put(self, rows: pa.Table, at: NDArray[np.int64]) -> None:
        """Rows of the table anew, and at each the row of the batch with its key, -1 for none."""
        has_key = at >= 0
        _add(self._written, rows.filter(pa.array(~has_key)))
        at = at[has_key]
        self._is_there[at] = True
        there, deletes = rows.filter(pa.array(has_key)), self._deletes[at]
        deleted, before = there.filter(pa.array(deletes)), there.filter(pa.array(~deletes))
        after = self._updated(before, at[~deletes])
        _add(self._written, after)
        self._tell("delete", deleted)
        self._tell("update_preimage", before)
        self._tell("update_postimage", after)
        self.counts += Merged(updated=after.num_rows, deleted=deleted.num_rows)

    def _updated(self, before: pa.Table, at: NDArray[np.int64]) -> pa.Table:
        """What rows of the table become of rows of the batch."""
        new = self._rows.take(pa.array(at))
        columns = dict(zip(before.column_names, before.columns, strict=True))
        for name, own in zip(new.column_names, new.columns, strict=True):
            flags = self._kept.get(name)
            columns[name] = own if flags is None else _chosen(flags[at], columns[name], own)
        return pa.Table.from_arrays([*columns.values()], schema=self._schema)

    def _insert(self) -> None:
        is_new = ~self._is_there & ~self._deletes
        rows = self._rows.filter(pa.array(is_new))
        rows = self._whole(rows, None, self._schema.names)
        _add(self._written, rows)
        self._tell("insert", rows)
        self.counts += Merged(inserted=rows.num_rows)

    def _tell(self, kind: str, rows: pa.Table) -> None:
        if self._has_feed:
            kinds = pa.repeat(kind, rows.num_rows)
            _add(self._changes, rows.append_column(_CHANGE_TYPE, kinds))

    def _whole(self, rows: pa.Table, file: _File | None, names: Iterable[str]) -> pa.Table:
        """Columns of the table; those that rows of a file lack are null."""
        fields = [self._schema.field(name) for name in names]
        partition = {} if file is None else file.partition
        columns = []
        for each in fields:
            if each.name in partition:
                value = partition[each.name].cast(each.type)
                columns.append(pa.repeat(value, rows.num_rows))
            elif each.name in rows.column_names:
                columns.append(rows.column(each.name).cast(each.type))
            else:
                columns.append(pa.nulls(rows.num_rows, each.type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _keys_of(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        empty = self._staged.may_be_null
        return [
            pc.fill_null(rows.column(name), "") if name in empty else rows.column(name)
            for name in self._staged.keys
        ]


def _rows(staged: Staged) -> pa.Table:
    """The last row of each key."""
    directory = Directory(staged.location, staged.storage)
    tables = []
    for each in staged.files:
        with directory.open(each.name) as source:
            tables.append(pq.read_table(source))
    return last_rows(pa.concat_tables(tables), staged.keys)


def _add(writer: DataFileWriter, rows: pa.Table) -> None:
    for each in rows.to_batches():
        writer.add(each)


def _chosen(flags: NDArray[np.bool_], column: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.Array:
    return pc.if_else(pa.array(flags), column.combine_chunks(), other.combine_chunks())


def _check_days(metadata: pq.FileMetaData, path: str) -> None:
    told = metadata.metadata or {}
    if not _OLD_DAYS.isdisjoint(told) or told.get(_SPARK, b"3").startswith((b"1.", b"2.")):
        raise Unfit(f"file {path} may have days of the calendar before 1582")


def _check_names(file: pa.Schema, table: pa.Schema, path: str) -> None:
    """Spark takes columns of files for those of a table in any case, and converts such files."""
    own, wanted = (
        {leaf for each in kinds for leaf in leaves(each.name, each.type)} for kinds in (file, table)
    )
    lacking = {each.lower() for each in wanted - own}
    if any(each.lower() in lacking for each in own - wanted):
        raise Unfit(f"file {path} has names of columns that differ from its own in their case")
