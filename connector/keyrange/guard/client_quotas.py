"""The quotas of users and clients: what they are, changing them, and whether brokers do what they
say, tried out on a client that nobody is.

Kafka has no compare-and-set here. A change of several entities is one request, but an entity that
is refused keeps none of the others from being changed: all is validated before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.guard.model.quota_entities import CANARY, RATE, Alteration, QuotaEntity, Quotas
from keyrange.guard.model.quota_requests import RECORDS_MAX, packed
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.admin import (
    Resource,
    alter_client_quotas,
    describe_client_quotas,
    describe_configs,
)
from keyrange.kafka.messages.produce import produce, record_batch
from keyrange.kafka.retry_deadline import Deadline

_log = logging.getLogger(__name__)

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_READING: Final = "client quotas cannot be read, which needs DESCRIBE_CONFIGS on the cluster"
_CALLBACK: Final = "client.quota.callback.class"
# Of the client that nobody is, in bytes per second, and what it sends.
_CANARY_RATE: Final = 1_024.0
_PAYLOAD_BYTES: Final = 64 * 1024
_ANSWER_MS: Final = 2_000
_PAUSE_S: Final = 0.25
_Entity = tuple[tuple[str, str | None], ...]


def read_quotas(cluster: Cluster, timeout_ms: float) -> Quotas:
    """All quotas of users and clients; those of addresses are left out.

    Needs DESCRIBE_CONFIGS on the cluster. Raises AUTHORIZATION_FAILED, BROKER_UNREACHABLE,
    QUOTAS_UNAVAILABLE.
    """
    by = cluster.deadline(timeout_ms)
    answer = cluster.call_any_broker(describe_client_quotas(), by)
    if answer.error_code:
        raise _failed(_READING, answer.error_code, answer.error_message)
    found: dict[QuotaEntity, dict[str, float]] = {}
    for each in answer.entries or ():
        names = {one.entity_type: one.entity_name for one in each.entity}
        if names.keys() <= {_USER, _CLIENT_ID}:
            entity = QuotaEntity(_read(names, _USER), _read(names, _CLIENT_ID))
            found[entity] = {one.key: one.value for one in each.values}
    return found


def alter_quotas(
    cluster: Cluster, alterations: Iterable[Alteration], validate_only: bool, timeout_ms: float
) -> None:
    """Change quotas in one request, or find out whether that would be taken.

    Needs ALTER_CONFIGS on the cluster. Raises AUTHORIZATION_FAILED, BROKER_UNREACHABLE,
    QUOTAS_UNAVAILABLE, and QUOTAS_REFUSED that names what was refused: of the other entities it
    is not known what became of them.
    """
    wanted: dict[_Entity, dict[str, float | None]] = {}
    for each in alterations:
        wanted.setdefault(_named(each.entity), {})[each.key] = each.value
    if not wanted:
        return
    by = cluster.deadline(timeout_ms)
    request = alter_client_quotas(wanted, validate_only)
    answer = cluster.call_any_broker(request, by)
    refused = [each for each in answer.entries if each.error_code]
    if refused:
        first = refused[0]
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        name = ", ".join(f"{one.entity_type} {one.entity_name}" for one in first.entity)
        what = f"quotas of {name} cannot be altered{more}, which needs ALTER_CONFIGS on the cluster"
        raise _failed(what, first.error_code, first.error_message)


def _failed(what: str, code: int, said: str | None) -> KeyrangeError:
    text = f"{what}: {protocol.error_name(code)}" + (f", {said}" if said else "")
    if code == protocol.Code.CLUSTER_AUTHORIZATION_FAILED:
        return error("AUTHORIZATION_FAILED", text)
    if protocol.is_retriable(code):
        return error("QUOTAS_UNAVAILABLE", text)
    return error("QUOTAS_REFUSED", text)


def _read(names: dict[str, Any], kind: str) -> str | None:
    """None where an entity has no part of this kind, "" for the default of the kind."""
    return (names[kind] or "") if kind in names else None


def _named(entity: QuotaEntity) -> _Entity:
    parts = ((_USER, entity.user), (_CLIENT_ID, entity.client_id))
    return tuple((kind, name or None) for kind, name in parts if name is not None)


def quota_callback(cluster: Cluster, timeout_ms: float = 5_000) -> str:
    """The brokers' `client.quota.callback.class`, "" where they have none or do not tell.

    With one of their own, what quotas say may count for nothing.
    """
    try:
        view = cluster.describe([], timeout_ms)
        broker = min(view.brokers)
        request = describe_configs(Resource.BROKER, [str(broker)], [_CALLBACK])
        by = cluster.deadline(timeout_ms)
        node = view.brokers[broker]
        answer = cluster.call(node.host, node.port, request, by)
    except (KeyrangeError, ConnectionLost) as failure:
        _log.info("%s cannot be read: %s", _CALLBACK, failure)
        return ""
    values = [each.value for result in answer.results for each in result.configs if each.value]
    return f"{_CALLBACK} {values[0]}" if values else ""


def brokers_that_ignore_quotas(cluster: Cluster, timeout_ms: float = 5_000) -> tuple[int, ...]:
    """The brokers that let a client with a quota pass for `timeout_ms`, by node id.

    A `client.quota.callback.class` may keep its own counsel: Kafka takes alterations, shows them,
    and throttles by something else. So a quota is written for a client id of the guard's own, a
    request is made under it that is too large for it, and the answer says for how long the broker
    mutes the client. The request is to produce into a topic that does not exist, so that nothing is
    written.

    Brokers hear of a quota by the metadata log, some moments after it was written; one that answers
    nothing is not among them. Nothing is left behind, but where the process dies meanwhile: then
    what removes a dead guard's marks removes this too. Raises as `read_quotas` and `alter_quotas`
    do.
    """
    brokers = dict(cluster.brokers(timeout_ms))
    entities = _entities(read_quotas(cluster, timeout_ms))
    canary = Cluster(replace(cluster.settings, client_id=CANARY))
    try:
        _write(cluster, entities, _CANARY_RATE, timeout_ms)
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
    batch = record_batch(bytes(_PAYLOAD_BYTES), int(time.time() * 1000))
    request = produce(None, {CANARY: [(0, batch)]}, _ANSWER_MS)
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
