"""`keyrange.state_reader`: the state of keys for who asks for single ones again and again, without
Spark, in the process that asks."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import invalid_options
from keyrange.individual_commits.old_state_files import first_since
from keyrange.individual_commits.table.commit_admin import Commits, open_commits
from keyrange.individual_commits.table.keyed_state_rows import (
    plain_rows,
    state_directory,
    table_columns,
    table_rows,
)
from keyrange.individual_commits.table.open_state import StatePlace, listed, opened_state
from keyrange.keyed_state.sorted_blocks import BLOCK_ROWS
from keyrange.keyed_state.variables import KEY
from keyrange.members.slot_directories import made_slots_directory
from keyrange.model.offsets import TopicPartition
from keyrange.options import check_names
from keyrange.options.commits import storage_in
from keyrange.ranges.sharing.shared_directory import take_private

_log = logging.getLogger(__name__)

# Another checkpoint may have gone on with the group.
_REOPEN_S: Final = 10.0
# As many keys as are asked for, so many times, are sorted at once.
_SORTED_LIMITS: Final = 4

Key = bytes | str
Names = str | Iterable[str]


def state_reader(
    table: str | PathLike[str],
    *,
    group: str = "",
    source: str = "",
    at: int | None = None,
    options: Mapping[str, str] | None = None,
    copies: str | PathLike[str] | None = None,
    follow_ms: int = 500,
) -> StateReader:
    """The state of keys that a `keyrange.job` keeps, to ask for single keys, without Spark.

    It shows what is committed, and follows the commits: it looks for new ones every `follow_ms`,
    or with 0 when `refresh` is called. `table`, `at`, `group`, `source` and `options` as of
    `keyrange.state`; with `at` it stays at that commit. What it reads it keeps on this host in the
    directory `copies`; without one it shares the copies of executors on this host (slot.directory).
    All threads may ask it. Close it, or use it as a context manager.

    Raises NO_COMMIT_TABLE, INVALID_OPTIONS where there is no such source or commit.
    """
    if follow_ms < 0:
        raise invalid_options(f"follow_ms must not be negative, and is {follow_ms}")
    named = dict(options or {})
    check_names(named)
    path, storage = fspath(table), storage_in(named)
    if copies is not None:
        try:
            take_private(Path(copies))
        except OSError as failure:
            raise invalid_options(f"copies cannot be kept there: {failure}") from None
        place = StatePlace(state_directory(path, named), storage, Path(copies))
    else:
        folded = {name.lower(): value for name, value in named.items()}
        shared = _shared_copies(folded.get("slot.directory", ""))
        place = StatePlace(state_directory(path, named), storage, shared)
    open_source = partial(open_commits, path, group, storage=storage)
    return StateReader(open_source, place, at, follow_ms, source)


def _shared_copies(chosen: str) -> Path | None:
    try:
        return made_slots_directory(chosen)
    except OSError as failure:
        _log.warning("the reader keeps no copies of state on this host: %s", failure)
        return None


class StateReader:
    """What `keyrange.state_reader` returns."""

    def __init__(
        self,
        open_source: Callable[[str], Commits],
        place: StatePlace,
        at: int | None = None,
        follow_ms: int = 0,
        source: str = "",
    ) -> None:
        """`open_source` opens the commits of a source by how its id begins; "" is for the last."""
        self._open_source, self._place, self._at, self._source = open_source, place, at, source
        self._commits, self._opened_at = open_source(source), time.monotonic()
        # Of the commits, and of what is copied.
        self._lock = threading.Lock()
        known = self._commits.table.known()
        if at is not None and not 1 <= at <= known.seq:
            raise invalid_options(f"at={at}: the commits are 1 to {known.seq}")
        known = known if at is None else self._commits.table.known(at)
        then = None if at is None else self._commits.last(at)
        time_ms = None if then is None else then.committed_at_ms
        self._shown = opened_state(place, self._commits, known, time_ms=time_ms)
        # Of what is shown there are copies, or there is no room for them.
        self._is_copied = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if at is None and follow_ms:
            self._thread = threading.Thread(
                target=self._follow, args=(follow_ms / 1000,), name="keyrange-state", daemon=True
            )
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def seq(self) -> int:
        """The commit whose state is shown."""
        return self._shown.seq

    def sizes(self) -> list[tuple[TopicPartition, int, int, int]]:
        """Of each partition about how many keys have state, and its bytes in files: a key may be in
        several runs; and up to which offset it was read, of all that share the state together."""
        shown, read = self._shown, Counter[TopicPartition]()
        for at, position in shown.known.items():
            read[shown.scope.home(at)] += position
        return [
            (at, sum(run.rows for run in runs), sum(run.size_bytes for run in runs), read[at])
            for at, runs in sorted(shown.blocks.items())
        ]

    def close(self) -> None:
        """Follow the commits no longer. What is shown may still be asked for."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def refresh(self) -> int:
        """Show the last commit, with copies of its state on this host; its number. Raises as the
        commit table does, STATE_GONE, STATE_DAMAGED, STATE_UNREADABLE."""
        with self._lock:
            if self._at is None:
                self._show_last()
        return self.seq

    def get(
        self,
        key: Key,
        partition: tuple[str, int] | None = None,
        *,
        variables: Names = (),
    ) -> dict[str, Any] | None:
        """The variables of a key that it has, None where it has none; of these alone where some are
        named. A text is its UTF-8.

        State belongs to a key of a partition: raises INVALID_OPTIONS where several partitions have
        some of the key and none is named, for a partition that the commits do not know, a variable
        that the state has not, and for what is no key; NO_STATE where no job keeps state in these
        commits. Raises STATE_GONE, STATE_DAMAGED, STATE_UNREADABLE."""
        found = self.get_all(key, partition, variables=variables)
        if len(found) > 1:
            places = ", ".join(map(str, found))
            raise invalid_options(
                f"several partitions have state of the key, {places}: name one (partition)"
            )
        return next(iter(found.values()), None)

    def get_all(
        self,
        key: Key,
        partition: tuple[str, int] | None = None,
        *,
        variables: Names = (),
    ) -> dict[TopicPartition, dict[str, Any]]:
        """The same of each partition that has state of the key. Raises as `get` does, but for
        several partitions."""
        shown = self._shown.of(variables)
        found = shown.found([_bytes(key)], partition)
        return {at: plain_rows(rows, shown.form)[0][1] for at, rows in found if rows.num_rows}

    def get_many(
        self,
        keys: Iterable[Key],
        partition: tuple[str, int] | None = None,
        *,
        variables: Names = (),
    ) -> pa.Table:
        """A row for each partition and key that has any of the state: topic, partition, key, and a
        column for each variable. Raises as `get` does, but for several partitions."""
        shown = self._shown.of(variables)
        found = [
            table_rows(at, rows, shown.form)
            for at, rows in shown.found(map(_bytes, listed("keys", keys)), partition)
        ]
        return pa.Table.from_batches(found, table_columns(shown.form))

    def scan(
        self,
        prefix: Key = b"",
        *,
        from_key: Key | None = None,
        until_key: Key | None = None,
        limit: int = 1_000,
        partition: tuple[str, int] | None = None,
        variables: Names = (),
    ) -> pa.Table:
        """The first `limit` keys, in the order of their bytes, that begin with `prefix` and lie in
        [from_key, until_key): rows as of `get_many`. It reads all keys. Raises as `get_many`."""
        if not isinstance(limit, int) or limit < 0:
            raise invalid_options(f"limit is a number of keys, and not {limit!r:.100}")
        shown = self._shown.of(variables)
        found = pa.Table.from_batches([], table_columns(shown.form))
        for at in shown.chosen(partition):
            for rows in shown.rows(at):
                keys = rows.column(KEY)
                keep = pc.starts_with(keys, _bytes(prefix))
                if from_key is not None:
                    keep = pc.and_(keep, pc.greater_equal(keys, _bytes(from_key)))
                if until_key is not None:
                    keep = pc.and_(keep, pc.less(keys, _bytes(until_key)))
                kept = table_rows(at, rows.filter(keep), shown.form)
                found = pa.concat_tables([found, pa.Table.from_batches([kept])])
                if found.num_rows > _SORTED_LIMITS * limit + BLOCK_ROWS:
                    found = _first_keys(found, limit)
        return _first_keys(found, limit)

    def as_of(self, at: int | datetime) -> StateReader:
        """A reader of the state at an earlier commit of the source that is shown: its number, or
        the last one until a time, which counts as UTC without a zone. Raises INVALID_OPTIONS where
        there is none."""
        with self._lock:
            own = self._commits
            if isinstance(at, datetime):
                until_s = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
                last = own.table.known().seq
                at = first_since(own.table, last, int(until_s * 1000) + 1) - 1
        return StateReader(self._open_source, self._place, at, source=own.source_id)

    def _follow(self, every_s: float) -> None:
        failed = ""
        while True:
            try:
                with self._lock:
                    self._show_last()
                failed = ""
            except Exception as failure:
                # The thread has nobody above it. What is shown stays.
                text = str(failure) or type(failure).__name__
                if text != failed:
                    _log.warning("state is shown as of commit %d: %s", self.seq, text)
                failed = text
            if self._stop.wait(every_s):
                return

    def _show_last(self) -> None:
        commits = self._commits
        if time.monotonic() - self._opened_at > _REOPEN_S:
            found, self._opened_at = self._open_source(self._source), time.monotonic()
            # One that has only begun says nothing of state.
            if found.source_id != commits.source_id and found.table.known().states:
                commits = found
        shown, known = self._shown, commits.table.known()
        is_new = (commits.source_id, known.seq) != (shown.source_id, shown.seq)
        if is_new or not self._is_copied:
            self._shown = opened_state(self._place, commits, known, shown, copying=True)
            self._is_copied, self._commits = True, commits
            self._place.sweep(commits.source_id, known)


def _first_keys(rows: pa.Table, limit: int) -> pa.Table:
    return rows.sort_by([(KEY, "ascending"), ("topic", "ascending"), ("partition", "ascending")])[
        :limit
    ]


def _bytes(key: Key) -> bytes:
    """Raises INVALID_OPTIONS for what is no key."""
    if not isinstance(key, (str, bytes)):
        raise invalid_options(
            f"a key is bytes, or a text that stands for its UTF-8, and no {type(key).__name__}"
        )
    return key.encode() if isinstance(key, str) else key
