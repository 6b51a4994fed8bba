"""A throttle factor source of others, so that nothing of it harms who asks for the factor.

Whatever it raises, says or waits for, is a failed check: what it said last stands for
`throttle.factor.validity.duration`, and then the fallback, as with the sources that come along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final

from keyrange.errors import KeyrangeError, error
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.factor_sources import Figures, ThrottleFactorSource, check_timeout_ms
from keyrange.guard.model.throttle_factor import Factor, ThrottleState
from keyrange.options.volume_checks import VolumeOptions

# To say the factor takes no time; a source that waits there as well is not waited for.
_SAY_MS: Final = 1_000
_TEXT_CHARACTERS_MAX: Final = 200


class ForeignFactor:
    """A source that an entry point brought, by the name that the option gives it."""

    def __init__(
        self,
        source: ThrottleFactorSource,
        options: VolumeOptions,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._source = source
        self._name = options.factor_source
        self._fallback = options.fallback
        self._validity_ms = options.validity_ms
        self._timeout_ms = check_timeout_ms(options.interval_ms)
        self._now_ms = now_ms
        self._call = _Caller(f"factor-source-{self._name}")
        self._valid_at_ms = now_ms()
        self._failure = "it said nothing yet"
        self._fallback_applied = 0
        # Whether it is the source that says the figures, and not the fallback.
        self._is_said = False
        self._figures = self._fallen_back(ThrottleState.UNKNOWN, self._valid_at_ms)

    def check(self) -> None:
        """Raises THROTTLE_FACTOR_UNREADABLE for whatever goes wrong."""
        try:
            self._call(self._source.check, self._timeout_ms)
            self._figures = self._said()
        except Exception as failure:
            self._failure = _text(failure)
            raise error(
                "THROTTLE_FACTOR_UNREADABLE",
                f"the source {self._name} did not say a throttle factor: {self._failure}",
            ) from None
        self._valid_at_ms, self._is_said = self._now_ms(), True

    def figures(self, now_ms: int) -> Figures:
        if now_ms - self._valid_at_ms > self._validity_ms:
            if self._is_said or self._figures.factor.standing is ThrottleState.UNKNOWN:
                self._is_said = False
                self._fallback_applied += 1
                self._figures = self._fallen_back(ThrottleState.FALLBACK, now_ms)
        elif self._is_said:
            try:
                self._figures = self._said()
            except Exception as failure:
                self._failure = _text(failure)
        return self._figures

    def close(self) -> None:
        """It is closed as soon as it has answered what it was asked last."""
        self._call.end(self._source.close)

    def _said(self) -> Figures:
        """What the source says. Raises whatever it raises, and ValueError for what is no factor."""
        figures = self._call(lambda: self._source.figures(self._now_ms()), _SAY_MS)
        factor = figures.factor
        value, why, since_ms = factor.value, factor.why, factor.since_ms
        # NaN is between no two numbers.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{value!r} is no number from 0 to 1")
        if not isinstance(why, str) or not isinstance(since_ms, int):
            raise ValueError("its factor has no reason, or no time")
        found: Figures = figures
        return found

    def _fallen_back(self, standing: ThrottleState, now_ms: int) -> Figures:
        why = f"throttle.factor.fallback: {self._name} did not say a factor: {self._failure}"
        factor = Factor(self._fallback, why, now_ms, True, (), None, standing)
        return Figures(factor, fallback_applied=self._fallback_applied)


def _text(failure: Exception) -> str:
    text = " ".join(str(failure).split())[:_TEXT_CHARACTERS_MAX]
    if isinstance(failure, KeyrangeError) or type(failure) is ValueError:
        return text
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


class _Caller:
    """Calls functions one at a time, all in one thread, which ends with the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def __call__(self, function: Callable[[], Any], timeout_ms: float) -> Any:
        """What a function returns. Raises what it raises, and TimeoutError where it takes too long,
        or one before it is not done yet."""
        if self._last is not None and not self._last.done():
            raise TimeoutError("it does not answer")
        future: Future[Any] = Future()
        self._last = future
        self._calls.put((future, function))
        try:
            return future.result(timeout_ms / 1000)
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"it did not answer within {timeout_ms:,.0f} ms") from None

    def end(self, function: Callable[[], Any]) -> None:
        """Call a last one, without waiting for it."""
        self._calls.put((Future(), function))
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            try:
                future.set_result(function())
            except BaseException as failure:
                future.set_exception(failure)
