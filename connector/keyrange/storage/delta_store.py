"""A `Store` in a Delta table that keyrange alone writes: a commit is a Parquet file and the log's
next version, one put each."""

from __future__ import annotations

import time
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from keyrange.errors import KeyrangeError, error
from keyrange.storage.checkpoint_files import is_checkpoint
from keyrange.storage.data_files import DataFile, statistics_of
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.failure_text import text_of
from keyrange.storage.locations import as_object_store_names
from keyrange.storage.log_actions import Action, added, removed
from keyrange.storage.logged_files import LoggedFile, LoggedFiles, may_hold
from keyrange.storage.table_store import Bounds, Conflict, Layout, Transaction
from keyrange.storage.upkeep import Upkeep

_Found = TypeVar("_Found")

# Small files between two compactions: they cost a reader some 0.1 ms each.
_COMPACT_EVERY = 100
_AGAIN_AFTER = 10
_VACUUM_EVERY_S = 1800.0
# A clock that is ahead of the store's by less is right.
_AHEAD_S: Final = 300.0
_ROW_GROUP_ROWS: Final = 10_000
# Compactions are transactions of this application.
_COMPACTIONS: Final = "keyrange/compactions"

# A stored log or file that is there, and is not what Delta writes.
_DAMAGE = (
    *("json error", "found gap", "parquet error", "invalid json", "magic bytes", "thrift"),
    *("decompression failed", "page integrity"),
)
_NEWER = ("unsupported: feature", "reader version", "writer version", "protocol")


class DeltaStore:
    """One table, with a handle that is kept. `storage` are settings of the object store."""

    def __init__(self, uri: str, layout: Layout, storage: Mapping[str, str]) -> None:
        self._files = LoggedFiles()
        self._log = DeltaLog(uri, storage, self._files)
        self.uri = uri
        self._layout = layout
        self._conditions = layout.conditions
        self._storage = dict(storage)
        self._indexed = pa.schema([layout.schema.field(name) for name in layout.indexed])
        self._table_id = ""
        # The version at which `maintain` was called last.
        self._looked_at = 0
        self._upkeep = Upkeep(uri, storage)
        # A handle for who compacts beside what is written.
        self._tidier: DeltaStore | None = None
        self._vacuumed_at_s: float | None = None

    def refresh(self) -> bool:
        with self._reading():
            before = self._log.table
            if not self._find():
                return False
            if self._log.table is not before:
                self._check()
            return True

    def version_of(self, app_id: str) -> int | None:
        if self._log.table is None:
            return None
        with self._reading():
            return self._log.version_of(app_id)

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        names = list(columns or self._layout.schema.names)
        if self._log.table is None:
            return pa.schema([self._layout.schema.field(name) for name in names]).empty_table()
        return self._found(lambda: self._read(self._files.that_may_hold(bounds), bounds, names))

    def greatest(self, column: str, bounds: Bounds) -> Any:
        if self._log.table is None:
            return None

        def look() -> Any:
            # Files with the greatest values first: most often one of them is read.
            files = self._files.that_may_hold(bounds)
            unknown = [each for each in files if column not in each.greatest]
            known = [each for each in files if column in each.greatest]
            known.sort(key=lambda each: each.greatest[column], reverse=True)
            found: Any = None
            for file in [*unknown, *known]:
                most = file.greatest.get(column)
                if found is not None and most is not None and most <= found:
                    break
                values = self._read([file], bounds, [column]).column(column).to_pylist()
                found = max((each for each in [found, *values] if each is not None), default=None)
            return found

        return self._found(look)

    def _found(self, look: Callable[[], _Found]) -> _Found:
        """What is in the files of this version; in those of the next one, where they were compacted
        and vacuumed meanwhile and nobody has committed anything."""
        with self._reading():
            try:
                return look()
            except FileNotFoundError:
                known = self._log.transactions()
                if not self._log.refresh():
                    raise
                self._check()
                if known != {name: self._log.version_of(name) for name in known}:
                    raise
                return look()

    def write(
        self, rows: pa.Table, transactions: Sequence[Transaction], note: Mapping[str, str]
    ) -> None:
        if self._log.table is None and not self.refresh():
            self._create()
        for each in transactions:
            known = self.version_of(each.app_id)
            if known is not None and known != each.after:
                raise Conflict
        written = {each.app_id: each.version for each in transactions}
        try:
            self._log.append(lambda: [self._put(rows)], written, note)
        except Conflict:
            self._log.close()
            raise
        except Exception as failure:
            self._log.close()
            raise self._unwritable(failure) from None

    def _put(self, rows: pa.Table, is_change: bool = True) -> Action:
        """A file of rows, which no version names yet."""
        name = f"part-{uuid.uuid4()}.zstd.parquet"
        footers: list[Any] = []
        out = pa.BufferOutputStream()
        pq.write_table(
            rows.cast(self._layout.schema),
            out,
            compression="zstd",
            row_group_size=_ROW_GROUP_ROWS,
            metadata_collector=footers,
            write_page_checksum=True,
        )
        data = out.getvalue().to_pybytes()
        self._log.directory.write(name, data)
        statistics = statistics_of(footers[0], self._indexed)
        return added(DataFile(name, len(data), len(rows), statistics), is_change)

    def maintain(self) -> None:
        """Failures are logged and no more."""
        with self._upkeep.attempt(self._log.close):
            if self._log.table is None and not self.refresh():
                return
            self._upkeep.look()
            version = self._log.version
            last, self._looked_at = self._looked_at or version - 1, version
            # Whoever writes the hundredth version does it, in however short a run; where that
            # writer was killed, or another one was faster, whoever finds too much.
            is_turn = version // _COMPACT_EVERY > last // _COMPACT_EVERY
            small = self._files.small(self._layout.order) if version % _AGAIN_AFTER == 0 else ()
            if is_turn or sum(map(len, small)) > 2 * _COMPACT_EVERY:
                self._tidier = self._tidier or DeltaStore(self.uri, self._layout, self._storage)
                if self._upkeep.do(self._tidier._tidy_up_once):
                    self._log.close()

    def _tidy_up_once(self) -> None:
        with self._upkeep.attempt(self._log.close):
            if self.refresh():
                self._tidy_up()

    def tidy_up(self) -> None:
        """Compact, checkpoint and vacuum at once: `maintain` does it where it is time to.

        Raises Conflict where another writer was faster, `unwritable` of the table's conditions.
        """
        try:
            self._tidy_up()
        except (KeyrangeError, Conflict):
            raise
        except Exception as failure:
            self._log.close()
            raise self._unwritable(failure) from None

    def extent(self) -> tuple[int, int]:
        """How many files the table has, and their bytes."""
        return len(self._files), sum(each.size_bytes for each in self._files)

    def _tidy_up(self) -> None:
        small = self._files.small(self._layout.order)
        if sum(map(len, small)) >= _COMPACT_EVERY // 2:
            self._compact(small)
        self._log.checkpoint()
        now_s = time.monotonic()
        if self._vacuumed_at_s is None or now_s - self._vacuumed_at_s >= _VACUUM_EVERY_S:
            # `full` also takes what a writer left behind that was killed; younger than the table's
            # own retention nothing is taken, for it may be part of a commit under way.
            # By a clock that is ahead of the store's, all that others write now would be older.
            ahead_s = self._log.ahead_s()
            hours = 2 + int(ahead_s // 3600) if ahead_s > _AHEAD_S else None
            self._log.table.vacuum(hours, dry_run=False, full=True)
            self._vacuumed_at_s = now_s
        self._log.open()
        self._check()

    def _compact(self, bins: Sequence[Sequence[LoggedFile]]) -> None:
        """Write the files of each of `bins` as one, in one transaction. Of two who do so at once
        the first wins, and so does anybody else who removes one of the files. Raises Conflict."""

        def replaced() -> Iterator[Action]:
            for old in bins:
                rows = self._read(old, {}, self._layout.schema.names)
                yield self._put(rows, is_change=False)
                for each in old:
                    yield removed(each.path, each.size_bytes)

        done = self._log.version_of(_COMPACTIONS) or 0
        told, old = {_COMPACTIONS: done + 1}, [each.path for files in bins for each in files]

        def holds() -> bool:
            return all(path in self._files for path in old)

        self._log.append(replaced, told, operation="OPTIMIZE", holds=holds)

    def _find(self) -> bool:
        """Whether there is a table. Raises where there was one, or there is something else."""
        missing = self._log.delta.exceptions.TableNotFoundError
        try:
            self._log.refresh()
        except missing:
            if self._table_id:
                message = "the table was deleted"
                raise error(self._conditions.gone, message, table=self.uri) from None
            path = Path(as_object_store_names(self.uri))
            if not path.is_dir() or all(each.name == "_delta_log" for each in path.iterdir()):
                return False
            # Whoever makes the table writes its log before files: these may be younger than the
            # look for a log.
            try:
                self._log.refresh()
            except missing:
                raise self._foreign() from None
        return True

    def _foreign(self) -> KeyrangeError:
        message = "there are files at the place of the table, and no log of Delta's"
        if is_checkpoint(self.uri):
            message = (
                "a checkpoint is at the place of the table; `keyrange checkpoint show` and "
                "`keyrange watch` take one"
            )
        return error("FOREIGN_TABLE", message, table=self.uri)

    def _create(self) -> None:
        properties = self._layout.properties()
        try:
            self._log.create(
                self._layout.schema, configuration=properties, raise_if_key_not_exists=False
            )
        except Exception as failure:
            # Another writer may have been faster.
            if not self.refresh():
                raise self._unwritable(failure) from None
            return
        self.refresh()

    def _check(self) -> None:
        """Whether the table is the one that it was, and as it is to be; closed where it is not."""
        try:
            table = self._log.table
            metadata = table.metadata()
            columns = pa.schema(table.schema().to_arrow())
            self._layout.check(metadata.configuration, columns, self.uri)
            if self._table_id and self._table_id != str(metadata.id):
                message = "the table was deleted, and another one made in its place"
                raise error(self._conditions.gone, message, table=self.uri)
            self._table_id = str(metadata.id)
        except KeyrangeError:
            self._log.close()
            raise

    def _read(
        self, files: Sequence[LoggedFile], bounds: Bounds, columns: Sequence[str]
    ) -> pa.Table:
        schema = pa.schema([self._layout.schema.field(name) for name in columns])
        if not files:
            return schema.empty_table()

        def read_one(file: LoggedFile) -> pa.Table:
            with self._log.directory.open(file.path) as source:
                opened = pq.ParquetFile(source, page_checksum_verification=True)
                return _rows_within(opened, schema, bounds)

        return pa.concat_tables(self._log.directory.of_each(read_one, files))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Failures of a table that is opened, refreshed or read.

        Raises `gone` for files that the log names and that are not there, `damaged`, `unsupported`,
        and `unreadable` for all else.
        """
        try:
            yield
        except (KeyrangeError, Conflict):
            raise
        except Exception as failure:
            raise self._unreadable(failure) from None

    def _unreadable(self, failure: Exception) -> KeyrangeError:
        text, of_table = text_of(failure, self._storage), self._conditions
        words = text.lower()
        if isinstance(failure, FileNotFoundError):
            message = f"a file of the table is not there, vacuumed too early or deleted: {text}"
            return error(of_table.gone, message, table=self.uri)
        # What is empty or cut off is seen when a range of it is asked for.
        damaged = isinstance(failure, pa.ArrowInvalid) or "range was invalid" in words
        if damaged or any(word in words for word in _DAMAGE):
            return error(of_table.damaged, text, table=self.uri)
        if type(failure).__name__ == "DeltaProtocolError" or any(word in words for word in _NEWER):
            return error(of_table.unsupported, f"the table's protocol: {text}", table=self.uri)
        return error(of_table.unreadable, text, table=self.uri)

    def _unwritable(self, failure: Exception) -> KeyrangeError:
        """A write that failed, for whichever reason: nothing can be said of it but the store's
        text."""
        return error(self._conditions.unwritable, text_of(failure, self._storage), table=self.uri)


def _rows_within(file: pq.ParquetFile, schema: pa.Schema, bounds: Bounds) -> pa.Table:
    """The columns of `schema` of the rows within all bounds.

    With filters, and for values of Python, Arrow imports pandas: it takes longer than all else that
    a query does before its first batch. `cast` and `take` import Arrow's compute, a tenth of it.
    """
    groups = map(file.metadata.row_group, range(file.num_row_groups))
    wanted = [number for number, each in enumerate(groups) if _may_hold(each, bounds)]
    rows = file.read_row_groups(wanted, [*schema.names, *bounds], use_threads=False)
    kept: Sequence[int] = range(len(rows))
    for name, (least, greatest) in bounds.items():
        values = rows.column(name).to_pylist()
        kept = [row for row in kept if _is_within(values[row], least, greatest)]
    rows = rows.select(schema.names)
    if rows.schema != schema:
        rows = rows.cast(schema)
    if not kept or kept[-1] - kept[0] == len(kept) - 1:
        return rows.slice(kept[0] if kept else 0, len(kept))
    numbers = pa.py_buffer(array("q", kept))
    return rows.take(pa.Array.from_buffers(pa.int64(), len(kept), [None, numbers]))


def _is_within(value: Any, least: Any, greatest: Any) -> bool:
    if value is None:
        return least is None and greatest is None
    return (least is None or value >= least) and (greatest is None or value <= greatest)


def _may_hold(group: pq.RowGroupMetaData, bounds: Bounds) -> bool:
    columns = map(group.column, range(group.num_columns))
    known = {
        each.path_in_schema: each.statistics
        for each in columns
        if each.path_in_schema in bounds and each.statistics and each.statistics.has_min_max
    }
    lows = {name: each.min for name, each in known.items()}
    return may_hold(lows, {name: each.max for name, each in known.items()}, bounds)
