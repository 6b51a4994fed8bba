"""Timers that were given up and are set again: in the state of their keys, by the commit of a
replay, so that the query's next batch fires them.

A letter says that a timer was given up in a batch. It stands as long as the state of its key has
what that batch did: `commits reset` may have taken the state back to before, and then the timer is
there without it. A replay is noted at the letters before its commit, under the run of that commit,
and counts if the state has the commit. So a replay that ended in between has set nothing, and is
done again; and no timer is set twice for one letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from keyrange.individual_commits.model.commit import Commit, CommitKind, CommitTable, Snapshot
from keyrange.individual_commits.table.commit_admin import Commits
from keyrange.individual_commits.table.dead_letters import TimerLetter
from keyrange.individual_commits.table.keyed_state_rows import StoredState
from keyrange.keyed_state.due_timers import first_timers
from keyrange.keyed_state.model.state_runs import StateRun, clipped, last_seq
from keyrange.keyed_state.sorted_blocks import Keys, blocks_of, look_up
from keyrange.keyed_state.state_files import StateFileWriter
from keyrange.keyed_state.variables import TIMER_RETRY, TIMERS, StateForm
from keyrange.model.key_ranges import SPACE, KeyRange, hash_of
from keyrange.model.offsets import TopicPartition
from keyrange.storage.directory import Directory

Runs = dict[TopicPartition, tuple[StateRun, ...]]


@dataclass(frozen=True, slots=True)
class TimerReplay:
    """What a replay comes to. `taken` are the letters whose timers are set again; `left` are the
    others, each with the reason."""

    taken: tuple[TimerLetter, ...] = ()
    left: tuple[tuple[TimerLetter, str], ...] = ()

    @property
    def wanted(self) -> dict[TopicPartition, dict[bytes, set[int]]]:
        """The timers of each key, in microseconds since 1970."""
        found: dict[TopicPartition, dict[bytes, set[int]]] = {}
        for each in self.taken:
            keys = found.setdefault(TopicPartition(each.topic, each.partition), {})
            keys.setdefault(each.key, set()).add(each.timer_at_us)
        return found


@dataclass
class _Lineage:
    """The commits whose changes the state of a partition has, newest first: a reset that took it
    back stands on an earlier commit than the one before it."""

    commits: list[Commit] = field(default_factory=list)
    _reset: Commit | None = None
    _back_to: tuple[StateRun, ...] | None = None

    def add(self, partition: TopicPartition, commit: Commit) -> None:
        """The next older commit."""
        runs = commit.runs.get(partition, ())
        if self._reset is not None:
            then = self._reset.runs.get(partition, ())
            # One by which timers were set has a run more than before.
            self._back_to = None if {*runs} <= {*then} else then
            self._reset = None
        if self._back_to is not None and runs != self._back_to:
            return
        self._back_to = None
        self.commits.append(commit)
        self._reset = commit if commit.kind is CommitKind.RESET else None

    @property
    def is_open(self) -> bool:
        return self._reset is not None or self._back_to is not None


def plan_timers(commits: Commits, known: Snapshot, letters: Iterable[TimerLetter]) -> TimerReplay:
    """Which timers are set again, of letters of the group; `known` is the last commit. Letters
    whose timers were set again already are passed over."""
    letters = list(letters)
    partitions = {TopicPartition(each.topic, each.partition) for each in letters}
    first = {each.source_id: each.batch_id for each in reversed(letters)}
    for each in letters:
        first[each.source_id] = min(first[each.source_id], each.batch_id)
    # A replay of any source may have set them: all are looked through from the first letter on.
    walked = {
        source: _lineages(table, partitions, first.get(source, 0))
        for source, table in commits.of_group.items()
        if letters
    }
    resets = {
        (partition, commit.run_id)
        for of in walked.values()
        for partition, lineage in of.items()
        for commit in lineage.commits
        if commit.kind is CommitKind.RESET
    }
    taken: list[TimerLetter] = []
    left: list[tuple[TimerLetter, str]] = []
    for letter in letters:
        partition = TopicPartition(letter.topic, letter.partition)
        if any((partition, run) in resets for run in letter.replay_runs):
            continue
        lineage = walked.get(letter.source_id, {}).get(partition, _Lineage())
        if why := _why_left(commits, known, letter, partition, lineage):
            left.append((letter, why))
        else:
            taken.append(letter)
    return TimerReplay(tuple(taken), tuple(left))


def _lineages(
    table: CommitTable, partitions: Collection[TopicPartition], first_batch: int
) -> dict[TopicPartition, _Lineage]:
    """Of a source from its last commit back to the one before batch `first_batch`."""
    found = {each: _Lineage() for each in partitions}
    for commit in table.backwards(table.known().seq):
        for partition in commit.states.keys() & partitions:
            found[partition].add(partition, commit)
        is_before = commit.kind is CommitKind.BATCH and commit.batch_id < first_batch
        if is_before and not any(each.is_open for each in found.values()):
            break
    return found


def _why_left(
    commits: Commits,
    known: Snapshot,
    letter: TimerLetter,
    partition: TopicPartition,
    lineage: _Lineage,
) -> str:
    """Why a timer is not set again; "" where it is."""
    own_id = known.states.topic_id_of(partition)
    if own_id is None:
        return "the commits do not know its partition"
    if letter.topic_id and own_id and letter.topic_id != own_id:
        return "its topic was made anew since"
    table = commits.of_group.get(letter.source_id)
    if table is None or letter.batch_id > table.known().batch_id:
        return "the batch that gave it up is not committed yet"
    if not _stands(letter, partition, lineage.commits):
        return "the state of its key was set back since, and the timer fires by itself"
    return ""


def _stands(letter: TimerLetter, partition: TopicPartition, commits: Sequence[Commit]) -> bool:
    """Whether the state has what the batch of a letter did with its key."""
    key_hash = hash_of(letter.key)
    at = next(
        (n for n, each in enumerate(commits) if each.batch_id == letter.batch_id),
        None,
    )
    if at is None:
        return False
    if at + 1 == len(commits):
        return True
    own = KeyRange(key_hash, key_hash + 1)
    after, before = (
        clipped(each.runs.get(partition, ()), own) for each in (commits[at], commits[at + 1])
    )
    # Nothing of the batch counts for a key range that was set back while it ran.
    return after != before


def write_timers(stored: StoredState, known: Snapshot, source_id: str, replay: TimerReplay) -> Runs:
    """The runs of the partitions whose timers are set again, behind commit `known`, with files in
    which they are. Raises STATE_UNWRITABLE, and what reading the state raises."""
    form = stored.form
    writer = StateFileWriter(Directory(stored.directory, stored.storage), source_id, form)
    try:
        for partition, timers in sorted(replay.wanted.items()):
            rows = _rows_with(stored, form, partition, timers)
            hashes = rows.column(0).to_pylist()
            seq = max(known.seq, last_seq(known.runs.get(partition, ()), 0)) + 1
            writer.add(partition, KeyRange(hashes[0], hashes[-1] + 1), seq, blocks_of(rows))
        written = writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return {at: (*known.runs.get(at, ()), made.committed(made.from_seq)) for at, made in written}


def _rows_with(
    stored: StoredState,
    form: StateForm,
    partition: TopicPartition,
    timers: Mapping[bytes, Collection[int]],
) -> pa.RecordBatch:
    """The rows of keys, in the order of their hashes, with timers among those that they have."""
    names = sorted(timers, key=lambda key: (hash_of(key), key))
    hashes = np.array([hash_of(key) for key in names], np.int64)
    wanted = Keys(hashes, pa.array(names, pa.binary()))
    rows = look_up(stored.blocks(partition, SPACE), wanted, form)
    column = rows.column(TIMERS).cast(pa.list_(pa.int64())).to_pylist()
    merged = [
        sorted({*(have or ()), *timers[key]}) for have, key in zip(column, names, strict=True)
    ]
    first_us = first_timers(rows)
    times = pa.array(merged, pa.list_(pa.int64())).cast(form.schema.field(TIMERS).type)
    rows = form.with_column(rows, TIMERS, times)
    retries: list[dict[str, Any] | None] = rows.column(TIMER_RETRY).to_pylist()
    for number, retry in enumerate(retries):
        if retry is not None and merged[number][0] < first_us[number]:
            # Tries are of the first timer, which is another one now.
            retry |= {"deliveries": 0, "due_ms": stored.time_ms}
    kind = form.schema.field(TIMER_RETRY).type
    return form.with_column(rows, TIMER_RETRY, pa.array(retries, kind))
