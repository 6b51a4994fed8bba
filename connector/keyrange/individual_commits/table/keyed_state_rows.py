"""The state of keys as a commit names it, for who looks at it: rows in the order of hashes, single
keys, and what commits it can be taken back to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.keyed_state.expiry import with_state
from keyrange.keyed_state.model.state_runs import StateRun, clipped
from keyrange.keyed_state.sorted_blocks import Blocks, Keys, look_up, merged
from keyrange.keyed_state.state_files import FileBlocks
from keyrange.keyed_state.variables import KEY, KEY_HASH, StateForm, form_of
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of, split_evenly
from keyrange.model.offsets import TopicPartition
from keyrange.options.commits import beside
from keyrange.storage.directory import Directory

# How many commits that a partition can be taken back to are named to who asks for another.
_NAMED: Final = 5
# About so many runs are open at a time.
_OPENED_MAX: Final = 64

Runs = Mapping[TopicPartition, tuple[StateRun, ...]]


def state_directory(table: str, named: Mapping[str, str]) -> str:
    """Where the state of a commit table's queries is, unless options name another directory."""
    given = {name.lower(): value for name, value in named.items()}
    return given.get("statedirectory") or beside(table, "_state")


def no_state(seq: int, table: str = "") -> KeyrangeError:
    at = f" in {table}" if table else ""
    return error("NO_STATE", f"the commits{at} name no state at commit {seq}")


@dataclass
class StoredState:
    """The state at a commit, without what has expired by `time_ms` (ms since 1970)."""

    directory: str
    runs: Runs
    time_ms: int
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    _opened: dict[StateRun, FileBlocks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._files = Directory(self.directory, self.storage)

    def at(self, runs: Runs, time_ms: int) -> StoredState:
        """The state at another commit and time, with what is open: in the variables of this one,
        where these take it in."""
        found = StoredState(self.directory, runs, time_ms, self.storage, self._opened)
        with suppress(KeyrangeError):
            self.form.check(found.form.schema, "")
            found.form = self.form
        return found

    @cached_property
    def form(self) -> StateForm:
        """The variables of the file that was written last."""
        newest = max(
            (run for runs in self.runs.values() for run in runs),
            key=lambda run: run.until_seq,
            default=None,
        )
        if newest is None:
            return StateForm(())
        return form_of(self._blocks(newest, None).schema) or StateForm(())

    def _blocks(self, run: StateRun, form: StateForm | None) -> FileBlocks:
        found = self._opened.pop(run, None) or FileBlocks(self._files, run, form)
        self._opened[run] = found
        while len(self._opened) > _OPENED_MAX:
            # Who goes through all runs would have all that he has read in memory.
            self._opened.pop(next(iter(self._opened)))
        return found

    def rows(self, partition: TopicPartition, span: KeyRange = SPACE) -> Iterator[pa.RecordBatch]:
        """The keys of a partition that have any state, in blocks. Raises STATE_GONE,
        STATE_DAMAGED."""
        count = len(clipped(self.runs.get(partition, ()), span))
        for part in split_evenly(span, count // _OPENED_MAX):
            yield from merged(self.blocks(partition, part), self.form, self._left)

    def blocks(self, partition: TopicPartition, span: KeyRange) -> list[Blocks]:
        """The runs of a partition's keys, the newest first."""
        found = clipped(self.runs.get(partition, ()), span)
        return [self._blocks(run, self.form) for run in found]

    @property
    def columns(self) -> pa.Schema:
        """Those of `table_rows`."""
        return table_columns(self.form)

    def table_rows(
        self, partition: TopicPartition, span: KeyRange = SPACE
    ) -> Iterator[pa.RecordBatch]:
        """The same rows for people and tables."""
        for block in self.rows(partition, span):
            yield table_rows(partition, block, self.form)

    def _left(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return with_state(batch, self.form, self.time_ms)

    def of_key(self, partition: TopicPartition, key: bytes) -> dict[str, Any] | None:
        """The variables of a key, None where it has none."""
        key_hash = hash_of(key)
        wanted = Keys(np.array([key_hash], np.int64), pa.array([key], pa.binary()))
        blocks = self.blocks(partition, KeyRange(key_hash, key_hash + 1))
        batch = self._left(look_up(blocks, wanted, self.form))
        return plain_rows(batch, self.form)[0][1] if batch.num_rows else None

    def check(self) -> Iterator[tuple[str, int, str]]:
        """Each run's file, how many rows were read of it, and what is wrong with it, "" for
        nothing."""
        for partition, runs in sorted(self.runs.items()):
            for run in runs:
                try:
                    yield run.file, _checked(FileBlocks(self._files, run, None), run), ""
                except (KeyrangeError, ValueError) as failure:
                    yield run.file, 0, f"{partition}: {failure}"


def _checked(blocks: FileBlocks, run: StateRun) -> int:
    rows, last = 0, -1
    for at in range(len(blocks.bounds[0])):
        block = blocks.block(at)
        hashes, keys = block.column(0).to_numpy(), block.column(KEY).to_pylist()
        if len(hashes) and (int(hashes[0]) < last or (hashes[1:] < hashes[:-1]).any()):
            raise ValueError(f"{run.file} is not in the order of hashes")
        rows += len(hashes)
        last = int(hashes[-1]) if len(hashes) else last
        wrong = [key for key, at in zip(keys, hashes.tolist(), strict=True) if not _fits(key, at)]
        if wrong:
            raise ValueError(f"{run.file} has a key with the hash of another")
    return rows


def _fits(key: bytes, key_hash: int) -> bool:
    # An empty key of another hash says that a key range has no state.
    return not key or hash_of(key) == key_hash


def table_columns(form: StateForm) -> pa.Schema:
    """Topic, partition, key and the variables, with the ends of those that have a time to live."""
    kept = [each for each in form.schema if each.name != KEY_HASH]
    place = [("topic", pa.string()), ("partition", pa.int32())]
    return pa.schema([*place, *kept], metadata=form.schema.metadata)


def table_rows(partition: TopicPartition, rows: pa.RecordBatch, form: StateForm) -> pa.RecordBatch:
    """Rows of keys in the columns of `table_columns`."""
    columns, count = table_columns(form), rows.num_rows
    arrays = [
        pa.array([value] * count, field.type)
        for value, field in zip(partition, columns, strict=False)
    ]
    arrays += [rows.column(name) for name in columns.names[len(arrays) :]]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def plain_rows(batch: pa.RecordBatch, form: StateForm) -> list[tuple[bytes, dict[str, Any]]]:
    """Keys with those of their variables that they have; a variable of one column is its value."""
    fields = {variable.name: variable.fields for variable in form.variables}
    only = {name: each[0] if len(each) == 1 else "" for name, each in fields.items()}
    return [
        (
            row[KEY],
            {at: _plain(row[at], each) for at, each in only.items() if row[at] is not None},
        )
        for row in batch.to_pylist()
    ]


def _plain(value: Any, only: str) -> Any:
    if isinstance(value, list):
        return [_plain(each, only) for each in value]
    if isinstance(value, tuple):
        return [value[0], _plain(value[1], only)]
    # A timer is its time alone.
    return value[only] if only and isinstance(value, dict) else value


def runs_to_return_to(
    commits: Commits, known: Snapshot, partition: TopicPartition, to: int, files: Directory
) -> tuple[StateRun, ...]:
    """Where the state of a partition, whose files are in `files`, was when all below an offset was
    done and nothing above it.

    Raises INVALID_OPTIONS where no commit was so, or its files are not kept any more: records would
    be counted twice, or left out.
    """
    own = known.states[partition].topic_id
    others: list[tuple[int, Commit]] = []
    for position, commit in _whole_commits(commits, known, partition):
        if position == to:
            found = commits.table.known(commit.seq).runs_of(partition, own)
            _check_kept(found, files, partition, commit.seq)
            return found
        others.append((abs(position - to), commit))
    near = sorted(others, key=lambda each: each[0])[:_NAMED]
    named = ", ".join(
        f"{each.states[partition].position} (commit:{each.seq})"
        for _, each in sorted(near, key=lambda each: each[1].seq)
    )
    raise invalid_options(
        f"--to {to} of {partition}: its keys have state, which goes back with their records to "
        f"where all before was done and nothing behind; that is so at {named or 'no offset'}"
    )


def _whole_commits(
    commits: Commits, known: Snapshot, partition: TopicPartition
) -> Iterator[tuple[int, Commit]]:
    """The commits at which all of a partition below its position was done, newest first.

    Without those whose state is not that of these records any more: they lack a record below the
    position that was handed out again since, as a dead letter is, or have some that the log lost,
    or that come again since an earlier reset.
    """
    holds_until = known.states[partition].committed
    reset: set[int] = set()
    for commit in commits.table.backwards(known.seq):
        state = commit.states.get(partition)
        if state is None or state.topic_id != known.states[partition].topic_id:
            continue
        pending = {record.offset for record in state.pending}
        holds_until = min([holds_until, *(reset - pending)])
        reset = pending if commit.kind is CommitKind.RESET else set()
        is_whole = all(piece.scanned == state.position for piece in state.pieces) and not pending
        if is_whole and state.position <= holds_until:
            yield state.position, commit
        holds_until = min(holds_until, commit.cut_back.get(partition, holds_until))


def _check_kept(
    runs: tuple[StateRun, ...], files: Directory, partition: TopicPartition, seq: int
) -> None:
    # A list of all files would be one of millions.
    gone = [each for each in sorted({run.file for run in runs}) if files.size(each) is None]
    if gone:
        raise invalid_options(
            f"the state of {partition} at commit {seq} is not kept any more (state.retention): "
            f"{gone[0]} is gone; choose a later commit"
        )
