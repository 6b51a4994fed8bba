"""Commits that are prepared: what a consumer is to commit as soon as its transaction in Kafka is.

They are files beside the commit table, one for each run, which its next one is written over.
Nothing of them counts before somebody writes it to the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Commit
from keyrange.individual_commits.table.commit_schema import commits_of, rows_of
from keyrange.options.commits import beside
from keyrange.storage.directory import Directory
from keyrange.storage.object_store import FAILURES, failing_as

_SUFFIX: Final = "_transactions"
_MARK: Final = b"keyrange.mark"


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit, and the text of the mark that is out when it is to be written."""

    commit: Commit
    mark: str


class PreparedCommits:
    """The prepared commits beside a table. `storage`: settings of the object store. All calls raise
    COMMITS_UNREADABLE or COMMITS_UNWRITABLE where the store fails."""

    def __init__(self, table: str, storage: Mapping[str, str]) -> None:
        self._location, self._storage = beside(table, _SUFFIX), storage

    @cached_property
    def _directory(self) -> Directory:
        return Directory(self._location, self._storage)

    def write(self, prepared: PreparedCommit) -> None:
        """Keep a commit in the place of the one before of its run."""
        commit = prepared.commit
        rows = rows_of(commit).replace_schema_metadata({_MARK: prepared.mark.encode()})
        stream = pa.BufferOutputStream()
        with pa.ipc.new_file(stream, rows.schema) as file:
            file.write_table(rows)
        path = f"{_folder(commit.source_id)}/{commit.run_id}.arrow"
        with failing_as("COMMITS_UNWRITABLE", "a commit cannot be kept", path=self._location):
            self._directory.write(path, stream.getvalue().to_pybytes())

    def of(self, source_id: str) -> list[PreparedCommit]:
        """Those of a source. Raises COMMITS_DAMAGED for a file that is none."""
        folder = _folder(source_id)
        with failing_as("COMMITS_UNREADABLE", "prepared commits", path=self._location):
            names = sorted(self._directory.sizes(folder))
            files = {name: self._directory.read_if_there(f"{folder}/{name}") for name in names}
        # Whoever has seen to them has removed those that are not there any more.
        return [
            self._read(name, data, source_id) for name, data in files.items() if data is not None
        ]

    def remove(self, some: Iterable[PreparedCommit]) -> None:
        """Remove those that were read."""
        paths = [f"{_folder(each.commit.source_id)}/{each.commit.run_id}.arrow" for each in some]
        with failing_as("COMMITS_UNWRITABLE", "prepared commits", path=self._location):
            self._directory.remove_files(paths)

    def _read(self, name: str, data: bytes, source_id: str) -> PreparedCommit:
        try:
            rows = pa.ipc.open_file(pa.BufferReader(data)).read_all()
            [commit] = commits_of(rows, source_id)
            mark = rows.schema.metadata[_MARK].decode()
            if commit.source_id != source_id:
                raise ValueError(f"it is of source {commit.source_id}")
        except (KeyrangeError, KeyError, TypeError, *FAILURES) as fault:
            message = f"prepared commit {name} cannot be read: {fault}"
            raise error("COMMITS_DAMAGED", message, path=self._location) from None
        return PreparedCommit(commit, mark)


def _folder(source_id: str) -> str:
    # Names of groups may be any.
    return hashlib.sha256(source_id.encode(errors="replace")).hexdigest()[:32]
