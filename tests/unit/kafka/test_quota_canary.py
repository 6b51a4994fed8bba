"""Trying out whether brokers do what client quotas say, against scripted ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from keyrange.errors import KeyrangeError, error
from keyrange.guard import client_quotas
from keyrange.guard.client_quotas import brokers_that_ignore_quotas
from keyrange.guard.model.quota_entities import CANARY, RATE, Alteration, QuotaEntity, Quotas
from keyrange.kafka.cluster_view import Broker
from keyrange.kafka.connection import Connection, ConnectionLost
from keyrange.kafka.retry_deadline import Deadline
from keyrange.options.kafka_properties import ClientSettings


@dataclass
class ScriptedBrokers:
    """By node id: for how long each answer in turn mutes, the last one from then on."""

    answers: dict[int, list[int | Exception]]
    settings: ClientSettings = field(default_factory=ClientSettings)
    quotas: Quotas = field(default_factory=dict)
    altered: list[list[Alteration]] = field(default_factory=list)
    clients: set[str] = field(default_factory=set)

    def brokers(self, timeout_ms: float) -> dict[int, Broker]:
        return {node: Broker(node, "h", node) for node in self.answers}

    def deadline(self, timeout_ms: float) -> Deadline:
        return Deadline(timeout_ms, self.settings)

    def connect(self, host: str, port: int, settings: ClientSettings, *_: Any, **__: Any) -> Any:
        self.clients.add(settings.client_id)
        answers = self.answers[port]
        if isinstance(answers[0], KeyrangeError):
            raise answers[0]

        def call(request: Any) -> Any:
            answer = answers[0] if len(answers) == 1 else answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(throttle_time_ms=answer)

        return SimpleNamespace(
            usable=True, call=call, set_timeout=lambda _: None, close=lambda: None
        )


def tried(monkeypatch: pytest.MonkeyPatch, brokers: ScriptedBrokers) -> tuple[int, ...]:
    def alter(cluster: Any, altered: Iterable[Alteration], validate_only: bool, _: float) -> None:
        assert not validate_only
        brokers.altered.append(list(altered))

    monkeypatch.setattr(client_quotas, "read_quotas", lambda *_: brokers.quotas)
    monkeypatch.setattr(client_quotas, "alter_quotas", alter)
    monkeypatch.setattr(Connection, "connect", brokers.connect)
    cluster: Any = brokers
    return brokers_that_ignore_quotas(cluster, timeout_ms=700)


def test_brokers_that_never_mute_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third hears of the quota a moment later."""
    brokers = ScriptedBrokers({1: [0], 2: [9_000], 3: [0, 0, 9_000], 4: [0]})
    assert tried(monkeypatch, brokers) == (1, 4)
    assert brokers.clients == {CANARY}


def test_a_broker_that_says_nothing_is_not_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = error("BROKER_UNREACHABLE", "cannot connect")
    brokers = ScriptedBrokers({1: [gone], 2: [ConnectionLost("cut")], 3: [5]})
    assert tried(monkeypatch, brokers) == ()


def test_what_was_written_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for users with quotas of their own: the guard may be any of them."""
    rate, other = {RATE: 5.0}, {"consumer_byte_rate": 5.0}
    brokers = ScriptedBrokers(
        {1: [5]},
        quotas={
            QuotaEntity("whole", None): rate,
            QuotaEntity("any", ""): rate,
            QuotaEntity("", None): rate,
            QuotaEntity(None, "app"): rate,
            QuotaEntity("of one client", "app"): rate,
            QuotaEntity("of another kind", None): other,
        },
    )
    tried(monkeypatch, brokers)
    written, removed = brokers.altered
    names = [None, "", "any", "whole"]
    assert [each.entity for each in written] == [QuotaEntity(name, CANARY) for name in names]
    assert [each.entity for each in removed] == [each.entity for each in written]
    assert {each.value for each in written} == {1_024.0}
    assert {each.value for each in removed} == {None}
