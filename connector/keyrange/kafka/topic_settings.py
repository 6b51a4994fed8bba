"""What records a topic takes, by its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from keyrange.kafka.cluster import FIRST_CONTACT_MS, Cluster
from keyrange.kafka.messages.admin import Resource, describe_configs

_MESSAGE_BYTES: Final = "max.message.bytes"
_POLICY: Final = "cleanup.policy"
_TYPE: Final = "message.timestamp.type"
_BEFORE_MS: Final = "message.timestamp.before.max.ms"
_AFTER_MS: Final = "message.timestamp.after.max.ms"
_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """`message_bytes`: the most bytes of a record batch, 0 where that is not told. `needs_keys`: a
    topic that is compacted takes no record without one. How far timestamps of records may lie
    before and after a broker's clock."""

    message_bytes: int = 0
    needs_keys: bool = False
    before_ms: int = _NO_LIMIT
    after_ms: int = _NO_LIMIT


def topic_settings(cluster: Cluster, topic: str) -> TopicSettings:
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
    return TopicSettings(
        int(found.get(_MESSAGE_BYTES) or 0),
        "compact" in found.get(_POLICY, ""),
        int(found.get(_BEFORE_MS) or _NO_LIMIT) if is_given else _NO_LIMIT,
        int(found.get(_AFTER_MS) or _NO_LIMIT) if is_given else _NO_LIMIT,
    )
