"""What topics keep, as brokers say it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import error
from keyrange.kafka.model.retention_deadline import Retention
from keyrange.kafka.retention import retentions
from keyrange.kafka.retry_deadline import Deadline
from keyrange.options.kafka_properties import ClientSettings


class ScriptedCluster:
    settings = ClientSettings()

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(timeout_ms, self.settings)

    def call_any_broker(self, request: Any, by: Deadline) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(results=self.answer)


def told(topic: str, code: int = 0, **values: str | None) -> Any:
    names = {name.replace("_", "."): value for name, value in values.items()}
    configs = [SimpleNamespace(name=name, value=value) for name, value in names.items()]
    return SimpleNamespace(resource_name=topic, error_code=code, configs=configs)


def asked(*results: Any) -> tuple[dict[str, Retention], str]:
    cluster: Any = ScriptedCluster(list(results))
    return retentions(cluster, ["a", "b"], 1_000)


@pytest.mark.parametrize(
    ("policy", "ms", "size", "expected"),
    [
        ("delete", "604800000", "-1", Retention(604_800_000, None)),
        ("delete", "-1", "-1", Retention()),
        ("delete", "0", "1000", Retention(0, 1_000)),
        ("compact", "1000", "1000", Retention()),
        ("compact,delete", "1000", "-1", Retention(1_000, None)),
    ],
)
def test_what_a_topic_keeps(policy: str, ms: str, size: str, expected: Retention) -> None:
    found, unknown = asked(told("a", cleanup_policy=policy, retention_ms=ms, retention_bytes=size))
    assert (found, unknown) == ({"a": expected}, "")


def test_what_is_refused_is_not_known() -> None:
    usual = {"cleanup_policy": "delete", "retention_ms": "-1", "retention_bytes": "-1"}
    found, unknown = asked(told("a", **usual), told("b", 29))
    assert (found.keys(), unknown) == ({"a"}, "b: TOPIC_AUTHORIZATION_FAILED")
    found, unknown = asked(told("a", cleanup_policy="delete"))
    assert (found, unknown) == ({}, "a: no retention.ms was told")


def test_a_cluster_that_does_not_answer_is_no_failure() -> None:
    cluster: Any = ScriptedCluster(error("BROKER_UNREACHABLE", "no broker answered"))
    assert retentions(cluster, ["a"], 1_000) == ({}, "no broker answered")
    assert retentions(cluster, [], 1_000) == ({}, "")
    assert cluster.asked == 1
