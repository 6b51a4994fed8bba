"""What records a topic takes, by its settings."""

from __future__ import annotations

from typing import Final

from keyrange.kafka.cluster import FIRST_CONTACT_MS, Cluster
from keyrange.kafka.messages.admin import Resource, describe_configs
from keyrange.wire.topic_limits import NO_LIMIT_MS, TopicLimits

_MESSAGE_BYTES: Final = "max.message.bytes"
_POLICY: Final = "cleanup.policy"
_TYPE: Final = "message.timestamp.type"
_BEFORE_MS: Final = "message.timestamp.before.max.ms"
_AFTER_MS: Final = "message.timestamp.after.max.ms"


def topic_settings(cluster: Cluster, topic: str) -> TopicLimits:
    """Those of one topic; where this principal may not ask (DESCRIBE_CONFIGS), as if there were no
    limits: the broker says them then. Raises what a contact raises."""
    names = (_MESSAGE_BYTES, _POLICY, _TYPE, _BEFORE_MS, _AFTER_MS)
    request = describe_configs(Resource.TOPIC, [topic], names)
    answer = cluster.call_any_broker(request, cluster.deadline(FIRST_CONTACT_MS))
    found = {
        one.name: one.value or ""
        for each in answer.results
        if not each.error_code
        for one in each.configs
    }
    is_given = found.get(_TYPE) != "LogAppendTime"
    return TopicLimits(
        message_bytes=int(found.get(_MESSAGE_BYTES) or 0),
        # A topic that is compacted takes no record without a key.
        needs_keys="compact" in found.get(_POLICY, ""),
        before_ms=int((is_given and found.get(_BEFORE_MS)) or NO_LIMIT_MS),
        after_ms=int((is_given and found.get(_AFTER_MS)) or NO_LIMIT_MS),
    )
