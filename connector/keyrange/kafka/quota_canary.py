"""Whether brokers do what client quotas say, tried out on a client that nobody is.

A `client.quota.callback.class` may keep its own counsel: Kafka takes alterations, shows them, and
throttles by something else. So a quota is written for a client id of the guard's own, a request is
made under it that is too large for it, and the answer says for how long the broker mutes the
client. The request is to produce into a topic that does not exist, so that nothing is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.guard.model.quota_entities import CANARY, RATE, Alteration, QuotaEntity, Quotas
from keyrange.guard.model.quota_requests import RECORDS_MAX, packed
from keyrange.kafka.client_quotas import alter_quotas, read_quotas
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages.produce import ProducedRecord, produce, record_batch
from keyrange.kafka.retry_deadline import Deadline

_log = logging.getLogger(__name__)

_RATE: Final = 1_024.0
_PAYLOAD_BYTES: Final = 64 * 1024
_ANSWER_MS: Final = 2_000
_PAUSE_S: Final = 0.25


def brokers_that_ignore_quotas(cluster: Cluster, timeout_ms: float = 5_000) -> tuple[int, ...]:
    """The brokers that let a client with a quota pass for `timeout_ms`, by node id.

    Brokers hear of a quota by the metadata log, some moments after it was written; one that answers
    nothing is not among them. Nothing is left behind, but where the process dies meanwhile: then
    what removes a dead guard's marks removes this too. Raises as `read_quotas` and `alter_quotas`
    do.
    """
    brokers = dict(cluster.brokers(timeout_ms))
    entities = _entities(read_quotas(cluster, timeout_ms))
    canary = Cluster(replace(cluster.settings, client_id=CANARY))
    try:
        _write(cluster, entities, _RATE, timeout_ms)
        return _try_out(canary, brokers, cluster.deadline(timeout_ms))
    finally:
        canary.close()
        _write(cluster, entities, None, timeout_ms)


def _write(
    cluster: Cluster, entities: list[QuotaEntity], rate: float | None, timeout_ms: float
) -> None:
    parcels = [(Alteration(each, RATE, rate),) for each in entities]
    for request in packed(parcels, RECORDS_MAX):
        alter_quotas(cluster, request, False, timeout_ms)


def _entities(quotas: Quotas) -> list[QuotaEntity]:
    """Whose quota the canary has, whoever the guard is to the brokers.

    That is not known: they may make a user's name of a certificate, a Kerberos principal or a
    token, by rules of their own. A user's own quota goes before those of all users and of client
    ids, so whoever has one is named with the canary's client id; that of others is for any user.
    """
    own = {each.user for each, values in quotas.items() if RATE in values and not each.client_id}
    named = sorted(user for user in own if user)
    return [QuotaEntity(None, CANARY), *(QuotaEntity(user, CANARY) for user in ("", *named))]


def _try_out(canary: Cluster, brokers: Mapping[int, Broker], by: Deadline) -> tuple[int, ...]:
    record = ProducedRecord(int(time.time() * 1000), None, bytes(_PAYLOAD_BYTES))
    request = produce(CANARY, {0: record_batch([record])}, _ANSWER_MS)
    passing: set[int] = set()
    waiting = set(brokers)
    while waiting and not by.passed:
        for node in sorted(waiting):
            throttled = _is_throttled(canary, brokers[node], request, by)
            if throttled:
                waiting.discard(node)
            if throttled is False:
                passing.add(node)
        if waiting:
            time.sleep(_PAUSE_S)
    return tuple(sorted(passing & waiting))


def _is_throttled(canary: Cluster, broker: Broker, request: Any, by: Deadline) -> bool | None:
    """None where the broker did not say."""
    try:
        connection = canary.connection(broker.host, broker.port, by.left_ms)
        connection.set_timeout(min(max(by.left_ms, 1), _ANSWER_MS))
        return int(connection.call(request).throttle_time_ms) > 0
    except (KeyrangeError, ConnectionLost) as failure:
        _log.info("broker %s was not tried out: %s", broker.node_id, failure)
        return None
