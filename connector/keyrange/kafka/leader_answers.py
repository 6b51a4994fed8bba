"""What leaders answered for partitions, beside what they were asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster_view import Answers, Failures
from keyrange.model.offsets import TopicPartition

# How the text of a failure begins if a leader cannot be connected to.
UNREACHABLE: Final = "cannot be reached: "
LEFT_OUT: Final = "the answer says nothing of it"
# There is no record at or behind a timestamp.
_NO_OFFSET: Final = -1


def unanswered(
    failures: Failures, told: Answers, partitions: Collection[TopicPartition]
) -> Failures:
    """Of the partitions that a leader was asked for those that have no answer, and why: what it
    says of others counts for nothing, and what it leaves out is asked for again."""
    return {each: failures.get(each, LEFT_OUT) for each in partitions if each not in told}


def check_offsets(found: Answers, wanted: Mapping[TopicPartition, int]) -> Answers:
    """What was found. Raises BROKER_ERROR where an offset is none; `wanted` as of
    `Cluster.list_offsets`."""
    for partition, (offset, _) in found.items():
        if offset < 0 and (wanted[partition] < 0 or offset != _NO_OFFSET):
            raise error("BROKER_ERROR", f"the broker says that {partition} is at {offset}")
    return found


def no_answer(failures: Failures) -> KeyrangeError:
    """The error of partitions without an answer."""
    shown = ", ".join(f"{partition}: {why}" for partition, why in sorted(failures.items())[:10])
    # A cluster that answers at its bootstrap address and names leaders that cannot be reached has
    # the wrong listeners advertised, or a network in between.
    unreachable = all(why.startswith(UNREACHABLE) for why in failures.values())
    condition = "BROKER_UNREACHABLE" if unreachable else "BROKER_ERROR"
    return error(condition, f"no offsets for {len(failures)} partitions ({shown})")
