"""The thread that looks at the volumes, and who asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from brokers.real_broker import wait_until
from keyrange.errors import KeyrangeError, error
from keyrange.guard import volume_watch
from keyrange.guard.factor_sources import Figures
from keyrange.guard.model.throttle_factor import Factor
from keyrange.guard.volume_watch import Watch, leave_watch, take_watch
from keyrange.options.volume_checks import VolumeOptions


class Scripted:
    """A source whose factor a test sets; `gate` holds a check up until it is set."""

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.checks = 0
        self.gate = threading.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.closed = threading.Event()

    def check(self) -> None:
        self.checks += 1
        self.gate.wait(60)
        if self.failure is not None:
            raise self.failure

    def figures(self, now_ms: int) -> Figures:
        return Figures(Factor(self.value, "a test says so", 0, False, (), None))

    def close(self) -> None:
        self.closed.set()


@contextmanager
def watching(source: Scripted, interval_ms: int = 20) -> Iterator[Watch]:
    watch = Watch(source, interval_ms)
    watch.start()
    try:
        yield watch
    finally:
        source.gate.set()
        watch.close()
        assert source.closed.wait(60)


def test_it_checks_again_and_again() -> None:
    source = Scripted()
    with watching(source) as watch:
        wait_until(lambda: source.checks > 3)
        source.value = 0.0
        wait_until(lambda: watch.factor.value == 0.0)


def test_without_an_interval_it_checks_once() -> None:
    source = Scripted()
    with watching(source, interval_ms=0) as watch:
        watch.first(20_000)
        source.value = 0.5
        # It goes on saying what the source says.
        wait_until(lambda: watch.factor.value == 0.5)
    assert source.checks == 1


def test_a_check_that_takes_long_holds_nobody_up() -> None:
    source = Scripted(0.5)
    source.gate.clear()
    with watching(source) as watch:
        wait_until(lambda: source.checks == 1)
        values = {watch.factor.value for _ in range(1_000)}
        assert (values, source.checks, source.gate.is_set()) == ({0.5}, 1, False)


def test_the_first_answer_waits_for_the_first_check() -> None:
    source = Scripted()
    source.gate.clear()
    with watching(source) as watch:
        source.value = 0.25
        threading.Timer(0.2, source.gate.set).start()
        assert watch.first(20_000).value == 0.25


def test_what_the_first_check_fails_with_is_raised() -> None:
    source = Scripted()
    source.failure = error("BROKER_UNREACHABLE", "no broker answered")
    with (
        watching(source, 60_000) as watch,
        pytest.raises(KeyrangeError, match="no broker answered"),
    ):
        watch.first(20_000)


def test_a_later_failure_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    source = Scripted()
    with watching(source) as watch:
        watch.first(20_000)
        source.failure = RuntimeError("theirs")
        before = source.checks
        wait_until(lambda: source.checks > before + 3)
        source.failure = error("BROKER_UNREACHABLE", "gone")
        before = source.checks
        wait_until(lambda: source.checks > before + 3)
        source.value, source.failure = 0.0, None
        wait_until(lambda: watch.factor.value == 0.0)
    said = [record.message for record in caplog.records if "gone" in record.message]
    assert len(said) == 1
    assert "a check failed: RuntimeError" in caplog.text


def test_who_waits_is_told_at_once_and_not_for_ever() -> None:
    source = Scripted(0.0)
    with watching(source) as watch:
        assert watch.wait(lambda factor: factor.value > 0, 50).value == 0.0
        threading.Timer(0.2, lambda: setattr(source, "value", 1.0)).start()
        assert watch.wait(lambda factor: factor.value > 0, None).value == 1.0


def test_a_watch_that_ends_lets_go_of_who_waits() -> None:
    source = Scripted(0.0)
    with watching(source) as watch:
        threading.Timer(0.2, watch.close).start()
        assert watch.wait(lambda factor: factor.value > 0, None).value == 0.0


def test_the_same_settings_share_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Scripted] = []

    def make(_: VolumeOptions) -> Scripted:
        made.append(Scripted())
        return made[-1]

    monkeypatch.setattr(volume_watch, "open_factor_source", make)
    a, b = VolumeOptions(interval_ms=20), VolumeOptions(interval_ms=21)
    first, second = take_watch(a), take_watch(replace(a))
    other = take_watch(b)
    assert first is second
    assert first is not other
    leave_watch(a)
    assert not made[0].closed.wait(0.2)
    leave_watch(a)
    leave_watch(b)
    assert made[0].closed.wait(60)
    assert made[1].closed.wait(60)
    assert take_watch(a) is not first
    leave_watch(a)
