"""One fetch from one leader: the request, how large its answer may be, and the whole answer by a
deadline.

As with Kafka's own clients a whole answer has to come within `request.timeout.ms`; but here it
holds up to 8 MiB, which a slow link may take longer for. So what comes at 4 KiB/s or more is waited
for: each byte that came moves the deadline by what it takes at that rate, and a byte now and then
moves it by nothing to speak of.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Final

import numpy as np

from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.fetching.cursor import Cursor, InFlight
from keyrange.kafka.messages import protocol
from keyrange.kafka.response_frames import ReceiveBuffer
from keyrange.kafka.retry_deadline import Deadline
from keyrange.wire import fetch_response
from keyrange.wire.compression import Bytes
from keyrange.wire.fetch_response import FetchResponse

_log = logging.getLogger(__name__)

_ENVELOPE_BYTES: Final = 1024 * 1024
# A link that brings less of an answer, in bytes per second, is taken for dead.
_LEAST_RATE: Final = 4 * 1024.0
# How long a last try may take beyond what the broker may wait for records, where the deadline has
# come meanwhile.
_LAST_TRY_MS: Final = 1_000
_SHOWN_MS: Final = 1_000


def send_fetch(
    cluster: Cluster, view: ClusterView, cursor: Cursor, ask_bytes: int, by: Deadline
) -> InFlight:
    """Ask for what comes where a cursor stands; raises ConnectionLost, and as `Cluster.connection`
    does."""
    split = cursor.split
    broker = view.brokers.get(cursor.replica) or view.leader(split.topic_partition)
    if broker is None:
        raise ConnectionLost(f"{split.topic_partition} has no leader")
    limit_ms = max(by.left_ms, _LAST_TRY_MS)
    connection = cluster.connection(broker.host, broker.port, limit_ms, ahead=True)
    version = connection.fetch_version()
    topic_id = view.topic_id(split.topic)
    if not topic_id:
        version = min(version, fetch_response.VERSION_MAX - 1)
    client = cluster.settings
    if not cursor.near:
        client = replace(client, client_rack="")
    request = protocol.fetch(
        {(split.topic, topic_id): [(split.partition, cursor.position, cursor.leader_epoch)]},
        ask_bytes,
        ask_bytes,
        client,
        client.fetch_max_wait_ms,
    )
    connection.send(request, version)
    return InFlight(cursor, connection, version, ask_bytes)


def receive_fetch(
    cluster: Cluster, asked: InFlight, buffer: ReceiveBuffer, batch_bytes_max: int, by: Deadline
) -> tuple[Bytes, FetchResponse]:
    """The frame of an answer behind its header, and what it says of its bytes.

    Raises ConnectionLost; CORRUPT_FRAME, and BATCH_TOO_LARGE that names the partition, with the
    connection closed.
    """
    client = cluster.settings
    left_ms = max(by.left_ms, client.fetch_max_wait_ms + _LAST_TRY_MS)
    received = asked.connection.receive(
        buffer,
        max(client.max_partition_fetch_bytes, batch_bytes_max) + _ENVELOPE_BYTES,
        by=time.monotonic() + min(client.request_timeout_ms, left_ms) / 1000,
        least_rate=_LEAST_RATE,
        **asked.cursor.place,
    )[fetch_response.header_bytes(asked.version) :]
    try:
        answer = fetch_response.parse_fetch_response(received, asked.version)
        return np.frombuffer(received, np.uint8), answer
    except Exception:
        asked.connection.close()
        raise


def wait_throttled(cursor: Cursor, throttle_time_ms: int, by: Deadline) -> None:
    """The broker mutes the connection for so long; asking earlier would only wait longer. But no
    single wait goes past the deadline."""
    pause_ms = min(throttle_time_ms, max(by.left_ms, 0))
    _log.log(
        logging.WARNING if throttle_time_ms >= _SHOWN_MS else logging.INFO,
        "a client quota of the broker throttles the reading of %s by %d ms",
        cursor.split.topic_partition,
        throttle_time_ms,
    )
    time.sleep(pause_ms / 1000)
