"""What the commit table keeps: one commit after the other, each the whole state of the partitions
that it touches. `driver_fences` says which driver may write the next one.

So the state at any commit is, for each partition, the last commit at or before it that touches the
partition; some commits are `whole` and hold all, which bounds how far back has to be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from keyrange.individual_commits.model.driver_order import Fence
from keyrange.individual_commits.model.partition_progress import PartitionState
from keyrange.keyed_state.model.state_runs import StateRun
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import OFFSET_MAX, TopicPartition, by_partition, nested
from keyrange.model.query_ranges import Ownership
from keyrange.model.state_scope import StateScope
from keyrange.model.watermarks import PartitionTime

if TYPE_CHECKING:
    from keyrange.individual_commits.model.state_columns import StateColumns


class CommitKind(Enum):
    """What a commit is of."""

    BATCH = "batch"
    # A driver has begun: who finds a later one than its own has been replaced, and stops.
    FENCE = "fence"
    # Somebody set positions or dropped pending records by hand.
    RESET = "reset"
    # Somebody has imported state before the first batch. The first query of the group takes it up,
    # from where its options let it begin: the positions of this commit say nothing.
    IMPORT = "import"


_OFFSETS_VERSION: Final = 1
# Fields of a commit, as the text of a batch has them.
_OFFSETS_OF_BATCH: Final = {"cut_back": "cutBack", "released": "released"}

# How many commits, of any kind, lie between two that hold the state of every partition.
BASE_EVERY: Final = 50


@dataclass(frozen=True, slots=True)
class CommitCounts:
    """What a batch did with one partition, in records; `log_end` as the batch knew it, -1 where it
    did not."""

    done: int = 0
    rejected: int = 0
    held_back: int = 0
    dead: int = 0
    redelivered: int = 0
    log_end: int = -1


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit. `seq` counts the commits of a source from 1, without gaps.

    `group` names the query group, `source_id` the source of one checkpoint, made up when that
    began; `query_id` is Spark's. `run_id` is the driver that wrote it. `batch_id` is Spark's, -1
    where it is of no batch. `committed_at_ms` is ms since 1970. A `whole` commit holds the state of
    every partition. `cut_back` is of a batch: where logs were cut back that lost records, so that
    what was done from there on is of no record any more. `released` too, of transactional output:
    how far that was released, where somebody has set back the committed offset of a partition
    behind the plan of the batch. `runs` are, of a job that keeps state for
    keys, all that hold that of a partition. `times`: of a job with time, how far that has come in
    partitions, and when timers are due. `ownership` is of a batch whose query reads only some
    key ranges. `who` and `why` are of a reset and of an import.
    `group_seq` and `driver` are of a fence: the number among the drivers of the group of the one
    that wrote it, and the source that it writes. `claim` is of a consumer's fence
    (`range_claims.py`).
    Raises ValueError where kind and batch contradict each other.
    """

    seq: int
    kind: CommitKind
    group: str
    source_id: str
    query_id: str
    run_id: str
    batch_id: int
    committed_at_ms: int
    terms: CommitSettings = field(default_factory=CommitSettings)
    states: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    counts: Mapping[TopicPartition, CommitCounts] = field(default_factory=dict)
    whole: bool = False
    who: str = ""
    why: str = ""
    group_seq: int = 0
    driver: str = ""
    claim: str = ""
    cut_back: Mapping[TopicPartition, int] = field(default_factory=dict)
    released: Mapping[TopicPartition, int] = field(default_factory=dict)
    runs: Mapping[TopicPartition, tuple[StateRun, ...]] = field(default_factory=dict)
    times: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)
    ownership: Ownership = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.kind is CommitKind.BATCH) != (self.batch_id >= 0):
            raise ValueError(f"commit {self.seq}, {self.kind.value}, is of batch {self.batch_id}")

    @property
    def is_base(self) -> bool:
        """Whether nothing before it has to be known: a whole commit that is of no batch does not
        say which batch was the last."""
        return self.whole and self.batch_id >= 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What all commits of a source up to `seq` say. `seq` 0 stands for none."""

    seq: int = 0
    states: StateColumns = field(default_factory=lambda: _columns({}))
    batch_id: int = -1
    run_id: str = ""
    terms: CommitSettings | None = None
    runs: Mapping[TopicPartition, tuple[StateRun, ...]] = field(default_factory=dict)
    times: Mapping[TopicPartition, PartitionTime] = field(default_factory=dict)
    ownership: Ownership = field(default_factory=dict)
    # The last commit before which nothing has to be known.
    base_seq: int = field(default=0, compare=False)
    # Whether this is state that was imported, and of no query yet.
    is_import: bool = False
    # When the last batch was committed, in ms since 1970; 0 for none.
    at_ms: int = field(default=0, compare=False)

    @property
    def base_is_due(self) -> bool:
        """Whether the next batch's commit is to hold the state of every partition; who reads the
        state at any commit goes back to the last one that does. Fences and resets hold some, and
        count: a query that runs batch by batch has every other number."""
        return self.seq + 1 - self.base_seq >= BASE_EVERY

    @property
    def scope(self) -> StateScope:
        """Which partitions share the state of their keys."""
        return StateScope(self.terms.state_topic if self.terms is not None else "")

    def runs_of(self, partition: TopicPartition, topic_id: str) -> tuple[StateRun, ...]:
        """The runs that hold the state of a partition's keys; none of an earlier topic's."""
        return self.runs.get(partition, ()) if self.states.is_of(partition, topic_id) else ()

    def time_of(self, partition: TopicPartition, topic_id: str) -> PartitionTime:
        """How far time has come in a partition; not in an earlier topic's."""
        known = self.times.get(partition) if self.states.is_of(partition, topic_id) else None
        return known or PartitionTime()

    @property
    def runs_there(self) -> dict[TopicPartition, tuple[StateRun, ...]]:
        """The runs that hold state, without partitions that their topic lost when it was made
        again: partition 0 is there as long as the topic is."""
        ids = dict(zip(self.states, self.states.topic_ids, strict=True))
        return {
            each: self.runs[each]
            for each, topic_id in ids.items()
            if self.runs.get(each)
            and ids.get(TopicPartition(each.topic, 0), topic_id) in ("", topic_id)
        }

    def has(self, commit: Commit) -> bool:
        """Whether a commit that its driver writes once more is in the table already: one of a batch
        is known by its batch, any other by its number."""
        if commit.run_id != self.run_id:
            return False
        if commit.kind is CommitKind.BATCH:
            return commit.batch_id <= self.batch_id
        return commit.seq == self.seq

    def after(self, commit: Commit) -> Snapshot:
        """With one more commit. Raises ValueError where it is not the next one."""
        if commit.seq != self.seq + 1:
            raise ValueError(f"commit {commit.seq} follows commit {self.seq}")
        return Snapshot(
            commit.seq,
            _columns(commit.states) if commit.whole else self.states | commit.states,
            max(self.batch_id, commit.batch_id),
            commit.run_id,
            commit.terms,
            dict(commit.runs) if commit.whole else {**self.runs, **commit.runs},
            dict(commit.times) if commit.whole else {**self.times, **commit.times},
            commit.ownership if commit.kind is CommitKind.BATCH else self.ownership,
            commit.seq if commit.is_base else self.base_seq,
            self.is_import or commit.kind is CommitKind.IMPORT,
            commit.committed_at_ms if commit.kind is CommitKind.BATCH else self.at_ms,
        )


def _columns(states: Mapping[TopicPartition, PartitionState]) -> StateColumns:
    # Commands that read no commits import this module too, and do not wait for numpy.
    from keyrange.individual_commits.model.state_columns import columns_of

    return columns_of(states)


def known_at(commits: Iterable[Commit], seq: int) -> Snapshot:
    """The state at commit `seq`, from commits in any order that go back to a whole one of a batch,
    or to the first.

    Raises ValueError where one of them is missing or there twice.
    """
    wanted = sorted((c for c in commits if c.seq <= seq), key=lambda c: c.seq)
    wanted = wanted[max((at for at, c in enumerate(wanted) if c.is_base), default=0) :]
    known = Snapshot(wanted[0].seq - 1) if wanted and wanted[0].is_base else Snapshot()
    for commit in wanted:
        known = known.after(commit)
    if known.seq != seq:
        raise ValueError(f"the last commit is {known.seq}, not {seq}")
    return known


def write_offsets_of_batch(commit: Commit) -> str:
    """What a batch's commit says of offsets of whole partitions, as text; none for nothing. Without
    it nobody could tell a position that followed its log from one that went back by fault."""
    told = {text: getattr(commit, name) for name, text in _OFFSETS_OF_BATCH.items()}
    document: dict[str, Any] = {text: nested(found) for text, found in told.items() if found}
    if not document:
        return ""
    document["v"] = _OFFSETS_VERSION
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def read_offsets_of_batch(text: str) -> dict[str, dict[TopicPartition, int]]:
    """What a text says, by the commit's fields; nothing where it is of another kind. Raises
    ValueError where it cannot be."""
    if not text.startswith(tuple(f'{{"{each}":' for each in _OFFSETS_OF_BATCH.values())):
        return {}
    try:
        document: Any = json.loads(text)
    except RecursionError:
        raise ValueError("the text of a batch is nested too deep") from None
    if document.pop("v", None) != _OFFSETS_VERSION or document.keys() - _OFFSETS_OF_BATCH.values():
        raise ValueError("the text of a batch is not one of offsets")
    found = {
        name: dict(by_partition(document[each]))
        for name, each in _OFFSETS_OF_BATCH.items()
        if each in document
    }
    every = [at for offsets in found.values() for at in offsets.values()]
    if not all(type(at) is int and 0 <= at <= OFFSET_MAX for at in every):
        raise ValueError("the text of a batch has something else for an offset")
    return found


class CommitTable(Protocol):
    """The commits of one source in one table. Every call sees what others have written meanwhile;
    only for the state at a commit that was seen, it need not look.

    All raise KeyrangeError: COMMITS_DAMAGED where what is stored contradicts itself,
    UNSUPPORTED_COMMITS where a newer version wrote it, COMMITS_UNREADABLE and COMMITS_UNWRITABLE
    where the store fails.
    """

    def known(self, seq: int | None = None) -> Snapshot:
        """The state at commit `seq`, or at the last one; `Snapshot()` where there is none.

        Raises COMMITS_BEHIND where the table has not come as far as `seq`.
        """
        ...

    def seen(self) -> Snapshot:
        """The state at the last commit that was seen, without a look."""
        ...

    def begun(self, group: str) -> int:
        """A number that grows with every driver that begins under a group's name."""
        ...

    def fences(self, group: str) -> list[Fence]:
        """All fences under a group's name, in no order. The first commit of a source is one
        whatever it is: a source that has commits is never passed over."""
        ...

    def append(self, commit: Commit, begun: int | None = None) -> None:
        """Write one commit, in one transaction of the table; with `begun` only where no driver has
        begun under the group's name since it was that number.

        A commit that is there already (`Snapshot.has`) changes nothing; `check_next` says which
        ones may follow. Raises COMMITS_FENCED where another driver has begun since or its commit
        stands in this one's place, COMMITS_BEHIND where commits before it are gone.
        """
        ...

    def history(self, from_seq: int = 1, until_seq: int | None = None) -> Iterator[Commit]:
        """The commits in [from_seq, until_seq), oldest first, read as they are taken."""
        ...

    def backwards(self, seq: int) -> Iterator[Commit]:
        """The commits up to `seq`, newest first; no more is read than is taken, by and large."""
        ...

    def by_hand(self, from_seq: int) -> set[int]:
        """The numbers of the commits from `from_seq` on that are of no batch."""
        ...

    def last_source(self, group: str, with_states: bool = False) -> str | None:
        """The source whose driver began last under a group's name, `with_states` the last one that
        then said what is done; None where there is none. No clock decides."""
        ...

    def maintain(self) -> None:
        """Keep reading and writing cheap: compact, checkpoint, remove files that nobody reads. All
        commits stay, and with them the history."""
        ...
