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
