"""What people do to a commit table by hand: find a source in it, and set what is done."""

from __future__ import annotations

import getpass
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from keyrange.errors import error, invalid_options
from keyrange.individual_commits.model.commit import Commit, CommitKind, Snapshot
from keyrange.individual_commits.model.range_claims import sources_named
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.model.timers import UNKNOWN
from keyrange.model.watermarks import BEGIN, BatchStart, kept_starts

if TYPE_CHECKING:
    from keyrange.individual_commits.model.commit import CommitTable
    from keyrange.individual_commits.model.partition_progress import PartitionState
    from keyrange.keyed_state.model.state_runs import StateRun


@dataclass(frozen=True, slots=True)
class Commits:
    """The commits of one source in a table; `others` counts the sources of its group that wrote
    before it. `of_group` are all sources of its group."""

    path: str
    source_id: str
    table: CommitTable
    others: int = 0
    of_group: Mapping[str, CommitTable] = field(default_factory=dict)

    def last(self, seq: int) -> Commit | None:
        return next(self.table.backwards(seq), None)


def open_commits(path: str, group: str, source: str, storage: Mapping[str, str]) -> Commits:
    """The commits of one source: the one that is named, by the beginning of its id, else the one
    that committed last, of the group that is named, else of the only one.

    Raises NO_COMMIT_TABLE, INVALID_OPTIONS where there is no such source, or where it cannot be
    told which, and what a `CommitTable` raises.
    """
    from keyrange.individual_commits.table.commit_table import LAYOUT, DeltaCommitTable
    from keyrange.storage.delta_store import DeltaStore

    store = DeltaStore(path, LAYOUT, storage)
    if not store.refresh():
        raise error("NO_COMMIT_TABLE", f"there is no commit table at {path}")
    # Every source has one first commit, and files are found by its number.
    rows = store.read({"commit_seq": (1, 1)}, ["group", "source_id"])
    rows = rows.group_by(["group", "source_id"]).aggregate([])
    pairs = zip(rows.column("group").to_pylist(), rows.column("source_id").to_pylist(), strict=True)
    sources = sorted(pairs)
    of_group, found = choose_source(path, sources, group, source)
    tables = {name: DeltaCommitTable(store, name) for of, name in sources if of == of_group}
    last = found[0]
    if len(found) > 1:
        # A driver that began last and committed nothing has nothing to show.
        table = tables[last]
        last = table.last_source(of_group, with_states=True) or table.last_source(of_group) or last
    return Commits(path, last, tables[last], len(found) - 1, tables)


def choose_source(
    path: str, sources: Sequence[tuple[str, str]], group: str, source: str
) -> tuple[str, list[str]]:
    """The group that is meant, and the sources of it that may be, from pairs of the two.

    Raises INVALID_OPTIONS where there is none, or where it cannot be told which.
    """
    meant = sources_named((source_id for _, source_id in sources), source)
    found = [
        (of_group, source_id)
        for of_group, source_id in sources
        if group in ("", of_group) and source_id in meant
    ]
    groups = sorted({of_group for of_group, _ in found})
    if not found:
        known = ", ".join(f"{source_id} of group {name}" for name, source_id in sources) or "none"
        raise invalid_options(f"{path} holds no such source; its sources are: {known}")
    if len(groups) > 1:
        raise invalid_options(f"a group must be named; {path} holds {', '.join(groups)}")
    if source and len(found) > 1:
        named_so = ", ".join(source_id for _, source_id in found)
        raise invalid_options(f"source {source} is how several begin: {named_so}")
    return groups[0], [source_id for _, source_id in found]


def check_current(commits: Commits, known: Snapshot) -> str:
    """The group of a source that may be written to by hand; `known` is its last commit.

    Raises INVALID_OPTIONS where another source of the group has gone on with what this one did:
    what is written here would stop the query of that one, and nobody would hand it out.
    """
    last = _last(commits, known)
    current = commits.table.last_source(last.group, with_states=True)
    if known.states and current not in (None, commits.source_id):
        raise invalid_options(
            f"source {commits.source_id} is over: source {current} of group {last.group} has "
            "gone on with what it did, and is the one to name"
        )
    return last.group


def write_reset(
    commits: Commits,
    known: Snapshot,
    states: Mapping[TopicPartition, PartitionState],
    who: str,
    why: str,
    now_ms: int,
    runs: Mapping[TopicPartition, tuple[StateRun, ...]] | None = None,
    back: Collection[TopicPartition] = (),
    run_id: str = "",
) -> int:
    """Write states as one commit behind `known`, with `runs` of partitions whose keys' state goes
    back, or has timers that are set again. Records of the partitions `back` come again. The commit
    is of `run_id`, or of a new one. Returns the commit's number. Raises as `append` does."""
    last = _last(commits, known)
    terms = known.terms or CommitSettings()
    home = known.scope.home
    times = {
        p: replace(each, timers=UNKNOWN if home(p) == p else each.timers)
        for p, each in known.times.items()
        if p in states
    }
    again = {p: states[p] for p, each in times.items() if p in back and each.watermark is not None}
    for p, starts in _starts(commits, known, again).items():
        times[p] = replace(times[p], starts=starts)
    commit = Commit(
        seq=known.seq + 1,
        kind=CommitKind.RESET,
        group=last.group,
        source_id=last.source_id,
        query_id=last.query_id,
        # Another run than any driver's: one that is running finds that it has been replaced.
        run_id=run_id or str(uuid.uuid4()),
        batch_id=-1,
        committed_at_ms=now_ms,
        terms=terms,
        states=states,
        who=who,
        why=why,
        runs={p: each for p, each in {**known.runs, **(runs or {})}.items() if p in states},
        times=times,
    )
    commits.table.append(commit)
    return commit.seq


def _starts(
    commits: Commits, known: Snapshot, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, tuple[BatchStart, ...]]:
    """By which clocks records go that come again: those of the batches that had them first. A timer
    that has fired or failed before them would find its window open once more, if they went by an
    earlier one."""
    found: dict[TopicPartition, list[BatchStart]] = {each: [] for each in states}
    left = {p: each.scanned for p, each in states.items()}
    cut_back: dict[TopicPartition, int] = {}
    for commit in commits.table.backwards(known.seq):
        for p in commit.states.keys() & left.keys():
            then, time, starts = commit.states[p], commit.times.get(p), found[p]
            if then.topic_id != states[p].topic_id:
                del left[p]
                continue
            # Where a log was cut back the next batch began, with the clock as it was.
            offset = min(then.position, cut_back.pop(p, then.position))
            if not starts or offset < starts[-1].offset:
                watermark = time and time.watermark
                starts.append(BatchStart(offset, watermark.at_us if watermark else BEGIN))
            if offset <= left[p]:
                del left[p]
            elif p in commit.cut_back:
                cut_back[p] = commit.cut_back[p]
        if not left:
            break
    return {
        p: kept_starts(starts[::-1], [piece.scanned for piece in states[p].lagging])
        for p, starts in found.items()
    }


def _last(commits: Commits, known: Snapshot) -> Commit:
    last = commits.last(known.seq)
    if last is None:
        raise ValueError("a source without a commit has nothing to reset")
    return last


def user_name() -> str:
    """Who is at work here, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
