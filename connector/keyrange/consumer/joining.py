"""How a consumer becomes a member of its group."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from keyrange.consumer.group_leader import GroupLeader
from keyrange.consumer.member import MemberThread
from keyrange.consumer.owned_ranges import OwnedRanges
from keyrange.consumer.rebalance import Sharing
from keyrange.consumer.settings import ConsumerSettings
from keyrange.consumer.table_opening import new_commit_log
from keyrange.errors import error
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.model.subscription import Subscribe, SubscribePattern
from keyrange.members.coordinator_client import check_session_timeout
from keyrange.members.executor_names import Name
from keyrange.members.model.consumer_messages import Interest, write_interest
from keyrange.members.model.member_settings import MemberSettings
from keyrange.options import source_values


def read_subscription(topics: Sequence[str], pattern: str | None) -> Subscribe | SubscribePattern:
    """Topics, or a pattern of their whole names. Raises CONSUMER_STATE where it is none of the
    two."""
    if isinstance(topics, str) or bool(topics) == (pattern is not None):
        raise error("CONSUMER_STATE", "subscribe takes a list of topics, or a pattern")
    if pattern is None:
        return Subscribe(tuple(topics))
    try:
        return SubscribePattern(source_values.pattern(pattern))
    except ValueError as fault:
        raise error("CONSUMER_STATE", f"the pattern of subscribe {fault}") from None


def interest_of(holding: OwnedRanges, name: Name, wanted: Subscribe | SubscribePattern) -> Interest:
    """What a consumer says of itself when it joins. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    if isinstance(wanted, SubscribePattern):
        topics, pattern = tuple(sorted(holding.matching(wanted).topics)), wanted.pattern
    else:
        topics, pattern = wanted.topics, ""
        holding.describe(topics)
    source = f"consumer:{name.source}"
    return Interest(name.name, topics, socket.gethostname(), os.getpid(), source, pattern)


def join(
    settings: ConsumerSettings, cluster: Cluster, name: Name, holding: OwnedRanges, said: Interest
) -> tuple[MemberThread, Sharing]:
    """Begin a membership. Raises SESSION_TIMEOUT_REFUSED, and as brokers and tables do."""
    members, client = settings.members, settings.source.client
    check_session_timeout(cluster, members.kafka_group, members.session_timeout_ms)
    own = Cluster(client)
    log = new_commit_log(settings, name.name)
    leader = GroupLeader(settings, own, log, name.name, said.pattern)
    member = MemberThread(
        MemberSettings(
            group=members.kafka_group,
            instance_id=name.instance_id,
            session_timeout_ms=members.session_timeout_ms,
            heartbeat_interval_ms=members.heartbeat_interval_ms,
            max_poll_interval_ms=members.poll_interval_ms,
            metadata=write_interest(said),
        ),
        own,
        leader,
    )
    warmup_ms, age_ms = settings.warmup_timeout_ms, client.metadata_max_age_ms
    return member, Sharing(holding, member, said, warmup_ms, age_ms, leader)
