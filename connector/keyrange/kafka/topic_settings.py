"""What a topic takes, by its settings."""

from __future__ import annotations

from typing import Final

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import FIRST_CONTACT_MS, Cluster
from keyrange.kafka.messages.admin import Resource, describe_configs

_MESSAGE_BYTES: Final = "max.message.bytes"


def message_bytes(cluster: Cluster, topic: str) -> int:
    """The most bytes of a record batch; 0 where this principal may not ask (DESCRIBE_CONFIGS)."""
    request = describe_configs(Resource.TOPIC, [topic], (_MESSAGE_BYTES,))
    try:
        answer = cluster.call_any_broker(request, cluster.deadline(FIRST_CONTACT_MS))
    except KeyrangeError:
        return 0
    values = {
        one.name: one.value
        for each in answer.results
        if not each.error_code
        for one in each.configs
    }
    return int(values.get(_MESSAGE_BYTES) or 0)
