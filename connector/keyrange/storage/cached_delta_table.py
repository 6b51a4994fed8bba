"""A Delta table that stays open, and is looked at again with few calls.

A store of objects takes some ten milliseconds for a call, and bills a list like ten reads. To open
a table, delta-rs lists its log and reads what was written since the last checkpoint, and once more
to say the version of a transaction. So a table stays open, and each look reads one file of the log:
the one of the version that was seen last says whether it is the same table, and the next ones,
where they are there, which transactions came since.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, cast

import pyarrow.fs

from keyrange.errors import error
from keyrange.text.packages import install_line

# A table goes through all versions since it was opened with every call, whatever checkpoints there
# are: after 300 of them a write took twice its time.
_REOPEN_AFTER: Final = 50
_MARK: Final = "keyrange.write"
# More than a file of the log has that names some files.
_ENTRY_BYTES: Final = 1 << 20
# No file of a log has it.
_NOWHERE: Final = b"\0"


class CachedDeltaTable:
    """One table. `storage` are settings of the object store. What fails is raised as it is."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        self.delta = load_deltalake()
        self.uri = uri
        self._storage = dict(storage)
        # None where it is not open.
        self.table: Any = None
        self._files: pyarrow.fs.FileSystem | None = None
        # In the log's file of this version, and in no other table's.
        self._mark = b""
        # What is known of this version's transactions, None for none.
        self._transactions: dict[str, int | None] = {}
        self._opened_at = 0
        # Whether somebody has restored an older version behind the one that was seen first.
        self.is_restored = False
        # The version that was seen last; None before the first look.
        self._seen: int | None = None

    @property
    def version(self) -> int:
        return int(self.table.version())

    @property
    def files(self) -> pyarrow.fs.FileSystem:
        if self._files is None:
            handler = self.delta.fs.DeltaStorageHandler(self.uri, self._storage)
            self._files = pyarrow.fs.PyFileSystem(handler)
        return self._files

    def refresh(self) -> bool:
        """See what others have written; whether it is another version, or was opened anew.

        Raises TableNotFoundError where there is none; it is not open then.
        """
        if self.table is None or not self.is_same():
            self.open()
            return True
        after = self.version + 1
        entries: list[bytes] = []
        while after + len(entries) - self._opened_at <= _REOPEN_AFTER:
            entry = self._entry(after + len(entries))
            if entry is None:
                break
            entries.append(entry)
        else:
            self.open()
            return True
        if not entries:
            return False
        self.table.update_incremental()
        if self.version != after + len(entries) - 1:
            # Others go on writing.
            self.open()
            return True
        self._add(entries)
        self._seen = self.version
        return True

    def open(self) -> None:
        self.close()
        self.table = self.delta.DeltaTable(self.uri, storage_options=self._storage)
        self._look_again()
        self._opened_at = self.version
        if self._seen is not None and self._seen < self.version:
            since = self.table.history(self.version - self._seen)
            self.is_restored = self.is_restored or any(map(is_restore, since))
        self._seen = self.version

    def close(self) -> None:
        """The next look opens it: what a table is worth after a failure is not said anywhere."""
        self.table = self._files = None
        self._transactions.clear()

    def is_same(self) -> bool:
        """Whether what was seen last is still there. A table goes by the number of its version
        alone: it would not notice that another was made in its place, and would write into it."""
        entry = self._entry(self.version)
        return entry is not None and self._mark in entry

    def version_of(self, app_id: str) -> int | None:
        """The version of an application's last transaction; None where none is known."""
        if app_id not in self._transactions:
            self._transactions[app_id] = self.table.transaction_version(app_id)
        return self._transactions[app_id]

    def transactions(self) -> dict[str, int | None]:
        """Those that were asked for."""
        return dict(self._transactions)

    def told_restored(self) -> bool:
        """Whether it is restored, once."""
        told, self.is_restored = self.is_restored, False
        return told

    def new_mark(self) -> dict[str, str]:
        """What a write by `table` is to leave in the log's file, for `written`."""
        return {_MARK: uuid.uuid4().hex}

    def written(
        self, mark: Mapping[str, str], before: int, transactions: Mapping[str, int]
    ) -> None:
        """Behind a write, by `table` and under transactions, that began at version `before`."""
        if self.version == before + 1:
            self._mark = mark[_MARK].encode()
            self._transactions |= transactions
            self._seen = self.version
        else:
            self._look_again()

    def _look_again(self) -> None:
        self._transactions.clear()
        self._mark = self._entry(self.version) or _NOWHERE

    def _add(self, entries: Sequence[bytes]) -> None:
        """Take in what the log says behind the version that was seen before."""
        self._mark = entries[-1]
        self.is_restored = self.is_restored or any(map(_is_restored_by, entries))
        try:
            for entry in entries:
                self._transactions |= _transactions_in(entry)
        except (ValueError, KeyError, TypeError):
            # It is for delta-rs to say what is wrong with it.
            self._transactions.clear()

    def _entry(self, version: int) -> bytes | None:
        """The log's file for a version; None where it is not there."""
        path = f"_delta_log/{version:020d}.json"
        # A file's size is asked for before it is read, unless it is known: one that is too great
        # is none to the store, and spares that call.
        sizes = {path: _ENTRY_BYTES}
        handler = self.delta.fs.DeltaStorageHandler
        try:
            guessed = handler.from_table(self.table._table, self._storage, sizes)
            entry = _read(pyarrow.fs.PyFileSystem(guessed), path)
            return entry if len(entry) < _ENTRY_BYTES else _read(self.files, path)
        except (FileNotFoundError, self.delta.exceptions.TableNotFoundError):
            return None


def _read(files: pyarrow.fs.FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as file:
        return bytes(file.read())


def is_restore(commit: Mapping[str, Any]) -> bool:
    """Whether rows went with a commit that were written behind an older version, by what its log
    entry or the table's history says of it."""
    return bool(commit.get("operation") == "RESTORE")


def _is_restored_by(entry: bytes) -> bool:
    said = (json.loads(line) for line in entry.splitlines() if b'"commitInfo"' in line[:16])
    return any(is_restore(each["commitInfo"]) for each in said)


def _transactions_in(entry: bytes) -> dict[str, int]:
    """The transactions of one file of the log: an action a line."""
    found: dict[str, int] = {}
    for line in entry.splitlines():
        if b'"txn"' in line[:16]:
            action = json.loads(line)["txn"]
            found[action["appId"]] = action["version"]
    return found


def load_deltalake() -> ModuleType:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.fs
        import deltalake.transaction
    except ImportError:
        message = f"keyrange writes Delta tables with deltalake: {install_line('commits')}"
        raise error("PACKAGE_NOT_FOUND", message) from None
    return cast(ModuleType, deltalake)
