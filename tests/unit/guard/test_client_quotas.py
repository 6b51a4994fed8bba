"""Client quotas, with a scripted cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.guard.client_quotas import alter_quotas, quota_callback, read_quotas
from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity
from keyrange.kafka.cluster_view import Broker, ClusterView
from keyrange.kafka.connection import ConnectionLost
from keyrange.kafka.retry_deadline import Deadline
from keyrange.options.kafka_properties import ClientSettings

ALICE, APP = QuotaEntity("alice", None), QuotaEntity(None, "app")
DENIED, NOT_CONTROLLER, POLICY = 31, 41, 44


class ScriptedCluster:
    settings = ClientSettings()

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: list[Any] = []

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(timeout_ms, self.settings)

    def describe(self, topics: Any, timeout_ms: float) -> ClusterView:
        return ClusterView("", {2: Broker(2, "b", 9), 1: Broker(1, "a", 9)}, {})

    def call(self, host: str, port: int, request: Any, by: Deadline) -> Any:
        assert host == "a"
        return self.call_any_broker(request, by)

    def call_any_broker(self, request: Any, by: Deadline) -> Any:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def entry(code: int = 0, values: dict[str, float] | None = None, **names: str | None) -> Any:
    entity = [
        SimpleNamespace(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in names.items()
    ]
    each = [SimpleNamespace(key=key, value=value) for key, value in (values or {}).items()]
    return SimpleNamespace(error_code=code, error_message="so it is", entity=entity, values=each)


def answered(*entries: Any, code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, error_message=None, entries=list(entries) or None)


def read(answer: Any) -> Any:
    cluster: Any = ScriptedCluster(answer)
    return read_quotas(cluster, 1_000)


def alter(answer: Any, *alterations: Alteration) -> ScriptedCluster:
    cluster: Any = ScriptedCluster(answer)
    alter_quotas(cluster, alterations, True, 1_000)
    made: ScriptedCluster = cluster
    return made


def test_entities_of_all_kinds_but_addresses() -> None:
    found = read(
        answered(
            entry(values={RATE: 5.0}, user="alice", client_id=None),
            entry(values={RATE: 6.0}, user=None),
            entry(values={RATE: 7.0}, client_id="app"),
            entry(values={"connection_creation_rate": 8.0}, ip="10.0.0.1"),
        )
    )
    assert found == {
        QuotaEntity("alice", ""): {RATE: 5.0},
        QuotaEntity("", None): {RATE: 6.0},
        APP: {RATE: 7.0},
    }
    assert read(answered()) == {}


def test_one_request_has_all_keys_of_an_entity() -> None:
    cluster = alter(
        SimpleNamespace(entries=[entry(user="alice")]),
        Alteration(ALICE, RATE, 5.0),
        Alteration(APP, RATE, None),
        Alteration(ALICE, "consumer_byte_rate", 7.0),
    )
    [request] = cluster.requests
    assert request.validate_only
    found = [
        (
            [(one.entity_type, one.entity_name) for one in each.entity],
            [(op.key, op.value, op.remove) for op in each.ops],
        )
        for each in request.entries
    ]
    assert found == [
        ([("user", "alice")], [(RATE, 5.0, False), ("consumer_byte_rate", 7.0, False)]),
        ([("client-id", "app")], [(RATE, 0.0, True)]),
    ]


def test_nothing_to_alter_asks_nobody() -> None:
    assert alter(None).requests == []


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        (DENIED, "AUTHORIZATION_FAILED"),
        (NOT_CONTROLLER, "QUOTAS_UNAVAILABLE"),
        (POLICY, "QUOTAS_REFUSED"),
    ],
)
def test_what_is_refused_is_typed_and_named(code: int, condition: str) -> None:
    with pytest.raises(KeyrangeError) as caught:
        read(answered(code=code))
    assert caught.value.condition.name == condition
    refused = [entry(user="alice"), entry(code, user="bob"), entry(code, user="carol")]
    with pytest.raises(KeyrangeError) as caught:
        alter(SimpleNamespace(entries=refused), Alteration(ALICE, RATE, 5.0))
    assert caught.value.condition.name == condition
    assert "user bob cannot be altered, and 1 more" in caught.value.message
    assert "so it is" in caught.value.message


def configs(value: str | None) -> Any:
    one = SimpleNamespace(name="client.quota.callback.class", value=value)
    return SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=[one])])


def test_a_quota_plugin_is_named() -> None:
    cluster: Any = ScriptedCluster(configs("io.strimzi.StaticQuotaCallback"))
    assert quota_callback(cluster) == "client.quota.callback.class io.strimzi.StaticQuotaCallback"
    for answer in (configs(None), ConnectionLost("cut"), error("BROKER_UNREACHABLE", "gone")):
        cluster = ScriptedCluster(answer)
        assert quota_callback(cluster) == ""
