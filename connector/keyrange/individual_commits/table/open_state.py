"""The state of keys at a commit, opened to look up single keys: from copies on this host where
there are any, else from its files."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import invalid_options
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.keyed_state_rows import StoredState, no_state
from keyrange.keyed_state.cache import (
    OTHERS_UNUSED_S,
    StateCache,
    copies_of,
    place_of,
    sweep_idle,
)
from keyrange.keyed_state.expiry import with_state
from keyrange.keyed_state.model.state_runs import StateRun, newest_first
from keyrange.keyed_state.sorted_blocks import (
    Blocks,
    Keys,
    LoadedBlocks,
    all_in,
    hashes_of,
    look_up,
    merged,
    within,
)
from keyrange.keyed_state.state_files import FileBlocks
from keyrange.keyed_state.variables import KEY, StateForm
from keyrange.model.key_ranges import SPACE, hash_of, subtract
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import StateScope
from keyrange.storage.directory import Directory

# Partitions that an error lists.
_NAMED: Final = 10


@dataclass(frozen=True)
class StatePlace:
    """Where the state of a commit table's queries is, and copies of it on this host; None where
    there is no room for them. `storage`: settings of the object store."""

    directory: str
    storage: Mapping[str, str] = field(repr=False)
    copies: Path | None

    def at(self, known: Snapshot) -> StoredState:
        """The state at a commit, of any time."""
        return StoredState(self.directory, known.runs_there, 0, self.storage)

    def cache(
        self, source_id: str, known: Snapshot, partition: TopicPartition
    ) -> StateCache | None:
        """The copies of a partition's state."""
        if self.copies is None:
            return None
        topic_id = known.states.topic_id_of(partition) or ""
        return StateCache(copies_of(self.copies, source_id) / place_of(topic_id, partition))

    def sweep(self, source_id: str, known: Snapshot) -> None:
        """Remove copies of runs that are over. Executors may keep theirs there too, and those of
        keys that are no executor's on this host nobody else removes."""
        if self.copies is None:
            return
        for partition, runs in known.runs_there.items():
            if (cache := self.cache(source_id, known, partition)) is not None:
                cache.sweep(SPACE, runs, OTHERS_UNUSED_S)
        sweep_idle(copies_of(self.copies, source_id))


class _OneAtATime:
    """A run that is read from its file, by one thread at a time."""

    def __init__(self, blocks: FileBlocks) -> None:
        self._blocks, self._lock = blocks, threading.Lock()
        self.bounds = blocks.bounds

    def block(self, at: int) -> pa.RecordBatch:
        with self._lock:
            return self._blocks.block(at)


def listed(argument: str, several: object) -> list[Any]:
    """Raises INVALID_OPTIONS for a text, of which each letter would count, and for one value."""
    if isinstance(several, (str, bytes)) or not isinstance(several, Iterable):
        raise invalid_options(f"{argument} are several, as in a list, and not {several!r:.100}")
    return list(several)


@dataclass(frozen=True)
class OpenState:
    """The state of a source at a commit: the runs of each partition, opened, the newest first.
    `time_ms`: that of a commit that is asked for by its number, in ms since 1970; None for now.
    `known`: the partitions that the commits know of, with how far each was read. `is_kept`: whether
    a job keeps state in them. `scope`: which of them share it. `form`: what variables are told of.
    """

    source_id: str
    seq: int
    form: StateForm
    blocks: Mapping[TopicPartition, Mapping[StateRun, Blocks]]
    time_ms: int | None
    known: Mapping[TopicPartition, int]
    is_kept: bool
    scope: StateScope

    def of(self, variables: str | Iterable[str]) -> OpenState:
        """The state in some variables alone, none for all. Raises INVALID_OPTIONS for one that is
        not there."""
        names = [variables] if isinstance(variables, str) else listed("variables", variables)
        if not names or not self.is_kept:
            return self
        if unknown := [name for name in names if name not in self.form.names]:
            known = ", ".join(self.form.names)
            raise invalid_options(f"no variable {str(unknown[0])[:100]!r}; there are: {known}")
        chosen = tuple(each for each in self.form.variables if each.name in names)
        return replace(self, form=StateForm(chosen))

    def left(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keys that have any of the state that is told of, without what has expired."""
        now_ms = time.time_ns() // 1_000_000 if self.time_ms is None else self.time_ms
        return with_state(rows, self.form, now_ms)

    def chosen(self, partition: tuple[str, int] | None) -> list[TopicPartition]:
        """All partitions, or the one that is named, if it has state. Raises INVALID_OPTIONS for one
        that is not there, NO_STATE where no job keeps any."""
        if not self.is_kept:
            raise no_state(self.seq)
        if partition is None:
            return sorted(self.blocks)
        if not (isinstance(partition, tuple) and len(partition) == 2):
            raise invalid_options(f"a partition is ('orders', 3), and not {partition!r:.100}")
        if partition not in self.known:
            named = [str(TopicPartition(*each)) for each in sorted(self.known)[:_NAMED]]
            text = f"the commits know of no partition {partition}; they know of: {', '.join(named)}"
            raise invalid_options(text)
        home = self.scope.home(TopicPartition(*partition))
        return [at for at in self.blocks if at == home]

    def found(
        self, keys: Iterable[bytes], partition: tuple[str, int] | None
    ) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """The rows of those keys that have any state, by partition."""
        ordered = sorted((hash_of(each), each) for each in set(keys))
        if not ordered:
            return []
        if len(ordered) == 1:
            return list(self._of_one(*ordered[0], partition))
        hashes, own = zip(*ordered, strict=True)
        wanted = Keys(np.array(hashes, np.int64), pa.array(own, pa.binary()))
        return [
            (at, self.left(look_up([*blocks.values()], wanted, self.form)))
            for at, blocks in ((at, self.blocks[at]) for at in self.chosen(partition))
        ]

    def _of_one(
        self, key_hash: int, key: bytes, partition: tuple[str, int] | None
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """`found` of one key, without what many are worth."""
        for at in self.chosen(partition):
            row = _newest_row(self.blocks[at].values(), key_hash, key)
            if row is not None:
                yield at, self.left(self.form.fitted(row))

    def rows(self, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
        """All keys of a partition that have any state."""
        return merged([*self.blocks[partition].values()], self.form, self.left)


def _newest_row(runs: Iterable[Blocks], key_hash: int, key: bytes) -> pa.RecordBatch | None:
    """What the newest run says of a key that says something of it."""
    for run in runs:
        lowest, highest = run.bounds
        at = int(highest.searchsorted(key_hash))
        if at == len(highest) or lowest[at] > key_hash:
            continue
        block = run.block(at)
        hashes = hashes_of(block)
        row = int(hashes.searchsorted(key_hash))
        # Another key may have this hash.
        while row < len(hashes) and hashes[row] == key_hash:
            if block.column(KEY)[row].as_py() == key:
                return block.slice(row, 1)
            row += 1
    return None


def opened_state(
    place: StatePlace,
    commits: Commits,
    known: Snapshot,
    before: OpenState | None = None,
    copying: bool = False,
    time_ms: int | None = None,
) -> OpenState:
    """The state at a commit, with what was opened `before`. With `copying` all of it has a copy on
    this host, as far as there is room. Raises STATE_GONE, STATE_DAMAGED, STATE_UNREADABLE."""
    files, stored = Directory(place.directory, place.storage), place.at(known)
    form, source_id = stored.form, commits.source_id
    opened = (
        {} if before is None else {r: b for at in before.blocks.values() for r, b in at.items()}
    )
    blocks = {}
    for partition, runs in stored.runs.items():
        cache = place.cache(source_id, known, partition)
        blocks[partition] = {
            run: _opened_run(files, run, form, cache, opened.get(run), copying)
            for run in newest_first(runs)
        }
    positions = dict(zip(known.states, known.states.positions.tolist(), strict=True))
    told = (time_ms, positions, bool(known.runs), known.scope)
    return OpenState(source_id, known.seq, form, blocks, *told)


def _opened_run(
    files: Directory,
    run: StateRun,
    form: StateForm,
    cache: StateCache | None,
    before: Blocks | None,
    copying: bool,
) -> Blocks:
    if isinstance(before, LoadedBlocks):
        return before
    found = _copied(cache, run)
    if found is None and copying and cache is not None:
        source = FileBlocks(files, run, form)
        cache.keep(run, (within(block, run.span) for block in all_in(source)), source.schema)
        found = _copied(cache, run)
    if found is not None:
        return found
    return before or _OneAtATime(FileBlocks(files, run, form))


def _copied(cache: StateCache | None, run: StateRun) -> LoadedBlocks | None:
    parts = [] if cache is None else cache.parts(run)
    if subtract([run.span], [span for span, _ in parts]):
        return None
    return LoadedBlocks([block for _, part in parts for block in all_in(part)])
