"""A `Store` by delta-rs: no Spark and no Java, some 20 ms for a commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from keyrange.errors import KeyrangeError, error
from keyrange.storage.cached_delta_table import CachedDeltaTable
from keyrange.storage.checkpoint_files import is_checkpoint
from keyrange.storage.compaction import compact, small_files
from keyrange.storage.store_failures import reading, text_of, writing_fault
from keyrange.storage.table_store import Bounds, Conflict, Layout, Transaction, within

_LOG = logging.getLogger(__name__)
_Found = TypeVar("_Found")

# Writers of other application ids only race for the next version of the log. Sixteen of them were
# seen to need more than the 15 tries that are usual.
_TRIES = 1000
# Small files between two compactions: they cost a reader some 0.1 ms each.
_COMPACT_EVERY = 100
_AGAIN_AFTER = 10
_VACUUM_EVERY_S = 1800.0

# What delta-rs says where another writer was faster, or has added columns.
_CONFLICTS = ("concurrent transaction", "metadata changed")


class DeltaRsStore:
    """One table, with a handle that is kept. `storage` are settings of the object store."""

    def __init__(self, uri: str, layout: Layout, storage: Mapping[str, str]) -> None:
        self._cached = CachedDeltaTable(uri, storage)
        self._delta = self._cached.delta
        self._uri = uri
        self._layout = layout
        self._conditions = layout.conditions
        self._storage = dict(storage)
        self._table_id = ""
        self._compacted_at: int | None = None
        self._vacuumed_at_s: float | None = None

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def _table(self) -> Any:
        return self._cached.table

    def refresh(self) -> bool:
        with reading(self._uri, self._storage, self._conditions):
            try:
                is_other = self._cached.refresh()
            except self._delta.exceptions.TableNotFoundError as failure:
                self._refuse_missing(failure)
                return False
            if is_other:
                self._check()
            return True

    def version_of(self, app_id: str) -> int | None:
        if self._table is None:
            return None
        with reading(self._uri, self._storage, self._conditions):
            return self._cached.version_of(app_id)

    def read(self, bounds: Bounds, columns: Sequence[str] | None = None) -> pa.Table:
        names = list(columns or self._layout.schema.names)
        if self._table is None:
            return pa.schema([self._layout.schema.field(name) for name in names]).empty_table()

        def look() -> pa.Table:
            return self._read(self._files(bounds).column("path").to_pylist(), bounds, names)

        return self._found(look)

    def greatest(self, column: str, bounds: Bounds) -> Any:
        if self._table is None:
            return None

        def look() -> Any:
            files = self._files(bounds)
            # Files with the greatest values first: most often one of them is read.
            found: Any = None
            for file in files.sort_by([(f"max.{column}", "descending")]).to_pylist():
                most = file[f"max.{column}"]
                if found is not None and most is not None and most <= found:
                    break
                values = self._read([file["path"]], bounds, [column]).column(column)
                value = pc.max(values).as_py()
                found = value if found is None or (value is not None and value > found) else found
            return found

        return self._found(look)

    def _found(self, look: Callable[[], _Found]) -> _Found:
        """What is in the files of this version; in those of the next one, where they were compacted
        and vacuumed meanwhile and nobody has committed anything."""
        with reading(self._uri, self._storage, self._conditions):
            try:
                return look()
            except FileNotFoundError:
                known = self._cached.transactions()
                if not self._cached.refresh():
                    raise
                self._check()
                if known != {name: self._cached.version_of(name) for name in known}:
                    raise
                return look()

    def write(
        self, rows: pa.Table, transactions: Sequence[Transaction], note: Mapping[str, str]
    ) -> None:
        if self._table is None and not self.refresh():
            self._create()
        with reading(self._uri, self._storage, self._conditions):
            if not self._cached.is_same():
                raise Conflict
        for each in transactions:
            known = self.version_of(each.app_id)
            if known is not None and known != each.after:
                raise Conflict
        written = {each.app_id: each.version for each in transactions}
        mark, before = self._cached.new_mark(), self._cached.version
        properties = self._delta.CommitProperties(
            custom_metadata={**note, **mark},
            max_commit_retries=_TRIES,
            app_transactions=[self._delta.Transaction(*each) for each in written.items()],
        )
        try:
            self._delta.write_deltalake(
                self._table,
                rows,
                mode="append",
                commit_properties=properties,
                # `maintain` does it: it would list the log with every commit.
                post_commithook_properties=self._delta.PostCommitHookProperties(
                    cleanup_expired_logs=False
                ),
            )
            self._cached.written(mark, before, written)
        except Exception as failure:
            self._cached.close()
            if any(word in str(failure).lower() for word in _CONFLICTS):
                raise Conflict from None
            raise writing_fault(failure, self._uri, self._storage, self._conditions) from None

    def maintain(self) -> None:
        """Failures are logged and no more: what was to be kept is kept, and the next call tries
        again."""
        try:
            if self._table is None and not self.refresh():
                return
            version = self._table.version()
            if self._compacted_at is None or version - self._compacted_at >= _COMPACT_EVERY:
                # Where another writer was faster, some commits later is early enough.
                self._compacted_at = version - _COMPACT_EVERY + _AGAIN_AFTER
                self._tidy_up()
        except Exception as failure:
            self._cached.close()
            if type(failure).__name__ == "CommitFailedError":
                return
            text = text_of(failure, self._storage)
            _LOG.warning("%s could not be compacted or vacuumed: %s", self._uri, text)

    def tidy_up(self) -> None:
        """Compact, checkpoint and vacuum at once: `maintain` does it where it is time to.

        Raises Conflict where another writer was faster, `unwritable` of the table's conditions.
        """
        try:
            self._tidy_up()
        except KeyrangeError:
            raise
        except Exception as failure:
            self._cached.close()
            if type(failure).__name__ == "CommitFailedError":
                raise Conflict from None
            raise writing_fault(failure, self._uri, self._storage, self._conditions) from None

    def extent(self) -> tuple[int, int]:
        """How many files the table has, and their bytes."""
        with reading(self._uri, self._storage, self._conditions):
            sizes = pa.table(self._table.get_add_actions(flatten=True)).column("size_bytes")
            return len(sizes), pc.sum(sizes).as_py() or 0

    def _tidy_up(self) -> None:
        files = pa.table(self._table.get_add_actions(flatten=True))
        bins = small_files(files, self._layout.order)
        if sum(map(len, bins)) >= _COMPACT_EVERY // 2:
            compact(self._table, self._cached.files, self._layout, bins)
        self._table.create_checkpoint()
        self._table.cleanup_metadata()
        now_s = time.monotonic()
        if self._vacuumed_at_s is None or now_s - self._vacuumed_at_s >= _VACUUM_EVERY_S:
            # `full` also takes what a writer left behind that was killed; younger than the table's
            # own retention nothing is taken, for it may be part of a commit under way.
            self._table.vacuum(dry_run=False, full=True)
            self._vacuumed_at_s = now_s
        self._compacted_at = self._cached.version
        self._cached.open()
        self._check()

    def _refuse_missing(self, failure: Exception) -> None:
        """Raises where there is to be a table, or something else."""
        text = text_of(failure, self._storage)
        if "unknown scheme" in text.lower():
            raise error(self._conditions.unreadable, text, table=self._uri) from None
        if self._table_id:
            raise error(self._conditions.gone, "the table was deleted", table=self._uri) from None
        self._refuse_other_files()

    def _refuse_other_files(self) -> None:
        path = Path(self._uri.removeprefix("file://"))
        if path.is_dir() and any(each.name != "_delta_log" for each in path.iterdir()):
            message = "there are files at the place of the table, and no log of Delta's"
            if is_checkpoint(self._uri):
                message = (
                    "a checkpoint is at the place of the table; `keyrange checkpoint show` and "
                    "`keyrange watch` take one"
                )
            raise error("FOREIGN_TABLE", message, table=self._uri)

    def _create(self) -> None:
        try:
            self._delta.DeltaTable.create(
                self._uri,
                self._layout.schema,
                mode="error",
                configuration=self._layout.properties(),
                storage_options=self._storage,
                raise_if_key_not_exists=False,
                # Tried again after another writer has made the table, it would change its identity.
                commit_properties=self._delta.CommitProperties(max_commit_retries=0),
            )
        except Exception as failure:
            # Another writer may have been faster.
            if not self.refresh():
                raise writing_fault(failure, self._uri, self._storage, self._conditions) from None
            return
        self.refresh()

    def _check(self) -> None:
        """Whether the table is the one that it was, and as it is to be; closed where it is not."""
        try:
            metadata = self._table.metadata()
            columns = pa.schema(self._table.schema().to_arrow())
            self._layout.check(metadata.configuration, columns, self._uri)
            if self._table_id and self._table_id != str(metadata.id):
                message = "the table was deleted, and another one made in its place"
                raise error(self._conditions.gone, message, table=self._uri)
            self._table_id = str(metadata.id)
        except KeyrangeError:
            self._cached.close()
            raise

    def _files(self, bounds: Bounds) -> pa.Table:
        """The files that may hold rows within the bounds, with their least and greatest values."""
        files = pa.table(self._table.get_add_actions(flatten=True))
        for name, (least, greatest) in bounds.items():
            if f"min.{name}" not in files.column_names:
                continue
            lows, highs = files.column(f"min.{name}"), files.column(f"max.{name}")
            # A file without statistics may hold anything.
            keep = pa.scalar(True)
            if greatest is not None:
                keep = pc.and_(keep, pc.fill_null(pc.less_equal(lows, greatest), True))
            if least is not None:
                keep = pc.and_(keep, pc.fill_null(pc.greater_equal(highs, least), True))
            files = files.filter(pc.and_(keep, pc.is_valid(files.column("path"))))
        return files

    def _read(self, paths: list[str], bounds: Bounds, columns: list[str]) -> pa.Table:
        data = pyarrow.dataset.dataset(
            paths,
            schema=self._layout.schema,
            format="parquet",
            filesystem=self._cached.files,
        )
        return data.to_table(columns=columns, filter=within(bounds))
