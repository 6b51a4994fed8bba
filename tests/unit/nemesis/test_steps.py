"""Deadlines of the nemesis' own steps."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from nemesis.feeder import Feeder
from nemesis.steps import StepHung, step
from nemesis.values import RawValues


def _hang(name: str, limit_s: float) -> None:
    with step(name, limit_s):
        threading.Event().wait(20)


def test_a_step_that_hangs_is_named_and_left(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StepHung, match="the feeder stops"):
        _hang("the feeder stops", 0.05)
    told = capfd.readouterr().err
    assert "the feeder stops: not over" in told
    assert "in _hang" in told


def _hang_after_a_step() -> None:
    with step("outer", 2.0):
        with step("inner", 1.5):
            pass
        time.sleep(20)


@pytest.mark.ordinary
def test_a_deadline_ends_with_its_step_and_that_around_it_goes_on() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(StepHung, match="outer"):
        _hang_after_a_step()
    assert signal.getsignal(signal.SIGALRM) is before


def _hang_on() -> None:
    with step("stubborn", 0.05):
        try:
            time.sleep(20)
        except StepHung:
            time.sleep(20)


def test_a_step_that_swallows_its_deadline_is_told_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nemesis.steps._AGAIN_S", 0.05)
    with pytest.raises(StepHung):
        _hang_on()
    assert capfd.readouterr().err.count("stubborn: not over") == 2


class _Stuck:
    """A producer whose broker is away for good: it can be ended by force alone."""

    def __init__(self) -> None:
        self.forced = 0
        self._sender = self

    def send(self, *_: object, **__: object) -> _Stuck:
        return self

    def add_callback(self, *_: object) -> None: ...

    def flush(self, timeout: float) -> None:
        raise KafkaTimeoutError

    def close(self, timeout: float | None = None) -> None:
        assert timeout is not None, "it would wait for ever"
        raise KafkaTimeoutError

    def force_close(self) -> None:
        self.forced += 1

    def join(self, timeout: float) -> None: ...


def test_a_feeder_whose_producer_cannot_send_stops() -> None:
    stuck = _Stuck()

    class _Topics:
        def producer(self, **_: Any) -> _Stuck:
            return stuck

    topics: Any = _Topics()
    feeder = Feeder(topics, "orders", "run", seed=1, per_second=60, values=RawValues())
    feeder.start()
    feeder.stop()
    assert stuck.forced == 1
