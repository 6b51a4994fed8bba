"""What a batch of a query that commits individually hands out: the same answer in the process that
plans and in the one that commits.

Rule of this file: no Spark and no cluster, and nothing that differs between the two.
"""

from __future__ import annotations

from keyrange.core.checkpoint import Checkpoint
from keyrange.core.commits.intake import PartitionIntake, plan_intake
from keyrange.core.commits.log import Known
from keyrange.core.commits.state import PartitionState, fresh
from keyrange.core.key_ranges import KeyRange, complement
from keyrange.core.offsets import TopicPartition
from keyrange.options import SourceOptions
from keyrange.planning import key_ranges_of


def plan_intakes(
    known: Known, start: Checkpoint, end: Checkpoint, options: SourceOptions
) -> dict[TopicPartition, PartitionIntake]:
    """What the batch from `start` to `end` hands out of each partition, from the state at the
    commit that `end` names."""
    mark = end.commits
    assert mark is not None
    intakes: dict[TopicPartition, PartitionIntake] = {}
    for partition, at in sorted(end.positions.items()):
        state = state_of(known, partition, start, end)
        intakes[partition] = plan_intake(
            state,
            spans_of(partition, mark.ranges.get(partition, 1), options),
            at,
            mark.due_ms,
            options.commits.limits,
            options.commits.keeps_order,
        )
    return intakes


def state_of(
    known: Known, partition: TopicPartition, start: Checkpoint, end: Checkpoint
) -> PartitionState:
    """The state of a partition before a batch: as it was committed, or that of one that begins."""
    topic_id = end.topic_ids.get(partition.topic, "")
    begins = end.initial.get(partition)
    at = begins if begins is not None else start.positions[partition]
    state = known.states.get(partition)
    same = state is not None and (not topic_id or state.topic_id in ("", topic_id))
    if state is None or not same or (begins is not None and begins != state.position):
        return fresh(topic_id, at)
    return state


def spans_of(partition: TopicPartition, count: int, options: SourceOptions) -> list[KeyRange]:
    """The key ranges that a partition is cut into; what others read is among them."""
    own = list(key_ranges_of(partition, options, count)) if count > 1 else []
    given = options.key_ranges.given(partition)
    if given is not None:
        own = list(given)
    return sorted([*own, *complement(own)])
