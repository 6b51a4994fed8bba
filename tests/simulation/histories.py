"""What each key of a simulated job has gone through, by commits: `commits reset` takes the state of
a key back, and with it its turns and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from keyrange.individual_commits.model.commit import Commit, CommitKind
from keyrange.model.key_ranges import hash_of
from keyrange.model.offsets import TopicPartition
from simulation.by_hand import letters

if TYPE_CHECKING:
    from simulation.timed import Row
    from simulation.timed_invariants import Batch, Key, Timed
    from simulation.topics import Place

# The rows of a key in its turns, each with its batch.
Turns = tuple[tuple["Batch", "Row"], ...]
_Known = dict["Key", Turns]


class Histories:
    """`last`: the turns of each key that count at the end. `over`: those that a reset took back, as
    they were then, each with those before them."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self.over: list[tuple[Key, Turns]] = []
        self._at: dict[tuple[str, int], _Known] = {}
        self._runs: dict[tuple[str, int], dict[TopicPartition, Any]] = {}
        # The commits whose changes the state of a partition has.
        self._made_by: dict[tuple[str, int], dict[TopicPartition, frozenset[Any]]] = {}
        self._commits = {(each.source_id, each.seq): each for each in timed.commits}
        self._batches: dict[tuple[str, int], dict[Key, Turns]] = {}
        for key, rows in timed.turns.items():
            for batch, row in rows:
                of = self._batches.setdefault((batch.mark.source_id, batch.number), {})
                of[key] = (*of.get(key, ()), (batch, row))
        last = ""
        for last in self._sources():
            self._go_through(last)
        end = max((seq for source, seq in self._commits if source == last), default=0)
        self.last: Mapping[Key, Turns] = self._at.get((last, end), {})
        self._made = self._made_by.get((last, end), {})

    def every(self) -> Iterator[tuple[Key, Turns]]:
        """All of them that end somewhere."""
        yield from self.last.items()
        yield from self.over

    def is_given_up(self, place: Place, timer_us: int) -> bool:
        """Whether a timer is given up by what counts at the end, and was not set again since."""
        at = TopicPartition(self._timed.home(place.topic), place.partition)
        made = self._made.get(at, frozenset())
        batches = {
            (source, commit.batch_id)
            for source, seq in made
            if (commit := self._commits[source, seq]).kind is CommitKind.BATCH
        }
        runs = {self._commits[each].run_id for each in made}
        letters, replays = self._timed.timer_letters[place, timer_us]
        again = {batch for batch, run in replays if run in runs}
        return any(batch in batches and batch not in again for batch in letters)

    def check_records(self, excused: Collection[Place]) -> None:
        """State has each record once, and once more where its dead letter was replayed since; all
        that are in the table count at the end, but those that are `excused`."""
        once_more = Counter(place for place, _ in letters(self._timed.world, "replayed"))
        for key, rows in self.every():
            found = Counter(row.place for _, row in rows if row.timer_us is None)
            doubled = [at for at, count in found.items() if count > 1 + once_more[at]]
            assert not doubled, f"{key}: its state has {doubled} more than once"
        count = {row.place for rows in self.last.values() for _, row in rows}
        written = {row.place for rows in self._timed.turns.values() for _, row in rows}
        lost = sorted(written - count - set(excused))
        assert not lost, f"state lacks {lost[:10]}"

    def _sources(self) -> list[str]:
        """The sources of the checkpoints: each goes on with what one before it did."""
        return list(
            dict.fromkeys(
                batch.mark.source_id
                for checkpoint in self._timed.checkpoints
                for batch in self._timed.batches(checkpoint)
            )
        )

    def _go_through(self, source: str) -> None:
        marks = {
            batch.number: batch.mark
            for checkpoint in self._timed.checkpoints
            for batch in self._timed.batches(checkpoint)
            if batch.mark.source_id == source
        }
        self._at[source, 0], self._runs[source, 0], self._made_by[source, 0] = {}, {}, {}
        for seq in range(1, max(at for of, at in self._commits if of == source) + 1):
            commit, now = self._commits[source, seq], dict(self._at[source, seq - 1])
            made = self._made_by[source, seq] = dict(self._made_by[source, seq - 1])
            runs = {} if commit.whole else self._runs[source, seq - 1]
            self._runs[source, seq] = {**runs, **commit.runs}
            if commit.kind is CommitKind.RESET:
                self._take_back(commit, now)
            elif commit.kind is CommitKind.BATCH:
                mark = marks[commit.batch_id]
                planned_at = mark.resumes or (source, mark.seq)
                if mark.resumes:
                    now = dict(self._at[planned_at])
                    made |= self._made_by[planned_at]
                self._add(commit, now, planned_at, mark.resumes is not None)
            for at in commit.states:
                made[at] = made.get(at, frozenset()) | {(source, seq)}
            self._at[source, seq] = now

    def _take_back(self, commit: Commit, now: _Known) -> None:
        """The state of a partition's keys is that of an earlier commit, with the same runs."""
        source, runs = commit.source_id, self._runs[commit.source_id, commit.seq]
        made = self._made_by[source, commit.seq]
        for at in commit.states:
            # Where no commit has the same runs, timers were set again.
            then = next(
                (
                    seq
                    for seq in range(commit.seq - 1, -1, -1)
                    if self._runs[source, seq].get(at, ()) == runs.get(at, ())
                ),
                commit.seq - 1,
            )
            made[at] = self._made_by[source, then].get(at, frozenset())
            for key, turns in list(now.items()):
                if key[:2] == tuple(at):
                    kept = self._at[source, then].get(key, ())
                    if kept != turns:
                        self.over.append((key, turns))
                    now[key] = kept

    def _add(self, commit: Commit, now: _Known, planned_at: tuple[str, int], resumes: bool) -> None:
        """What a batch did goes on from what it was planned by. It does not count for keys that
        somebody has set back meanwhile: their records come again."""
        of_batch = self._batches.get((commit.source_id, commit.batch_id), {})
        for key, own in of_batch.items():
            turns = (*self._at[planned_at].get(key, ()), *own)
            if not resumes and self._is_set_back(key, planned_at[1], commit):
                self.over.append((key, turns))
            else:
                now[key] = turns

    def _is_set_back(self, key: Key, planned_at: int, commit: Commit) -> bool:
        at, key_hash = TopicPartition(*key[:2]), hash_of(key[3].encode())
        scanned = []
        for seq in range(1, commit.seq):
            state = self._commits[commit.source_id, seq].states.get(at)
            if seq <= planned_at and state is not None:
                scanned = [state.piece_of(key_hash).scanned]
            elif state is not None:
                scanned.append(state.piece_of(key_hash).scanned)
        return any(after < scanned[0] for after in scanned[1:])


def was_due(timed: Timed, home: TopicPartition, timer_us: int, since: Batch, now: Batch) -> bool:
    """Whether the clock had come to a timer since it was set, before somebody set that back: one
    that was due with another one of its key, which failed, stays due as that one does."""
    batches = timed.batches(timed.checkpoints[-1])
    between = [each for each in batches if since.number <= each.number < now.number]
    return any(timer_us <= timed.clock_us(each, home) for each in between)
