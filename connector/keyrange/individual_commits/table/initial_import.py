"""State of files or of a Delta table that one process imports, a part at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from keyrange.individual_commits.table.initial_state import InitialState, InitialTopic
from keyrange.keyed_state.initial_rows import InitialRows, unfit
from keyrange.keyed_state.initial_runs import InitialFile, InitialRun, by_bucket
from keyrange.keyed_state.initial_spill import buckets_of, sorted_rows
from keyrange.storage.directory import Directory
from keyrange.storage.given_rows import GivenRows


@dataclass(frozen=True, slots=True)
class Imported:
    """The runs of an import, and how many rows were left out, whose keys had no value."""

    runs: list[InitialRun]
    empty: int

    @property
    def keys(self) -> int:
        """How many keys have state."""
        return sum(each.run.rows for each in self.runs)


@dataclass(frozen=True, slots=True)
class Import:
    """Who imports, and from where, at `now_ms` (ms since 1970)."""

    who: str
    why: str
    now_ms: int


def import_rows(
    state: InitialState,
    rows: InitialRows,
    topics: Mapping[str, InitialTopic],
    given: GivenRows,
    said: Import,
) -> Imported:
    """Import rows that are given, once the import has begun. Raises INITIAL_STATE_UNFIT,
    STATE_UNWRITABLE, COMMITS_FENCED."""
    files = Directory(state.directory, state.storage)
    file = InitialFile(files, state.source_id, rows.form, said.now_ms)
    imported = _written(file, rows, given)
    finish(state, topics, imported, said)
    return imported


def try_rows(state: InitialState, rows: InitialRows, given: GivenRows, now_ms: int) -> Imported:
    """What `import_rows` would import. The runs are written to this machine for a while, and
    nowhere else. Raises INITIAL_STATE_UNFIT, STATE_UNWRITABLE."""
    with tempfile.TemporaryDirectory(prefix="keyrange-import-") as home:
        file = InitialFile(Directory(home), state.source_id, rows.form, now_ms)
        imported = _written(file, rows, given)
    _check_any(imported)
    return imported


def _written(file: InitialFile, rows: InitialRows, given: GivenRows) -> Imported:
    buckets = buckets_of(rows, given)
    found = sorted_rows(rows, given, buckets)
    return Imported(file.write(by_bucket(found, buckets, rows.form)), file.empty)


def finish(
    state: InitialState, topics: Mapping[str, InitialTopic], imported: Imported, said: Import
) -> None:
    """Let an import count. Raises INITIAL_STATE_UNFIT where there is no key, COMMITS_FENCED."""
    _check_any(imported)
    state.commit(imported.runs, topics, said.who, said.why, said.now_ms)


def _check_any(imported: Imported) -> None:
    if not imported.runs:
        raise unfit(f"{imported.empty or 'no'} rows, and none of a key that has a value")
