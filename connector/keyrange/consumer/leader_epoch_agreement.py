"""Whether what was done of partitions is done of the logs that their leaders have now.

A leader that was elected uncleanly has lost the end of the log, and writes other records at the
same offsets: once its log is as long again, only leader epochs tell (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from keyrange.individual_commits.model.partition_progress import KeyRangeState, PartitionState
from keyrange.individual_commits.model.range_claims import Claims, overlay, pieces_done
from keyrange.model.key_ranges import KeyRange
from keyrange.model.offsets import TopicPartition

States = Mapping[str, PartitionState]
EpochEnds = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Leaders:
    """The present leaders: their epochs, -1 or none where brokers have none, and a question to them
    where other epochs end in their logs, as `keyrange.kafka.groups.epoch_ends` answers it."""

    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: EpochEnds = field(default=lambda _: {})


NO_LEADERS: Final = Leaders()


@dataclass(frozen=True, slots=True)
class Turn:
    """What ranges are claimed for. `epoch` is the assignment's; None makes one up that is higher
    than all. `ready` says whether what others are to hand over in it may come. `members` are the
    slots that may live; None: all of them. `finds_topics`: topics come by themselves."""

    epoch: int | None = None
    ready: bool = True
    members: Collection[str] | None = None
    finds_topics: bool = False


ANEW: Final = Turn()


@dataclass(frozen=True, slots=True)
class Taken:
    """What a consumer has after a claim: its epoch, and what is done of each range, in the log of
    the leader of which epoch. `goes_on`: nobody else has written in its source since it did, so
    nobody has done anything of what it had."""

    epoch: int
    pieces: Mapping[TopicPartition, list[KeyRangeState]]
    leader_epochs: Mapping[TopicPartition, int]
    goes_on: bool


def follow(
    sources: Mapping[TopicPartition, States], leaders: Leaders
) -> dict[TopicPartition, dict[str, PartitionState]]:
    """The states that sources have of partitions, cut back to where the leaders' logs part from
    those that they are of, and of the leaders' epochs then. Raises as `Leaders.ends` does."""
    present = {
        p: max([leaders.epochs.get(p, -1), *(state.leader_epoch for state in states.values())])
        for p, states in sources.items()
    }
    ends = _ends(sources, present, leaders)
    return {
        partition: {
            source: replace(
                state.cut_back(ends.get((partition, state.leader_epoch), state.position)),
                leader_epoch=present[partition],
            )
            for source, state in states.items()
        }
        for partition, states in sources.items()
    }


def _ends(
    sources: Mapping[TopicPartition, States],
    present: Mapping[TopicPartition, int],
    leaders: Leaders,
) -> dict[tuple[TopicPartition, int], int]:
    """Where epochs that are over end, by partition and epoch."""
    left = {
        partition: {state.leader_epoch for state in states.values()} - {-1, present[partition]}
        for partition, states in sources.items()
    }
    found: dict[tuple[TopicPartition, int], int] = {}
    # One epoch of each partition at a time; consumers of one group seldom have several.
    while asked := {partition: epochs.pop() for partition, epochs in left.items() if epochs}:
        for partition, (_, until) in leaders.ends(asked).items():
            # -1: the leader does not know.
            if until >= 0:
                found[partition, asked[partition]] = until
    return found


def take_over(
    claims: Claims,
    states: States,
    partition: TopicPartition,
    spans: Iterable[KeyRange],
    source: str,
    begin: PartitionState,
) -> tuple[list[KeyRangeState], PartitionState]:
    """What is done of key ranges that a source takes, and its state with them; `begin` is that of
    one which has none."""
    pieces = [
        piece
        for span in spans
        for piece in pieces_done(claims, states, partition, span, begin.position)
    ]
    base = states.get(source)
    if base is None:
        epochs = (state.leader_epoch for state in states.values())
        base = replace(begin, leader_epoch=max(epochs, default=begin.leader_epoch))
    return pieces, overlay(base, pieces) if pieces else base


def read_on(
    base: PartitionState, pieces: Sequence[KeyRangeState], cut_back: int | None, leader_epoch: int
) -> PartitionState:
    """A state in which pieces stand for their keys that were read in the log of a leader."""
    if cut_back is not None:
        base = base.cut_back(cut_back)
    after = overlay(base, pieces)
    # Of ranges that were let go of, and read farther, the new leader was not asked.
    asked = leader_epoch >= 0 and max(piece.scanned for piece in pieces) == after.position
    return replace(after, leader_epoch=leader_epoch) if asked else after
