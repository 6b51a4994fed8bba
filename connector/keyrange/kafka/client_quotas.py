"""The quotas of users and clients: what they are, and changing them.

Kafka has no compare-and-set here. A change of several entities is one request, but an entity that
is refused keeps none of the others from being changed: all is validated before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.guard.model.quota_entities import Alteration, QuotaEntity, Quotas
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.admin import (
    Resource,
    alter_client_quotas,
    describe_client_quotas,
    describe_configs,
)

_log = logging.getLogger(__name__)

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_READING: Final = "client quotas cannot be read, which needs DESCRIBE_CONFIGS on the cluster"
_CALLBACK: Final = "client.quota.callback.class"
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
