"""A look at the volumes now and then, in a thread of its own.

Who asks for the factor gets what is known, and waits for nothing: no check delays a batch. A
process has one watch for the same settings, however many ask.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Final

from keyrange.errors import KeyrangeError
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.factor_plugin import ForeignFactor
from keyrange.guard.factor_sources import (
    BUILT_IN,
    Figures,
    ThrottleFactorSource,
    open_factor_source,
)
from keyrange.guard.model.throttle_factor import Factor
from keyrange.options.volume_checks import VolumeOptions

_log = logging.getLogger(__name__)

# storage.check.interval PT0S: never.
_NEVER_MS: Final = 2**53
# What was seen last loses its validity without a check: the factor is told anew so often.
_TICK_S: Final = 1.0
# A check takes 30 s at most; who begins waits a little longer for the first.
_FIRST_CHECK_MS: Final = 35_000


class Watch:
    """Checks a source every `interval_ms`, from `start` on, or with 0 only then; `factor` is what
    it said last."""

    def __init__(
        self,
        source: ThrottleFactorSource,
        interval_ms: int,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._source = source
        self._interval_ms = interval_ms or _NEVER_MS
        self._now_ms = now_ms
        self._figures = source.figures(now_ms())
        self._first_failure: KeyrangeError | None = None
        self._checked = threading.Event()
        self._ended = threading.Event()
        self._changed = threading.Condition()
        self._said = ""
        # A daemon: a process ends though a broker that it waits for is silent.
        self._thread = threading.Thread(target=self._run, name="volume-watch", daemon=True)

    @property
    def factor(self) -> Factor:
        return self._figures.factor

    @property
    def figures(self) -> Figures:
        return self._figures

    def start(self) -> None:
        self._thread.start()

    def first(self, timeout_ms: float = _FIRST_CHECK_MS) -> Factor:
        """The factor after the first check, or as it is after `timeout_ms`.

        Raises what the first check failed with: a wrong address is to be named while somebody is
        looking.
        """
        self._checked.wait(timeout_ms / 1000)
        if self._first_failure is not None:
            raise self._first_failure
        return self.factor

    def wait(self, enough: Callable[[Factor], bool], timeout_ms: float | None) -> Factor:
        """The factor as soon as it is `enough`, or as it is after `timeout_ms` (None: no end)."""
        with self._changed:
            limit_s = None if timeout_ms is None else timeout_ms / 1000
            self._changed.wait_for(
                lambda: enough(self.factor) or self._ended.is_set(), timeout=limit_s
            )
            return self.factor

    def close(self) -> None:
        """End the thread; one that waits for a broker ends when that has answered or timed out."""
        self._ended.set()
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        next_at_ms = self._now_ms()
        try:
            while not self._ended.is_set():
                if self._now_ms() >= next_at_ms:
                    next_at_ms = self._now_ms() + self._interval_ms
                    self._check()
                try:
                    self._tell()
                except Exception:
                    _log.exception("a throttle factor source could not say its factor")
                    self._checked.set()
                left_s = (next_at_ms - self._now_ms()) / 1000
                self._ended.wait(min(max(left_s, 0), _TICK_S))
        finally:
            self._source.close()

    def _check(self) -> None:
        try:
            self._source.check()
        except KeyrangeError as failure:
            if not self._checked.is_set():
                self._first_failure = failure
            self._say(f"a check failed: {failure}")
        except Exception as failure:
            # A source of others: the watch goes on, and its factor loses its validity.
            _log.exception("a throttle factor source failed")
            self._say(f"a check failed: {type(failure).__name__}")
        else:
            self._said = ""
            self._first_failure = None

    def _say(self, text: str) -> None:
        """Once, until a check goes well again or fails with something else."""
        if text != self._said:
            self._said = text
            _log.warning("%s", text)

    def _tell(self) -> None:
        before = self.factor
        self._figures = self._source.figures(self._now_ms())
        factor = self.factor
        if factor.value != before.value:
            _log.info("the throttle factor is %s: %s", factor.value, factor.why)
        self._checked.set()
        with self._changed:
            self._changed.notify_all()


_lock: Final = threading.Lock()
# The watches of this process by what they depend on, each with how many use it.
_watches: Final[dict[Hashable, tuple[Watch, int]]] = {}


def take_watch(options: VolumeOptions) -> Watch:
    """The watch of these settings, started; `leave_watch` follows once it is not needed."""
    key = _key(options)
    with _lock:
        watch, users = _watches.get(key, (None, 0))
        if watch is None:
            watch = Watch(_opened(options), options.interval_ms)
            watch.start()
        _watches[key] = (watch, users + 1)
        return watch


def leave_watch(options: VolumeOptions) -> None:
    """The last one to leave ends the watch."""
    key = _key(options)
    with _lock:
        watch, users = _watches.pop(key)
        if users > 1:
            _watches[key] = (watch, users - 1)
        else:
            watch.close()


def _opened(options: VolumeOptions) -> ThrottleFactorSource:
    source = open_factor_source(options)
    is_ours = options.interval_ms == 0 or options.factor_source in BUILT_IN
    return source if is_ours else ForeignFactor(source, options)


def _key(options: VolumeOptions) -> Hashable:
    """All that a watch depends on, and nothing of what is done with its factor."""
    return (
        options.client,
        options.policy,
        (options.fallback, options.validity_ms, options.interval_ms),
        (options.factor_source, options.static_factor, options.factor_file, options.factor_topic),
    )
