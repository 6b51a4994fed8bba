"""What the guard says, where nobody hears it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from keyrange.cli.volumes import guard as volumes_commands
from keyrange.cli.volumes.guard import Speaker


def speaking(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> list[str]:
    said: list[str] = []

    def say(what: str, details: dict[str, Any]) -> None:
        del details
        said.append(what)
        if failure is not None:
            raise failure

    monkeypatch.setattr(volumes_commands, "say", say)
    return said


def test_who_is_not_heard_stops_and_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    said, stop = speaking(monkeypatch, BrokenPipeError()), threading.Event()
    speaker = Speaker(stop)
    speaker("stage", {})
    speaker("altered", {})
    assert (said, stop.is_set(), speaker.is_unheard) == (["stage"], True, True)
    # Without anything to stop it is silent all the same.
    Speaker()("released", {})


def test_a_line_that_cannot_be_written_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said = speaking(monkeypatch, OSError(28, "No space left on device"))
    stop = threading.Event()
    speaker = Speaker(stop)
    speaker("stage", {})
    speaker("altered", {})
    assert (said, stop.is_set(), speaker.is_unheard) == (["stage", "altered"], False, False)
