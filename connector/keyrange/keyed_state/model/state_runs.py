"""Runs: which stretch of a file says what of which keys, at which commits.

A run covers a rectangle, key range by commits. It holds, for keys of its `span`, their state after
the last of the commits [from_seq, until_seq) that changed it, and nothing of keys that none of them
changed. The state of a key at a commit is what the newest run says that has the key. One batch
makes one run for each key range, and a batch that runs again reads those of the commit that it was
planned from (`individual_commits/model/state_before_batch`), so that no change counts twice. Runs
that were merged are superseded by their merger, so that a
key is looked up in few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from keyrange.model.key_ranges import KeyRange, common, subtract

# A run is merged with newer ones that have as many rows as it has. So a state of n rows lies in
# log2(n / rows of a batch) runs at the most, and a row is written as often.
_GROWTH: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class StateRun:
    """A stretch of a file. `file`: its path below the state directory. `groups`: its row groups
    [first, until). `rows` and `size_bytes` are estimates where the run was cut. `footer_crc`: the
    CRC-32 of the file's footer, which says where its rows are, which hashes they have, and the
    file's name: another file in its place, or one that was changed, is told apart."""

    file: str
    groups: tuple[int, int]
    span: KeyRange
    from_seq: int
    until_seq: int
    rows: int
    size_bytes: int
    footer_crc: int

    def __post_init__(self) -> None:
        if not (0 <= self.from_seq < self.until_seq and 0 <= self.groups[0] < self.groups[1]):
            raise ValueError(f"{self.file} holds no run")

    def flat(self) -> tuple[Any, ...]:
        """Its values one after the other, with both ends of the key range in it."""
        span = (self.span.from_hash, self.span.until_hash - 1)
        since = (self.from_seq, self.until_seq)
        told = (self.rows, self.size_bytes, self.footer_crc)
        return (self.file, *self.groups, *span, *since, *told)

    @classmethod
    def of_flat(cls, values: Iterable[Any]) -> StateRun:
        """What `flat` has made. Raises TypeError or ValueError for what cannot be one."""
        file, first, until, from_hash, last_hash, *others = values
        return cls(file, (first, until), KeyRange(from_hash, last_hash + 1), *others)


def _cut_to(run: StateRun, span: KeyRange) -> StateRun:
    share = span.size / run.span.size
    return replace(
        run, span=span, rows=-int(-run.rows * share), size_bytes=-int(-run.size_bytes * share)
    )


def clipped(runs: Iterable[StateRun], span: KeyRange) -> list[StateRun]:
    """The parts of runs in a key range, the newest first."""
    found = []
    for run in runs:
        shared = common(run.span, span)
        if shared is not None:
            found.append(run if shared == run.span else _cut_to(run, shared))
    return newest_first(found)


def newest_first(runs: Iterable[StateRun]) -> list[StateRun]:
    return sorted(runs, key=lambda run: (-run.until_seq, run.span, run.file, run.groups))


def needed(runs: Iterable[StateRun]) -> list[StateRun]:
    """What is left of runs if all that is superseded goes, the newest first.

    A run supersedes another where it covers its keys and all of its commits and more.
    """
    over: dict[StateRun, list[KeyRange]] = {}
    here: list[StateRun] = []
    # Only runs that share keys are compared: there may be thousands, of hundreds of key ranges.
    for run in sorted(runs, key=lambda run: run.span.from_hash):
        here = [each for each in here if each.span.until_hash > run.span.from_hash]
        for each in here:
            if _supersedes(each, run):
                over.setdefault(run, []).append(each.span)
            elif _supersedes(run, each):
                over.setdefault(each, []).append(run.span)
        here.append(run)
        over.setdefault(run, [])
    left: list[StateRun] = []
    for run, spans in over.items():
        for span in subtract([run.span], spans) if spans else [run.span]:
            left.append(run if span == run.span else _cut_to(run, span))
    return newest_first(left)


def _supersedes(run: StateRun, other: StateRun) -> bool:
    return (
        run.from_seq <= other.from_seq
        and other.until_seq <= run.until_seq
        and (run.from_seq, run.until_seq) != (other.from_seq, other.until_seq)
    )


def to_merge(runs: Sequence[StateRun], rows: int) -> list[StateRun]:
    """Which runs of one key range a task merges with its own changes, `rows` of them; the newest
    first, as they are given. None where that does not pay yet."""
    found: list[StateRun] = []
    # Of one commit there may be several, of parts of the range, and all of them are merged.
    for _, same in groupby(runs, lambda run: run.until_seq):
        own = list(same)
        size = sum(run.rows for run in own)
        if size > rows * _GROWTH:
            break
        found += own
        rows += size
    return closed(runs, found) if found else []


def closed(runs: Sequence[StateRun], chosen: Sequence[StateRun]) -> list[StateRun]:
    """Chosen runs with all that their merger would supersede."""
    from_seq = min(run.from_seq for run in chosen)
    return [run for run in runs if run.from_seq >= from_seq]


@dataclass(frozen=True, slots=True)
class MadeRun:
    """A run that a task of a batch has written, which no commit names yet. Where it is a merger,
    `from_seq` is that of the oldest that went into it; the changes of a batch begin behind the
    commit that it was planned from."""

    file: str
    groups: tuple[int, int]
    span: KeyRange
    from_seq: int
    rows: int
    size_bytes: int
    footer_crc: int

    def flat(self) -> tuple[Any, ...]:
        """As `StateRun.flat`, in the order of what tasks tell of their runs."""
        span = (self.span.from_hash, self.span.until_hash - 1)
        told = (self.from_seq, self.rows, self.size_bytes, self.footer_crc)
        return (self.file, *self.groups, *span, *told)

    @classmethod
    def of_flat(cls, values: Iterable[Any]) -> MadeRun:
        """What `flat` has made."""
        file, first, until, from_hash, last_hash, *others = values
        return cls(file, (first, until), KeyRange(from_hash, last_hash + 1), *others)

    def committed(self, seq: int) -> StateRun:
        """The run as commit `seq` names it."""
        since = (self.from_seq, seq + 1)
        told = (self.rows, self.size_bytes, self.footer_crc)
        return StateRun(self.file, self.groups, self.span, *since, *told)


def last_seq(runs: Iterable[StateRun], seq: int) -> int:
    """The commit that the changes of a batch follow which was planned from commit `seq`.

    A query that took up the runs of another one begins with commit 1, and what it changes is newer
    than they are all the same: its runs go on with their numbers until its own have come as far.
    """
    return max([seq, *(run.until_seq - 1 for run in runs)])


def after_batch(before: Iterable[StateRun], made: Iterable[MadeRun], seq: int) -> list[StateRun]:
    """The runs of a partition after commit `seq` of a batch."""
    before, made = list(before), list(made)
    # The batch was planned from all partitions' runs, and these are those of one.
    seq = max([seq, last_seq(before, 0) + 1, *(each.from_seq for each in made)])
    return needed([*before, *(each.committed(seq) for each in made)])


def files_of(runs: Mapping[Any, Iterable[StateRun]]) -> set[str]:
    return {run.file for each in runs.values() for run in each}
