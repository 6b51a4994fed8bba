"""How many partitions topics have, as a worker has asked for itself."""

from __future__ import annotations

import time
from contextlib import closing

from keyrange.kafka.cluster import Cluster
from keyrange.options.kafka_properties import ClientSettings

_known: dict[tuple[ClientSettings, str], tuple[int, float]] = {}


def partitions_of(client: ClientSettings, topic: str) -> int:
    """Asked for once in `metadata.max.age.ms`. Raises as `Cluster.topic`."""
    count, asked_at = _known.get((client, topic), (0, 0.0))
    now = time.monotonic()
    if not count or (now - asked_at) * 1000 > client.metadata_max_age_ms:
        with closing(Cluster(client)) as cluster:
            count = len(cluster.topic(topic).leaders)
        _known[client, topic] = count, now
    return count
