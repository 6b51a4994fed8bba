"""Dead letters that are handed out again: as pending records that are due, in the query's next
batch, or as timers that are due (`timer_replay`); and what became of them since they were written.

A reset of the commits, or a replay that ended before it was noted, hands records out again. So a
letter is found by its record: where a reset behind it says that the record is not done, the letter
is not the last word on it, whether the record was done then or was given up once more.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from keyrange.errors import KeyrangeError, error, invalid_options
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot
from keyrange.individual_commits.model.offset_reset import reopen
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.individual_commits.model.range_claims import sources_named
from keyrange.individual_commits.table import commit_table, dead_letters
from keyrange.individual_commits.table.commit_admin import (
    Commits,
    check_current,
    open_commits,
    user_name,
    write_reset,
)
from keyrange.individual_commits.table.commit_schema import commits_of
from keyrange.individual_commits.table.dead_letters import (
    DeadLetter,
    DeadLetters,
    TimerLetter,
)
from keyrange.individual_commits.table.keyed_state_rows import StoredState
from keyrange.individual_commits.table.keyed_state_rows import state_directory as state_directory_of
from keyrange.individual_commits.table.timer_replay import TimerReplay, plan_timers, write_timers
from keyrange.model.key_ranges import hash_of_record
from keyrange.model.offsets import TopicPartition, is_whole
from keyrange.options.commits import DEAD_LETTERS, beside
from keyrange.options.secrets import parse_secret
from keyrange.storage.delta_store import DeltaStore
from keyrange.storage.table_store import Bounds


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay comes to. `states` are those that have to be written, `taken` the dead letters
    that are handed out again; `left` are the others, each with the reason."""

    states: Mapping[TopicPartition, PartitionState]
    taken: tuple[DeadLetter, ...]
    left: tuple[tuple[DeadLetter, str], ...]


def replay_dead_letters(
    table: str,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offsets: Collection[int] | None = None,
    error: str = "",
    dead_letter_table: str = "",
    group: str = "",
    source: str = "",
    storage: Mapping[str, str] | None = None,
    who: str = "",
    why: str = "replay",
    state_directory: str = "",
) -> int:
    """Let a query work again on dead letters, those of timers too, that nobody replayed yet;
    returns how many.

    `table` is its commit table. Those are taken that are of `topic` and `partition`, at one of
    `offsets`, and hold `error` in their error; what is left out or None chooses all, and no offsets
    choose none. `group` and `source` name whose they are where the table holds several, `storage`
    are settings of the object store, secrets as env:NAME or file:PATH. `who` and `why` stand in the
    history. `state_directory` is the query's option stateDirectory, where it has one.

    Stop the query first: one that runs stops with COMMITS_FENCED when it commits next. Raises
    INVALID_OPTIONS, and what the commit table raises.
    """
    _check_places(topic, partition, offsets)
    now_ms = int(time.time() * 1000)
    settings = {name: parse_secret(value).reveal() for name, value in (storage or {}).items()}
    letters = open_letters(table, dead_letter_table, settings, replays=True)
    commits = open_commits(table, group, source, settings)
    known = commits.table.known()
    # Of all sources of the group: a query that was started afresh goes on with what others did.
    own = check_current(commits, known)
    dead = letters.read(topic=topic, partition=partition, replayed=False)
    found = [
        each
        for each in chosen_letters(dead, own, error=error)
        if offsets is None or each.offset in offsets
    ]
    cuts = cuts_since(commits, found)
    plan = plan_replay(known, found, now_ms, commits.source_id, cuts)
    timers = TimerReplay()
    if offsets is None:
        given_up = letters.timers(topic=topic, partition=partition)
        timers = plan_timers(commits, known, chosen_letters(given_up, own, error=error))
    directory = state_directory or state_directory_of(table, {})
    stored = StoredState(directory, known.runs_there, now_ms, settings)
    replay(commits, letters, known, plan, who or user_name(), why, now_ms, timers, stored)
    return len(plan.taken) + len(timers.taken)


def _check_places(topic: object, partition: object, offsets: object) -> None:
    """Raises INVALID_OPTIONS: a number in a text would be equal to none."""
    wrong = []
    if not isinstance(topic, (str, type(None))):
        wrong.append(f"topic is a text, and not {topic!r:.100}")
    if not (partition is None or is_whole(partition)):
        wrong.append(f"partition is a whole number, and not {partition!r:.100}")
    if not (offsets is None or (isinstance(offsets, Collection) and all(map(is_whole, offsets)))):
        wrong.append(f"offsets are whole numbers, and not {offsets!r:.100}")
    if wrong:
        raise invalid_options(wrong)


def open_letters(
    table: str, dead_letter_table: str, storage: Mapping[str, str], replays: bool = False
) -> DeadLetters:
    """The dead letters of a commit table, which may have none, with what its resets say of them; of
    a query that commits whole batches `table` is theirs.

    Raises NO_COMMIT_TABLE where there is neither a table of theirs nor a commit table,
    INVALID_OPTIONS where there is no table of theirs that was named, or where who `replays` them
    names no commit table.
    """
    letters = letters_at(table, dead_letter_table, storage)
    if not letters.is_there():
        if dead_letter_table:
            raise invalid_options(f"there is no table of dead letters at {dead_letter_table}")
        path = beside(table, DEAD_LETTERS)
        if (own := _letters_in(table, storage)) is not None:
            if replays:
                text = "holds dead letters itself, and a replay is by a commit table, which queries"
                raise invalid_options(f"{table} {text} that commit whole batches do not have")
            return own
        if not DeltaStore(table, commit_table.LAYOUT, storage).refresh():
            text = f"there is no commit table at {table}, and no dead letters at {path}"
            raise error("NO_COMMIT_TABLE", text)
    return letters


def _letters_in(table: str, storage: Mapping[str, str]) -> DeadLetters | None:
    """Those of a table that holds dead letters itself."""
    own = letters_at("", table, storage)
    try:
        return own if own.is_there() else None
    except KeyrangeError as failure:
        if failure.condition.name != "FOREIGN_TABLE":
            raise
        return None


def letters_at(table: str, dead_letter_table: str, storage: Mapping[str, str]) -> DeadLetters:
    """As `open_letters`, whether they are there or not."""
    path = dead_letter_table or beside(table, DEAD_LETTERS)
    store = DeltaStore(path, dead_letters.LAYOUT, storage)
    if not table:
        return DeadLetters(store)
    resets = Resets(table, storage)
    return DeadLetters(store, resets.handed_out_by, resets.is_set_by)


_Letter = TypeVar("_Letter", DeadLetter, TimerLetter)


def chosen_letters(
    letters: Iterable[_Letter],
    group: str = "",
    source: str = "",
    error: str = "",
    since_ms: int = 0,
) -> list[_Letter]:
    """Those of a group and a source (as `sources_named`), by error text and time."""
    text, letters = error.lower(), list(letters)
    meant = sources_named((each.source_id for each in letters), source)
    return [
        each
        for each in letters
        if group in ("", each.group)
        and each.source_id in meant
        and text in each.error.lower()
        and each.written_at_ms >= since_ms
    ]


def cuts_since(commits: Commits, letters: Iterable[DeadLetter]) -> list[Commit]:
    """The commits of a group that found logs cut back since the first of some letters."""
    letters, found = list(letters), list[Commit]()
    for source_id, table in commits.of_group.items() if letters else ():
        # What `_cut_at` goes by: of one source its batches tell, and not clocks that people set.
        own = [each.batch_id for each in letters if each.source_id == source_id]
        others_ms = [each.written_at_ms for each in letters if each.source_id != source_id]
        for commit in table.backwards(table.known().seq):
            is_old = not others_ms or commit.committed_at_ms < min(others_ms)
            if is_old and (not own or 0 <= commit.batch_id <= min(own)):
                break
            if commit.cut_back:
                found.append(commit)
    return found


def _cut_at(letter: DeadLetter, cuts: Iterable[Commit]) -> int | None:
    """Where the log was cut back that held a letter's record, and its offset is another's now."""
    partition = TopicPartition(letter.topic, letter.partition)
    for commit in cuts:
        since = (
            commit.batch_id > letter.batch_id
            if commit.source_id == letter.source_id
            else commit.committed_at_ms >= letter.written_at_ms
        )
        at = commit.cut_back.get(partition)
        if since and at is not None and at <= letter.offset:
            return at
    return None


def plan_replay(
    known: Snapshot,
    letters: Iterable[DeadLetter],
    now_ms: int,
    source_id: str,
    cuts: Sequence[Commit] = (),
) -> Replay:
    """What has to change for dead letters to be handed out again in the next batch of the source
    that `known` is of. `cuts` are the commits of its group that found logs cut back.

    A batch writes its dead letters before it commits: those of one that has not are left, it will
    close their pending records without another delivery.
    """
    letters = list(letters)
    uncommitted = {
        (each.topic, each.partition, each.offset)
        for each in letters
        if each.source_id == source_id and each.batch_id > known.batch_id
    }
    nulls_first = known.terms is not None and known.terms.nulls_first
    wanted: dict[TopicPartition, dict[int, list[DeadLetter]]] = {}
    left: list[tuple[DeadLetter, str]] = []
    for letter in letters:
        partition = TopicPartition(letter.topic, letter.partition)
        state = known.states.get(partition)
        if state is None:
            left.append((letter, "the commits do not know its partition"))
        elif letter.topic_id and state.topic_id and letter.topic_id != state.topic_id:
            left.append((letter, "its topic was made anew since"))
        elif (cut := _cut_at(letter, cuts)) is not None:
            left.append((letter, f"the log was cut back to {cut} since, and has lost its record"))
        elif (letter.topic, letter.partition, letter.offset) in uncommitted:
            # Also one of an earlier batch: whoever reset the commits had the record handed out.
            left.append((letter, "the batch that gave it up is not committed yet"))
        else:
            # A record that was replayed may have been given up once more.
            wanted.setdefault(partition, {}).setdefault(letter.offset, []).append(letter)
    states: dict[TopicPartition, PartitionState] = {}
    taken: list[DeadLetter] = []
    for partition, by_offset in sorted(wanted.items()):
        records = [
            (at, hash_of_record(letter.key, at, nulls_first))
            for at, (letter, *_) in by_offset.items()
        ]
        reopened = reopen(known.states[partition], records, now_ms)
        if reopened.opened:
            states[partition] = reopened.state
        opened = {record.offset for record in reopened.opened} | {*reopened.open_already}
        taken += [letter for at in sorted(opened) for letter in by_offset[at]]
        coming = [letter for at in reopened.to_come for letter in by_offset[at]]
        left += [(letter, "it comes again anyway") for letter in coming]
    return Replay(states, tuple(taken), tuple(left))


def replay(
    commits: Commits,
    dead_letters: DeadLetters,
    known: Snapshot,
    plan: Replay,
    who: str,
    why: str,
    now_ms: int,
    timers: TimerReplay | None = None,
    stored: StoredState | None = None,
) -> int | None:
    """Write a replay, and note it at the dead letters; returns the commit's number, None where the
    records are handed out again already. `timers` are set again in the state that is `stored`.

    Ended in between it can be done again: what is a pending record by then is only noted, and what
    is noted of timers counts with the commit. Raises as `append` and `mark_replayed` do, and where
    the state cannot be read or written.
    """
    seq, runs = None, {}
    run_id = str(uuid.uuid4())
    if timers is not None and timers.taken and stored is not None:
        runs = write_timers(stored, known, commits.source_id, timers)
        dead_letters.note_timers(timers.taken, who, f"commit {known.seq + 1}", run_id, now_ms)
    states = {partition: known.states[partition] for partition in runs} | {**plan.states}
    if states:
        seq = write_reset(commits, known, states, who, why, now_ms, runs, run_id=run_id)
    dead_letters.mark_replayed(plan.taken, who, f"commit {seq or known.seq}", now_ms)
    return seq


class Resets:
    """The resets of a commit table, of all its groups; none where there is no such table, which is
    read when it is first asked."""

    def __init__(self, table: str, storage: Mapping[str, str]) -> None:
        self._store = DeltaStore(table, commit_table.LAYOUT, storage)
        self._batches: dict[str, pa.Table] = {}

    @functools.cached_property
    def _of(self) -> dict[tuple[str, TopicPartition], list[Commit]]:
        """By group and partition."""
        found: dict[tuple[str, TopicPartition], list[Commit]] = {}
        if not self._store.refresh():
            return found
        kind = CommitKind.RESET.value
        rows = self._store.read({"kind": (kind, kind)})
        sources = rows.column("source_id")
        for source in pc.unique(sources).to_pylist():
            own = rows.filter(pc.equal(sources, source))
            for commit in commits_of(own, source, uri=self._store.uri):
                for partition in commit.states:
                    found.setdefault((commit.group, partition), []).append(commit)
        return found

    def handed_out_by(self, letter: DeadLetter) -> Commit | None:
        """The first reset that handed out a letter's record again; None where none did."""
        partition = TopicPartition(letter.topic, letter.partition)
        return next(
            (
                commit
                for commit in self._of.get((letter.group, partition), ())
                if self._is_behind(commit, letter) and _is_handed_out(commit, partition, letter)
            ),
            None,
        )

    def is_set_by(self, letter: TimerLetter, run_id: str) -> bool:
        """Whether the commit is there by which a replay was to set a letter's timer again."""
        partition = TopicPartition(letter.topic, letter.partition)
        return any(each.run_id == run_id for each in self._of.get((letter.group, partition), ()))

    def _is_behind(self, commit: Commit, letter: DeadLetter) -> bool:
        if commit.source_id != letter.source_id:
            return commit.committed_at_ms >= letter.written_at_ms
        # The clocks of driver and command may differ: of one source its batches tell.
        if commit.source_id not in self._batches:
            bounds: Bounds = {"source_id": (commit.source_id, commit.source_id)}
            self._batches[commit.source_id] = self._store.read(bounds, ["commit_seq", "batch_id"])
        rows = self._batches[commit.source_id]
        before = rows.filter(pc.less(rows.column("commit_seq"), commit.seq))
        last = pc.max(before.column("batch_id")).as_py()
        return last is not None and int(last) >= letter.batch_id


def _is_handed_out(commit: Commit, partition: TopicPartition, letter: DeadLetter) -> bool:
    state = commit.states[partition]
    if letter.topic_id and state.topic_id not in ("", letter.topic_id):
        return False
    key_hash = hash_of_record(letter.key, letter.offset, commit.terms.nulls_first)
    return not state.piece_of(key_hash).is_done(letter.offset)
