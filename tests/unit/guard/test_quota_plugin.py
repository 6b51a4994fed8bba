"""What a guard says of brokers that have a quota plug-in."""

from __future__ import annotations

from typing import Any

import pytest

from keyrange.errors import error
from keyrange.guard import quota_plugin
from keyrange.guard.quota_plugin import say_of_plugin

NAME = "client.quota.callback.class Own"


def told(
    monkeypatch: pytest.MonkeyPatch, name: str, found: Any, dry_run: bool = False
) -> list[tuple[str, dict[str, Any]]]:
    def tried(_: Any) -> tuple[int, ...]:
        assert not dry_run
        if isinstance(found, Exception):
            raise found
        answer: tuple[int, ...] = found
        return answer

    monkeypatch.setattr(quota_plugin, "quota_callback", lambda _: name)
    monkeypatch.setattr(quota_plugin, "brokers_that_ignore_quotas", tried)
    said: list[tuple[str, dict[str, Any]]] = []
    cluster: Any = None
    say_of_plugin(cluster, dry_run, lambda what, details: said.append((what, details)))
    return said


def test_without_a_plugin_nothing_is_tried_or_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "", AssertionError("tried")) == []


def test_with_one_it_is_said_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, NAME, ()) == [("quotas count", {"plugin": NAME})]
    [(what, details)] = told(monkeypatch, NAME, (1, 3))
    assert (what, details["error"]) == (
        "trouble",
        f"client quotas have no effect on brokers 1, 3, which have {NAME}",
    )


def test_a_dry_run_tries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    [(what, details)] = told(monkeypatch, NAME, (), dry_run=True)
    assert (what, details["error"]) == ("trouble", f"the brokers' {NAME} may ignore client quotas")


def test_what_cannot_be_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = error("AUTHORIZATION_FAILED", "no ALTER_CONFIGS")
    [(what, details)] = told(monkeypatch, NAME, refused)
    assert what == "trouble"
    assert "may ignore client quotas, which could not be tried" in details["error"]
    assert "no ALTER_CONFIGS" in details["error"]
