"""A user's Delta table that takes files which lie below it already, once for each batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.storage.data_files import DataFile, check_there
from keyrange.storage.delta_log import DeltaLog
from keyrange.storage.delta_partitions import table_schema
from keyrange.storage.failure_text import text_of
from keyrange.storage.log_actions import Action, added
from keyrange.storage.model.merged_rows import Merged
from keyrange.storage.model.partition_columns import PartitionColumn
from keyrange.storage.model.sink_driver import (
    Driver,
    application_of_driver,
    closed,
    is_closed,
    opened,
    overtaken,
)
from keyrange.storage.model.writer_rules import OWN, SPARK, WriterRules
from keyrange.storage.sink_history import check_new, made_again, restored
from keyrange.storage.staged import Staged, StagedWriter, Unfit
from keyrange.storage.table_fit import BY_SPARK, TableFit
from keyrange.storage.table_store import Conflict

_TRIES = 100  # of several who merge into the same files one is the fastest at a time

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


class SinkTable:
    """A table by its path or URI, for files of rows of one schema. `storage` are settings of the
    object store."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        storage: Mapping[str, str],
        partition_by: Sequence[PartitionColumn] | None = None,
        log: DeltaLog | None = None,
        evolves: bool = False,
        keys: tuple[str, ...] = (),
    ) -> None:
        """`partition_by`: None for what the table is partitioned by. `log`: the table's, where it
        is open from a batch before. `evolves`: whether it gets the columns that it lacks, together
        with the first files that have them. `keys`: those by which rows are merged into it."""
        self.uri = uri
        self._given = None if partition_by is None else tuple(partition_by)
        self._columns: tuple[PartitionColumn, ...] = self._given or ()
        self._log = log or DeltaLog(uri, storage)
        self._delta = self._log.delta
        self._schema = schema
        self.evolves, self.keys = evolves, keys
        # Who writes it, as it was prepared for, and why keyrange does not append to it.
        self.by, self.why = OWN, ""
        # What Delta calls the table that was prepared.
        self._id = ""
        self._storage = dict(storage)

    @property
    def partition_by(self) -> tuple[PartitionColumn, ...]:
        """What files are to be partitioned by, once the table is prepared."""
        return self._columns

    def prepare(
        self, table_id: str = "", by: WriterRules = OWN, otherwise: WriterRules | None = None
    ) -> bool:
        """Make the table where there is none; whether it is the one of `table_id`, where that is
        given, which is not made anew. `by` whom it is to be written: by `otherwise` where it asks
        for more than that one keeps to (`by`, `why`).

        Raises SINK_UNSUITABLE where it does not take rows of the schema, SINK_UNWRITABLE,
        INVALID_OPTIONS where rows cannot be partitioned so."""
        table_schema(self._schema, self._columns)
        # One that is open from the batch before is looked at where files are appended.
        table = self._found()
        if table is None:
            if table_id:
                return False
            table = self._create()
        self._id = self.table_id()
        if table_id not in ("", self._id):
            return False
        self.by, self.why = by, ""
        fit = self._fit(table, self._schema)
        if fit.why is not None and otherwise is not None:
            self.by, self.why = otherwise, fit.why
        self._check(table)
        return True

    def follow(self, schema: pa.Schema) -> None:
        """Take rows of another schema from now on. Raises SINK_UNSUITABLE and SINK_TYPES_DIFFER
        where the table does not."""
        self._schema = schema
        self._check(self._found())

    def append(
        self,
        files: Sequence[DataFile],
        app_id: str,
        batch_id: int,
        check_files: bool,
        driver: Driver | None = None,
        note: Mapping[str, str] = MappingProxyType({}),
        schema: pa.Schema | None = None,
    ) -> None:
        """Name files in the table's log, in one transaction: once for each batch of an application,
        however often it is called, and not by a `driver` that another one has stopped.

        `check_files`: whether they were written by an earlier run, and may be gone by now. `note`
        is kept in the log (`note_of`), `schema` that of the files, where it is another one than the
        table was prepared for. Raises VERDICT_DAMAGED where they are gone,
        CHECKPOINT_BEHIND, SINK_UNSUITABLE, SINK_UNWRITABLE, COMMITS_FENCED.
        """

        def commit(table: Any) -> None:
            written = self._may_write(app_id, batch_id, driver)
            self.by = OWN
            fit = self._check(table, schema)
            if (why := fit.why_not(files)) is not None:
                raise self._unsuitable(why)
            if check_files:
                left = "the table's log does not name it yet"
                check_there(self._log.directory, files, batch_id, left, table=self.uri)
            changes = fit.changes()
            self._commit(files, written, note, changes)
            if changes:
                self._tell(fit, batch_id)

        if files:
            self._once(commit, app_id, batch_id, note, not check_files)

    def write(
        self,
        staged: Staged,
        writers: Sequence[StagedWriter],
        app_id: str,
        batch_id: int,
        check_files: bool,
        driver: Driver | None = None,
        note: Mapping[str, str] = MappingProxyType({}),
        schema: pa.Schema | None = None,
    ) -> Merged:
        """Have the rows of files merged by the table's keys, or appended, in one transaction: once
        for each batch, and otherwise as `append`. The first of `writers` does it that takes table
        and rows as they are; the last one has to.

        Returns how many rows were changed by this call. Raises ROWS_REFUSED."""
        counts = Merged()

        def commit(_: Any) -> None:
            nonlocal counts
            written = self._may_write(app_id, batch_id, driver)
            if driver is not None:
                self._open_again(app_id, driver)
            if check_files:
                staged.check(batch_id)
            # The write is one with the version of the table that was looked at, or a later one.
            before = self._log.version_of(app_id)
            told = replace(staged, transactions=written, note=note)
            counts, fit = self._by_first(writers, schema, told)
            if fit.is_changed:
                self._tell(fit, batch_id)
            self._open()
            if self._log.version_of(app_id) == before:
                # No row of the table was changed.
                self._log.append(list, written, note)
            elif is_closed(self._log.version_of(app_id)):
                raise Conflict
            if not self.by.keeps_rules:
                self._log.checkpoint_in_turn()

        if staged.files:
            self._once(commit, app_id, batch_id, note, not check_files)
        return counts

    def _by_first(
        self, writers: Sequence[StagedWriter], schema: pa.Schema | None, staged: Staged
    ) -> tuple[Merged, TableFit]:
        """Where the last one does not, the table gets the columns that it lacks just before."""
        *others, last = writers
        table = self._log.table
        for each in others:
            self.by = each.rules
            fit = self._fit(table, schema or self._schema)
            if fit.why is None and not fit.is_changed:
                with suppress(Unfit):
                    return each.write(self._log, staged), fit
        self.by = last.rules
        fit = self._check(table, schema)
        if fit.is_changed and not last.evolves:
            self._log.append(fit.changes, {}, operation="CHANGE COLUMNS")
            raise Conflict
        try:
            return last.write(self._log, replace(staged, evolves=fit.is_changed)), fit
        except Unfit as failure:
            raise self._unsuitable(f"{failure}{BY_SPARK}") from None

    def _tell(self, fit: TableFit, batch_id: int) -> None:
        text = f"table {self.uri} has other columns with batch {batch_id}: as {fit.changed()}"
        _LOG.info("%s", text)

    def _open_again(self, app_id: str, driver: Driver) -> None:
        """A driver that was stopped, and is the one that counts again."""
        version = self._log.version_of(app_id)
        if is_closed(version):
            last = opened(version)
            number = {driver.application: driver.number}
            self._log.append(list, {app_id: -1 if last is None else last, **number})
            raise Conflict

    def check_restored(self, batch_id: int) -> None:
        """Raises TABLE_RESTORED, once, where an older version was restored in this run."""
        if self._log.told_restored():
            raise restored(self.uri, batch_id)

    def stop_others(self, driver: Driver) -> None:
        """Let the table take nothing more from the drivers that one has stopped: such a driver may
        have looked whether it still counts, and go on to append.

        Raises UNCOMMITTED_OUTPUT where one has appended what it has not committed, SINK_UNWRITABLE.
        """
        numbers = dict.fromkeys(map(application_of_driver, driver.stopped), driver.number)

        def stop(_: Any) -> None:
            is_staged = self.keys or self.by.keeps_rules
            stopped = driver.applications if is_staged else ()
            ends = {each: closed(self._log.version_of(each)) for each in stopped}
            self._commit([], numbers | ends, {})

        self._once(stop, min(numbers), driver.number)
        # A late transaction came before that one, which has seen it, or does not come any more.
        for application, committed in driver.committed.items():
            with self._reading():
                batch_id = opened(self._log.version_of(application))
            if batch_id is not None and batch_id > committed:
                message = (
                    f"the table has the output of batch {batch_id} of another query, whose commit "
                    "is not there: its records would come again"
                )
                raise error("UNCOMMITTED_OUTPUT", message, table=self.uri, writer=application)

    def table_id(self) -> str:
        """What Delta calls the table, wherever it lies, as it was seen last; "" where there is
        none. Raises SINK_UNWRITABLE."""
        table = self._found()
        return "" if table is None else str(table.metadata().id)

    def look(self, find: Callable[[Any], _T]) -> _T:
        """What one of `sink_history` finds in the table's log. Raises SINK_UNWRITABLE."""
        with self._reading():
            self._open()
            return find(self._log.current())

    def has(self, application: str, batch_id: int) -> bool:
        """Whether the table's log has a batch of an application, or a later one. Raises
        SINK_UNWRITABLE."""
        with self._reading():
            return self._written(application, batch_id)

    def _found(self) -> Any:
        """delta-rs's table as it was seen last; None where there is none."""
        with self._reading():
            try:
                return self._log.table or self._open()
            except self._delta.exceptions.TableNotFoundError:
                return None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except Exception as failure:
            self._log.close()
            raise self._unwritable(failure) from None

    def _once(
        self,
        commit: Callable[[Any], None],
        app_id: str,
        version: int,
        note: Mapping[str, str] = MappingProxyType({}),
        is_made: bool = False,
    ) -> None:
        """Call `commit` with the table as it is, until it has written, or the table has a version
        of an application; `is_made` as of `check_new`."""
        for tries in range(_TRIES):
            try:
                table = self._log.table or self._open()
                if self._id not in ("", self.table_id()):
                    raise made_again(self.uri, version)
                if self._written(app_id, version):
                    if note:
                        known = self._log.version_of(app_id)
                        given = (app_id, version, note, known, is_made and not tries)
                        check_new(self._log.current(), *given)
                    return
                commit(table)
                return
            except KeyrangeError:
                raise
            except self._delta.exceptions.TableNotFoundError:
                raise made_again(self.uri, version) from None
            except Conflict:
                # What others have changed is looked at.
                self._log.close()
            except Exception as failure:
                self._log.close()
                # The transaction may have landed all the same, or another driver's.
                if not self._has(app_id, version):
                    raise self._unwritable(failure) from None
        raise error("SINK_UNWRITABLE", "other writers were faster every time", table=self.uri)

    def _may_write(self, app_id: str, batch_id: int, driver: Driver | None) -> dict[str, int]:
        """The transactions of a batch. Raises TABLE_RESTORED, and COMMITS_FENCED where another
        driver has stopped this one."""
        self.check_restored(batch_id)
        if driver is None:
            return {app_id: batch_id}
        last = self._log.version_of(driver.application)
        if last is not None and last > driver.number:
            raise overtaken(last, source_id=driver.source_id, table=self.uri)
        return {app_id: batch_id, driver.application: driver.number}

    def _commit(
        self,
        files: Sequence[DataFile],
        written: Mapping[str, int],
        note: Mapping[str, str],
        changes: Sequence[Action] = (),
    ) -> None:
        actions = [*changes, *map(added, files)]
        self._log.append(lambda: actions, written, note)
        if not self.by.keeps_rules:
            # What Spark writes it sums up by itself, and its features may ask for more.
            self._log.checkpoint_in_turn()

    def _open(self) -> Any:
        """delta-rs's table, with the columns and properties of now."""
        self._log.refresh()
        return self._log.table

    def _written(self, app_id: str, version: int) -> bool:
        written = opened(self._log.version_of(app_id))
        return written is not None and written >= version

    def _create(self) -> Any:
        names = [each.name for each in self._columns]
        try:
            self._log.create(table_schema(self._schema, self._columns), partition_by=names)
        except Exception as failure:
            # Another writer may have been faster.
            try:
                return self._open()
            except Exception:
                raise self._unwritable(failure) from None
        return self._open()

    def _has(self, app_id: str, version: int) -> bool:
        with suppress(Exception):
            self._open()
            return self._written(app_id, version)
        return False

    def _fit(self, table: Any, schema: pa.Schema, by: WriterRules | None = None) -> TableFit:
        """What the table is beside rows of the schema."""
        given, rules = (self._given, self.evolves, self.keys), by or self.by
        return TableFit(table, self.uri, schema, *given, rules)

    def _check(self, table: Any, schema: pa.Schema | None = None) -> TableFit:
        """As `_fit`. Raises SINK_UNSUITABLE, SINK_TYPES_DIFFER."""
        fit = self._fit(table, schema or self._schema)
        self._columns = fit.columns
        if fit.why is not None:
            is_for_spark = self._fit(table, schema or self._schema, SPARK).why is None
            raise self._unsuitable(f"{fit.why}{BY_SPARK * is_for_spark}", fit.condition)
        return fit

    def _unsuitable(self, why: str, condition: str = "SINK_UNSUITABLE") -> KeyrangeError:
        return error(condition, f"the table does not take files: {why}", table=self.uri)

    def _unwritable(self, failure: Exception) -> KeyrangeError:
        return error("SINK_UNWRITABLE", text_of(failure, self._storage), table=self.uri)
