"""The log of a Delta table, which stays open and is followed with few calls of a store.

A store of objects takes some ten milliseconds for a call, and bills a list like ten reads. delta-rs
lists the log to open a table, and with each write. So delta-rs opens it, and says what protocol,
columns and files it has; from there on what others write is one file for each version, which is
read, or is not there; and to write is one conditional put of the next one. That is all that an
append is, by Delta's protocol, where the table's features ask no more of a writer.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa

from keyrange.errors import error
from keyrange.storage.directory import Directory, Entry
from keyrange.storage.failure_text import text_of
from keyrange.storage.log_actions import Action, is_restore
from keyrange.storage.logged_files import LoggedFiles
from keyrange.storage.table_store import Conflict
from keyrange.storage.upkeep import Upkeep
from keyrange.text.packages import install_line

# A look that would read more files of the log than this opens the table anew.
_FOLLOWED: Final = 50
# Writers of other applications only race for the next version of the log.
_TRIES: Final = 1000
_CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
# Versions between two checkpoints where a table says nothing; each takes a list of the log.
_CHECKPOINT_EVERY: Final = 100
# Files of a log stay for longer than that.
_PAUSE_S: Final = 60.0
# In each of keyrange's files of the log: what makes it unlike any other, and the tag of the one
# that its writer saw before it.
_MARK: Final = "keyrange.write"
_AFTER: Final = "keyrange.after"
# A table whose log has its own clock, in which each version is later than the one before.
_TIMES: Final = "delta.enableInCommitTimestamps"
# Whether old files of the log go at all, which delta-rs does not ask.
_REMOVES: Final = "delta.enableExpiredLogCleanup"
# Each checkpoint writes it anew.
_LAST_CHECKPOINT: Final = "_delta_log/_last_checkpoint"
# How long files of the log stay, and what a checkpoint says of files that the table has no more, by
# which VACUUM leaves these. Of an interval of Spark's in another form delta-rs takes a part, or 30
# days and a week.
_LOG_STAYS: Final = "delta.logRetentionDuration"
_FILES_STAY: Final = "delta.deletedFileRetentionDuration"
_INTERVAL: Final = re.compile(r"interval +\d+ +(micro|milli)?(second|minute|hour|day|week)s?")

# What delta-rs says of settings of a store whose values it does not take.
_NO_VALUE: Final = "Failed to parse config"


class DeltaLog:
    """One table. `settings` are those of the object store, `files` follow what the log says of
    files. What fails is raised as it is."""

    def __init__(
        self, uri: str, settings: Mapping[str, str], files: LoggedFiles | None = None
    ) -> None:
        self.delta = load_deltalake()
        self.uri = uri
        self._settings = dict(settings)
        self._files = files
        # delta-rs's, of the version that was opened; None where it is not open.
        self.table: Any = None
        # The one that was seen last, open or not, and its tag; -1 before the first look.
        self.version = -1
        self._tag = ""
        # What is known of transactions, None for none.
        self._transactions: dict[str, int | None] = {}
        # Whether the version that was seen last was read, or written, by the call before.
        self._is_fresh = False
        # Whether the look before found what others had written.
        self._has_news = False
        self._upkeep = Upkeep(uri, settings)
        # Whether somebody has restored an older version behind the one that was seen first.
        self.is_restored = False

    @cached_property
    def directory(self) -> Directory:
        return Directory(self.uri, self._settings)

    def refresh(self) -> bool:
        """See what others have written; whether it is another version, or was opened anew. That
        another table stands in its place is seen where nothing was read or written just before: to
        write asks for that anyway.

        Raises delta-rs's TableNotFoundError where there is none; it is not open then.
        """
        if self.table is None:
            self.open()
            return True
        first = self.version + 1
        for entry in self._entries():
            too_many = self.version - first >= _FOLLOWED
            if too_many or not self._follows(entry) or not self._take(entry):
                self.open()
                return True
        self._has_news = self.version >= first
        if self._has_news:
            return True
        fresh, self._is_fresh = self._is_fresh, False
        if fresh or self.is_same():
            return False
        self.open()
        return True

    def open(self) -> None:
        self.close()
        # The URI is of a store that both know, or the first says so.
        if self.directory.is_local and (taken := unquote(self.uri)) != self.uri:
            raise ValueError(f"delta-rs takes {self.uri} for {taken}")
        try:
            table = self.delta.DeltaTable(self.uri, storage_options=self._settings)
        except self.delta.exceptions.DeltaError as failure:
            if _NO_VALUE not in str(failure):
                raise
            text = text_of(failure, self._settings)
            raise error("INVALID_OPTIONS", f"settings of the store: {text}") from None
        version = int(table.version())
        tag = self._tag_of(version)
        if self._files is not None:
            self._files.opened(table)
        if 0 <= self.version < version:
            since = table.history(version - self.version)
            self.is_restored = self.is_restored or any(map(is_restore, since))
        self.table, self.version, self._tag = table, version, tag

    def create(self, columns: pa.Schema, **more: Any) -> None:
        """Make the table, with what else delta-rs is to know of it. The next look opens it."""
        self.delta.DeltaTable.create(
            self.uri,
            columns,
            mode="error",
            storage_options=self._settings,
            # Tried again after another writer has made the table, it would change its identity.
            commit_properties=self.delta.CommitProperties(max_commit_retries=0),
            **more,
        )

    def close(self) -> None:
        """The next look opens it: what a table is worth after a failure is not said anywhere."""
        self.table, self._is_fresh = None, False
        self._transactions.clear()

    def current(self) -> Any:
        """delta-rs's table, of the version that was seen last."""
        if int(self.table.version()) != self.version:
            self.table.update_incremental()
        return self.table

    def checkpoint(self) -> None:
        """Sum the log up, and remove files of it whose time has come, where the table lets them
        go."""
        table = self.current()
        settings = table.metadata().configuration
        if not _is_read(given := settings.get(_FILES_STAY)):
            raise ValueError(
                f"delta-rs does not know {_FILES_STAY} = {given!r}: set it (ALTER TABLE ... SET "
                "TBLPROPERTIES) to one number and one unit, such as 'interval 30 days'"
            )
        table.create_checkpoint()
        if is_on(settings, _REMOVES, by_default=True) and _is_read(settings.get(_LOG_STAYS)):
            table.cleanup_metadata()

    def ahead_s(self) -> float:
        """By how much this host's clock is ahead of the store's, right behind a `checkpoint`: what
        delta-rs goes by is the one, and files have times of the other."""
        now_s = time.time()
        written_at_s = self.directory.written_at_s(_LAST_CHECKPOINT)
        return 0.0 if written_at_s is None else now_s - written_at_s

    def checkpoint_in_turn(self) -> None:
        """As often as the table's properties say. What fails costs who opens the table, and is
        tried again."""
        self._upkeep.look()
        settings = self.table.metadata().configuration
        is_turn = self.version % int(settings.get(_CHECKPOINT_INTERVAL, _CHECKPOINT_EVERY)) == 0
        if is_turn and self._upkeep.do(DeltaLog(self.uri, self._settings)._checkpoint_once):
            self.close()

    def _checkpoint_once(self) -> None:
        with self._upkeep.attempt(self.close):
            self.open()
            self.checkpoint()

    def is_same(self) -> bool:
        """Whether what was seen last is still there, and not another table in its place."""
        return self._tag_of(self.version) == self._tag

    def version_of(self, app_id: str) -> int | None:
        """The version of an application's last transaction; None where none is known."""
        if app_id not in self._transactions:
            if self.table is None:
                self.open()
            self._transactions[app_id] = self.table.transaction_version(app_id)
        return self._transactions[app_id]

    def transactions(self) -> dict[str, int | None]:
        """Those that were asked for."""
        return dict(self._transactions)

    def told_restored(self) -> bool:
        """Whether it is restored, once."""
        told, self.is_restored = self.is_restored, False
        return told

    def append(
        self,
        actions: Callable[[], Iterable[Action]],
        transactions: Mapping[str, int],
        note: Mapping[str, str] = MappingProxyType({}),
        operation: str = "WRITE",
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write the next version: what `actions` makes, once it is sure that the table is there,
        and the new versions of some applications. `note` stands in the log. `holds`: whether the
        actions are right behind what others have written, where these were faster.

        Raises Conflict where they are not, the table is not the one that was seen, has other
        columns, properties or features by now, was restored, or has another transaction of one of
        the applications; and where others were faster each time. A call that failed may have
        written all the same.
        """
        before = {app_id: self.version_of(app_id) for app_id in transactions}
        opened, looked_at_s = self.table, time.time()
        made, made_at_s = self._made(actions), time.time()
        for _ in range(_TRIES):
            data = self._written(made, transactions, note, operation)
            if abs(time.time() - made_at_s) > _PAUSE_S:
                # What was made may be gone: a vacuum takes what is old and no part of the table.
                raise Conflict
            tag = self.directory.write_once(_path(self.version + 1), data)
            if tag is not None:
                if abs(time.time() - looked_at_s) > _PAUSE_S and not self.is_same():
                    # This process, or its host, stood still, and the log was summed up: its next
                    # version is another one, and nobody reads what stands there now.
                    raise Conflict
                if not self._take(Entry(data, tag)):
                    self.open()
                return
            restored, looked_at_s = self.is_restored, time.time()
            self.refresh()
            if (
                self.table is not opened
                or self.is_restored > restored
                or any(self.version_of(app_id) != version for app_id, version in before.items())
                or not holds()
            ):
                raise Conflict
        raise Conflict

    def _made(self, actions: Callable[[], Iterable[Action]]) -> list[Action]:
        if self.directory.is_local:
            # Files would make the place of a table anew that is gone.
            if not self.is_same():
                raise Conflict
            return list(actions())
        # A store takes its time for each.
        with ThreadPoolExecutor(1) as beside:
            is_same = beside.submit(self.is_same)
            made = list(actions())
            if not is_same.result():
                raise Conflict
            return made

    def _written(
        self,
        actions: Sequence[Action],
        transactions: Mapping[str, int],
        note: Mapping[str, str],
        operation: str,
    ) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        about: dict[str, Any] = {"timestamp": now_ms, "operation": operation}
        settings = self.table.metadata().configuration
        if is_on(settings, _TIMES):
            about = {"inCommitTimestamp": max(now_ms, self._time_of_last() + 1), **about}
        if operation == "WRITE":
            partitions = json.dumps(self.table.metadata().partition_columns)
            about["operationParameters"] = {"mode": "Append", "partitionBy": partitions}
            about["isBlindAppend"] = True
        about |= {"engineInfo": "keyrange", **note, _MARK: uuid.uuid4().hex, _AFTER: self._tag}
        lines: list[Action] = [{"commitInfo": about}]
        lines += [
            {"txn": {"appId": app_id, "version": version, "lastUpdated": now_ms}}
            for app_id, version in transactions.items()
        ]
        return "\n".join(json.dumps(each) for each in [*lines, *actions]).encode() + b"\n"

    def _time_of_last(self) -> int:
        """When the version that was seen last was written, as its log entry says; 0 where that is
        not there any more."""
        entry = self.directory.entry(_path(self.version))
        first = json.loads(entry.data.partition(b"\n")[0]) if entry is not None else {}
        return int(first.get("commitInfo", {}).get("inCommitTimestamp", 0))

    def _entries(self) -> Iterator[Entry]:
        """What others have written since, of which the one before is to be taken first. Who found
        one in the look before, as who plans does in each, asks beside it whether another follows:
        a store takes its time for each."""
        count = 2 if self._has_news else 1
        while True:
            paths = [_path(self.version + 1 + each) for each in range(count)]
            for entry in self.directory.of_each(self.directory.entry, paths):
                if entry is None:
                    return
                yield entry

    def _follows(self, entry: Entry) -> bool:
        """Whether the next file of the log is that of the table that was seen."""
        return f'"{_AFTER}": {json.dumps(self._tag)}'.encode() in entry.data or self.is_same()

    def _take(self, entry: Entry) -> bool:
        """Take in the next version; whether it left the table what it was."""
        try:
            actions = [json.loads(line) for line in entry.data.splitlines() if line]
            if any("metaData" in each or "protocol" in each for each in actions):
                return False
            for each in actions:
                if "txn" in each:
                    self._transactions[each["txn"]["appId"]] = each["txn"]["version"]
                elif is_restore(each.get("commitInfo", {})):
                    self.is_restored = True
                if self._files is not None:
                    self._files.take(each)
        except (ValueError, KeyError, TypeError):
            # It is for delta-rs to say what is wrong with it.
            return False
        self.version, self._tag, self._is_fresh = self.version + 1, entry.tag, True
        return True

    def _tag_of(self, version: int) -> str:
        """ "" where the file is not there: a table that was not written to for long may have a
        checkpoint alone."""
        return self.directory.tag(_path(version)) or ""


def _path(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def is_on(settings: Mapping[str, Any], name: str, by_default: bool = False) -> bool:
    """Whether a table's properties turn something on."""
    return str(settings.get(name, by_default)).lower() == "true"


def _is_read(interval: str | None) -> bool:
    """Whether delta-rs takes an interval of a table's properties for what it is."""
    return interval is None or _INTERVAL.fullmatch(interval) is not None


def load_deltalake() -> ModuleType:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError:
        message = f"keyrange writes Delta tables with deltalake: {install_line('commits')}"
        raise error("PACKAGE_NOT_FOUND", message) from None
    return cast(ModuleType, deltalake)
