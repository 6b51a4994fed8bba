"""A source of others that raises, hangs or says nonsense."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from brokers.real_broker import wait_until
from keyrange.errors import InvalidError, KeyrangeError
from keyrange.guard import entry_points
from keyrange.guard.factor_plugin import ForeignFactor
from keyrange.guard.factor_sources import Figures, ThrottleFactorSource, open_factor_source
from keyrange.guard.model.throttle_factor import Factor, ThrottleState
from keyrange.guard.volume_watch import leave_watch, take_watch
from keyrange.options.volume_checks import VolumeOptions

OPTIONS = VolumeOptions(
    factor_source="theirs", fallback=0.25, validity_ms=10_000, interval_ms=60_000
)


class Theirs:
    """Says what a test sets; `gate` holds a check up until it is set."""

    def __init__(self) -> None:
        self.value: Any = 0.5
        self.failure: Exception | None = None
        self.said_failure: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closed = threading.Event()
        self.threads: set[str] = set()

    def check(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.gate.wait(60)
        if self.failure is not None:
            raise self.failure

    def figures(self, now_ms: int) -> Figures:
        self.threads.add(threading.current_thread().name)
        if self.said_failure is not None:
            raise self.said_failure
        return Figures(Factor(self.value, "theirs", now_ms, False, (), None))

    def close(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.closed.set()


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def test_what_it_says_holds_and_it_is_called_by_one_thread() -> None:
    theirs, clock = Theirs(), Clock()
    source = ForeignFactor(theirs, OPTIONS, clock)
    first = source.figures(clock.now_ms).factor
    assert (first.value, first.is_fallback, first.standing) == (0.25, True, ThrottleState.UNKNOWN)
    source.check()
    assert source.figures(clock.now_ms).factor.value == 0.5
    theirs.value = 1
    assert source.figures(clock.now_ms).factor.value == 1
    source.close()
    assert theirs.closed.wait(60)
    assert theirs.threads == {"factor-source-theirs"}


@pytest.mark.parametrize("said", [math.nan, math.inf, -0.1, 2.0, True, "0.5", None])
def test_what_is_no_factor_is_a_failed_check(said: Any) -> None:
    theirs, clock = Theirs(), Clock()
    source = ForeignFactor(theirs, OPTIONS, clock)
    source.check()
    theirs.value = said
    with pytest.raises(KeyrangeError, match=r"THROTTLE_FACTOR_UNREADABLE.*theirs.*from 0 to 1"):
        source.check()
    # What it said before is valid for a while, and then the fallback.
    assert source.figures(clock.now_ms).factor.value == 0.5
    clock.now_ms += 10_001
    for _ in range(2):
        figures = source.figures(clock.now_ms)
        assert (figures.factor.value, figures.factor.is_fallback) == (0.25, True)
        assert figures.fallback_applied == 1
    theirs.value = 0.75
    source.check()
    assert source.figures(clock.now_ms).factor.value == 0.75


@pytest.mark.parametrize("what", ["failure", "said_failure"])
def test_what_it_raises_is_a_failed_check(what: str) -> None:
    theirs, clock = Theirs(), Clock()
    source = ForeignFactor(theirs, OPTIONS, clock)
    source.check()
    setattr(theirs, what, ZeroDivisionError("by zero"))
    with pytest.raises(KeyrangeError, match=r"THROTTLE_FACTOR_UNREADABLE.*ZeroDivisionError"):
        source.check()
    assert source.figures(clock.now_ms).factor.value == 0.5
    clock.now_ms += 10_001
    factor = source.figures(clock.now_ms).factor
    assert (factor.value, "ZeroDivisionError: by zero" in factor.why) == (0.25, True)


def test_one_that_hangs_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyrange.guard.factor_plugin.check_timeout_ms", lambda _: 50)
    theirs, clock = Theirs(), Clock()
    source = ForeignFactor(theirs, OPTIONS, clock)
    source.check()
    theirs.gate.clear()
    with pytest.raises(KeyrangeError, match=r"did not answer within 50 ms"):
        source.check()
    with pytest.raises(KeyrangeError, match=r"does not answer"):
        source.check()
    clock.now_ms += 10_001
    assert source.figures(clock.now_ms).factor.value == 0.25
    theirs.gate.set()
    wait_until(lambda: _checks(source))
    assert source.figures(clock.now_ms).factor.value == 0.5


def _checks(source: ForeignFactor) -> bool:
    try:
        source.check()
    except KeyrangeError:
        return False
    return True


def bring(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    def named(group: str) -> list[EntryPoint]:
        return [EntryPoint("theirs", "theirs:Source", group)]

    monkeypatch.setattr(entry_points, "entry_points", named)
    monkeypatch.setattr(EntryPoint, "load", lambda self: make)


def test_who_watches_gets_it_so(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Theirs()
    theirs.value = math.nan
    bring(monkeypatch, lambda options: theirs)
    watch = take_watch(OPTIONS)
    try:
        with pytest.raises(KeyrangeError, match="THROTTLE_FACTOR_UNREADABLE"):
            watch.first(20_000)
        assert watch.factor.value == 0.25
    finally:
        leave_watch(OPTIONS)
    assert theirs.closed.wait(60)


def test_one_that_cannot_be_opened_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(options: VolumeOptions) -> ThrottleFactorSource:
        raise ZeroDivisionError("by zero")

    bring(monkeypatch, make)
    with pytest.raises(InvalidError, match=r"throttle.factor.source.*theirs.*ZeroDivisionError"):
        open_factor_source(replace(OPTIONS))
