"""Topics whose keys have state: whether they may share it, how their partitions are cut then, and
what is said of those that grow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from keyrange.errors import KeyrangeError, error
from keyrange.individual_commits.model.commit import Snapshot
from keyrange.model.checkpoint import Checkpoint, CommitMark
from keyrange.model.commit_settings import CommitSettings
from keyrange.model.offsets import TopicPartition
from keyrange.model.state_scope import StateScope
from keyrange.source.model.partition_changes import grown

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Where the portions of partitions may begin that slots read.
CutsOf = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, tuple[int, ...]]]


def check_scope(known: Snapshot, terms: CommitSettings) -> None:
    """Raises STATE_TOPICS_DIFFER where state stands elsewhere than option state.topic says."""
    if known.terms is None or not any(known.runs.values()):
        return
    was, is_now = known.terms.state_topic, terms.state_topic
    if was != is_now:
        raise _differ(
            f"the state of keys was written with state.topic={was or 'none'}, and option "
            f"state.topic is {is_now or 'none'}",
            seq=known.seq,
        )


def check_mark(mark: CommitMark, scope: StateScope) -> None:
    """Raises STATE_TOPICS_DIFFER where a batch that is not finished was planned otherwise."""
    if mark.state_topic != scope.topic:
        raise _differ(
            f"a batch that was planned with state.topic={mark.state_topic or 'none'} is not "
            f"finished, and option state.topic is {scope.topic or 'none'}",
            seq=mark.seq,
        )


def check_topics(known: Snapshot, base: Checkpoint, scope: StateScope) -> None:
    """Whether the topics of the next batch may share their state. Raises STATE_TOPICS_DIFFER."""
    if not scope.is_shared:
        return
    numbers: dict[str, set[int]] = {}
    for topic, number in base.positions:
        numbers.setdefault(topic, set()).add(number)
    gone = sorted({each.topic for each in base.absent})
    for partition, own_id in zip(known.states, known.states.topic_ids, strict=True):
        now_id = base.topic_ids.get(partition.topic, "")
        if own_id and now_id and own_id != now_id:
            gone.append(partition.topic)
    if gone:
        raise _differ(
            f"topic {gone[0]} was deleted or created anew, or is not read any more, and the state "
            "that it shares holds its records"
        )
    if scope.topic not in numbers:
        raise _differ(f"state.topic={scope.topic} is none of the topics that the query reads")
    own = numbers[scope.topic]
    for topic, others in sorted(numbers.items()):
        if others != own:
            raise _differ(
                f"topic {topic} has {len(others)} partitions, and {scope.topic} has {len(own)}: "
                "a key lies in partitions of different numbers"
            )


def _differ(text: str, **context: int) -> KeyrangeError:
    return error("STATE_TOPICS_DIFFER", text, **context)


def same_counts(
    counts: Mapping[TopicPartition, int],
    partitions: Collection[TopicPartition],
    scope: StateScope,
) -> Mapping[TopicPartition, int]:
    """Into how many key ranges partitions are cut, so that those that share their state are cut
    alike."""
    if not scope.is_shared:
        return counts
    most: dict[TopicPartition, int] = {}
    for partition, count in counts.items():
        home = scope.home(partition)
        most[home] = max(count, most.get(home, 1))
    return _spread(most, partitions, scope)


def same_cuts(
    cuts_of: CutsOf | None,
    busy: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
    scope: StateScope,
) -> Mapping[TopicPartition, tuple[int, ...]]:
    """Where the portions of the `busy` ones of all partitions may begin. Of those that share their
    state the one with the state is owned, and all are cut as it is."""
    if cuts_of is None:
        return {}
    if not scope.is_shared:
        return cuts_of(busy)
    return _spread(cuts_of(scope.homes(busy)), partitions, scope)


def _spread(
    of_homes: Mapping[TopicPartition, _T],
    partitions: Collection[TopicPartition],
    scope: StateScope,
) -> dict[TopicPartition, _T]:
    return {
        each: of_homes[home]
        for each in sorted(partitions)
        if (home := scope.home(each)) in of_homes
    }


class GrownTopics:
    """Says of topics that have more partitions than before what that means for state."""

    def __init__(self) -> None:
        self._said: set[tuple[str, int]] = set()

    def say(self, start: Checkpoint, base: Checkpoint) -> None:
        """Producers choose a key's partition by how many there are."""
        for topic, (were, count) in grown(start, base).items():
            if (topic, count) not in self._said:
                self._said.add((topic, count))
                _log.warning(
                    "topic %s has grown from %d to %d partitions: keys that producers write to "
                    "other partitions than before begin without state there (guide: state.md)",
                    topic,
                    were,
                    count,
                )
