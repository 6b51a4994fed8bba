"""Names in the commit table that consumers have left, of those that have none of their own."""

from __future__ import annotations

from dataclasses import replace

from keyrange.consumer.commit_log import CommitLog
from keyrange.consumer.settings import ConsumerSettings
from keyrange.kafka.cluster import Cluster
from keyrange.members.coordinator_client import describe_members
from keyrange.members.executor_names import Name
from keyrange.members.model.consumer_messages import read_interest


def left_name(name: Name, log: CommitLog, settings: ConsumerSettings, cluster: Cluster) -> Name:
    """The name of a consumer that has ended, which `log` goes on under; else the one that is
    given."""

    def alive() -> set[str] | None:
        """The slots of those who are in the group; None while it rebalances, and Kafka tells none
        of them."""
        group = describe_members(cluster, settings.members.kafka_group)
        if group.is_rebalancing:
            return None
        found = (read_interest(each.metadata) for each in group.members)
        return {each.slot for each in found if each is not None}

    prefix, _, _ = name.name.rpartition("-")
    found = log.adopt(f"{prefix}-", alive)
    return name if found is None else replace(name, name=found)
