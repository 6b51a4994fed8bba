"""What a subscription stands for in a cluster, and asking for it as often as options allow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeVar

from keyrange.errors import KeyrangeError, error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.model.offsets import TopicPartition
from keyrange.model.subscription import Assign, SubscribePattern, Subscription

_log = logging.getLogger(__name__)

T = TypeVar("T")

_TRIES: Final = 3
_SHOWN_MAX: Final = 10


def describe(
    cluster: Cluster, subscription: Subscription, known: Collection[TopicPartition] | None = ()
) -> ClusterView:
    """The cluster, with the partitions of a subscription and no others.

    Topics and partitions in `known` are left out where they do not exist (None: all of them).
    Raises UNKNOWN_TOPIC_OR_PARTITION that names every other one that is missing.
    """
    if isinstance(subscription, SubscribePattern):
        return cluster.describe_matching(subscription.reads)
    topics = subscription.topics
    may_miss = topics if known is None else {partition.topic for partition in known}
    view = cluster.describe(topics, may_miss=may_miss)
    if isinstance(subscription, Assign):
        excused = subscription.partitions if known is None else known
        return _assigned(view, subscription.partitions, excused)
    return view


def _assigned(
    view: ClusterView,
    assigned: Collection[TopicPartition],
    known: Collection[TopicPartition],
) -> ClusterView:
    existing = set(view.partitions())
    missing = sorted(set(assigned) - existing - set(known))
    if missing:
        raise error(
            "UNKNOWN_TOPIC_OR_PARTITION",
            f"the cluster has no partition {', '.join(map(str, missing))}",
        )
    wanted = set(assigned)
    topics = {
        name: replace(
            topic,
            leaders={
                number: leader
                for number, leader in topic.leaders.items()
                if TopicPartition(name, number) in wanted
            },
        )
        for name, topic in view.topics.items()
    }
    return replace(view, topics=topics)


def warn_of_pattern(cluster: Cluster, subscription: Subscription, view: ClusterView) -> None:
    """Say that a pattern is that of no topic in `view`, and name the topics that Spark's own Kafka
    source reads by the same pattern: a query that came from there would lack their records without
    a word."""
    if not isinstance(subscription, SubscribePattern):
        return
    left_out: set[str] = set()

    def note(topic: str) -> bool:
        if subscription.leaves_out(topic):
            left_out.add(topic)
        return False

    cluster.describe_matching(note)
    if not view.topics:
        _log.warning(
            "no topic has a name that option 'subscribePattern' describes: nothing to read"
        )
    if left_out:
        _log.warning(
            "option 'subscribePattern' describes whole names, and leaves out %s topics in whose "
            "names it is found: %s. subscribePatternMatch=search reads them too, as Spark's own "
            "Kafka source does; subscribePatternMatch=full says that they are not meant",
            len(left_out),
            ", ".join([*sorted(left_out)[:_SHOWN_MAX], *["..."] * (len(left_out) > _SHOWN_MAX)]),
        )


def retrying(cluster: Cluster, tries: int | None, pause_ms: int, ask: Callable[[], T]) -> T:
    """Ask the cluster, with new connections each time, until it answers or `tries` are used up.

    Only what may pass by itself is asked again. `tries` None: 3, and 1 as long as the cluster has
    never answered.
    """
    tried = 0
    while True:
        tried += 1
        most = tries if tries is not None else (_TRIES if cluster.contacted else 1)
        try:
            return ask()
        except KeyrangeError as failure:
            if not failure.retriable or tried >= most:
                raise
            _log.warning("try %s of %s failed: %s", tried, most, failure)
            cluster.close()
            time.sleep(pause_ms / 1000)
