"""What topics keep, by their settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.kafka.cluster import Cluster
from keyrange.kafka.messages import protocol
from keyrange.kafka.messages.admin import Resource, describe_configs
from keyrange.kafka.model.retention_deadline import Retention

_POLICY: Final = "cleanup.policy"
_MS: Final = "retention.ms"
_BYTES: Final = "retention.bytes"


def retentions(
    cluster: Cluster, topics: Iterable[str], timeout_ms: float
) -> tuple[dict[str, Retention], str]:
    """What each topic keeps, and why that is not known of the others, "" where it is of all.

    Needs DESCRIBE_CONFIGS on the topics.
    """
    wanted = sorted(set(topics))
    if not wanted:
        return {}, ""
    request = describe_configs(Resource.TOPIC, wanted, (_POLICY, _MS, _BYTES))
    by = cluster.deadline(timeout_ms)
    try:
        answer = cluster.call_any_broker(request, by)
    except KeyrangeError as failure:
        return {}, failure.message
    found: dict[str, Retention] = {}
    failures: list[str] = []
    for each in answer.results:
        if each.error_code:
            failures.append(f"{each.resource_name}: {protocol.error_name(each.error_code)}")
            continue
        retention = _read({one.name: one.value for one in each.configs})
        if retention is None:
            failures.append(f"{each.resource_name}: no {_MS} was told")
        else:
            found[each.resource_name] = retention
    return found, ", ".join(failures)


def _read(values: dict[str, Any]) -> Retention | None:
    if not {_POLICY, _MS, _BYTES} <= values.keys():
        return None
    if "delete" not in (values[_POLICY] or ""):
        # Only compacted: positions stay good, the newest record of each key stays.
        return Retention()
    return Retention(_limit(values[_MS]), _limit(values[_BYTES]))


def _limit(value: str | None) -> int | None:
    """-1 stands for none."""
    number = int(value or -1)
    return number if number >= 0 else None
