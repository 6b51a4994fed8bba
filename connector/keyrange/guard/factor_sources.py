"""Where the throttle factor is from: the volumes of a cluster, a file, a topic, or one number.

Others are found by their entry points, in the group `keyrange.throttle_factor_sources`: a name
that the option can have, and a callable that takes `VolumeOptions` and returns a
`ThrottleFactorSource`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.entry_points import open_source
from keyrange.guard.model.throttle_factor import Factor, Throttle, ThrottleState
from keyrange.model.volumes import Policy, Volume
from keyrange.options.kafka_properties import ClientSettings
from keyrange.options.volume_checks import VolumeOptions

if TYPE_CHECKING:
    # What reads records takes long to load, and most sources need none of it.
    from keyrange.guard.factor_topic import FactorTopic

FACTOR_SOURCES: Final = "keyrange.throttle_factor_sources"

_TIMEOUT_LEAST_MS: Final = 5_000
_TIMEOUT_MOST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Figures:
    """What a source knows: the factor, and where it looks at volumes what it saw of them.

    `limit_violated` and `fallback_applied` are counts that never go back.
    """

    factor: Factor
    volumes: tuple[Volume, ...] = ()
    active_brokers: int = 0
    active_log_dirs: int = 0
    limit_violated: int = 0
    fallback_applied: int = 0


class ThrottleFactorSource(Protocol):
    """What says the throttle factor. All of it is called by one thread."""

    def check(self) -> None:
        """Look, however long that takes. Raises KeyrangeError where nothing was seen."""

    def figures(self, now_ms: int) -> Figures:
        """What holds by what was seen last; at once, also before the first check."""

    def close(self) -> None:
        """Let go of what is open."""


def check_timeout_ms(interval_ms: int) -> int:
    """How long a check may take: as long as its interval, and no shorter than brokers need."""
    return min(max(interval_ms, _TIMEOUT_LEAST_MS), _TIMEOUT_MOST_MS)


class ClusterVolumes:
    """The volumes of all brokers of a cluster, by a limit: the default."""

    def __init__(
        self,
        client: ClientSettings,
        policy: Policy,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        from keyrange.guard.log_dirs import LogDirReader, yield_gil

        self.throttle = Throttle(policy, now_ms())
        self._reader = LogDirReader(client)
        self._yield_gil = yield_gil
        self._now_ms = now_ms
        self._timeout_ms = check_timeout_ms(policy.interval_ms)

    def check(self) -> None:
        try:
            reading = self._reader.read(self._timeout_ms)
        except KeyrangeError as failure:
            self.throttle.failed(failure.message, self._now_ms())
            raise
        self.throttle.observe(reading, self._now_ms(), self._yield_gil)

    def figures(self, now_ms: int) -> Figures:
        throttle = self.throttle
        return Figures(
            throttle.factor(now_ms),
            throttle.view.volumes(now_ms),
            throttle.view.active_brokers,
            throttle.view.active_log_dirs,
            throttle.limit_violated,
            throttle.fallback_applied,
        )

    def close(self) -> None:
        self._reader.close()


class StaticFactor:
    """One number, `throttle.factor`; or 1.0 where nothing is ever checked."""

    def __init__(
        self, value: float, why: str = "", now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        why = why or f"throttle.factor is {value:g}"
        self._factor = Factor(value, why, now_ms(), False, (), None, _standing(value))

    def check(self) -> None: ...

    def figures(self, now_ms: int) -> Figures:  # noqa: ARG002
        return Figures(self._factor)

    def close(self) -> None: ...


class SaidFactor:
    """A number that somebody else says, read at every check. `what` names where it is said; `read`
    returns it with a mark of when it was said, and only another mark makes it valid anew. With the
    first one counts for how many ms it has stood there, the third that `read` returns: a process
    that has died may have said it long before this one began.

    Where nothing new is said the number read last stands for the validity time, and then the
    fallback, which it is from the start where none was read yet. A read that raises OSError,
    ValueError or KeyrangeError is a failed check.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[], tuple[object, float, int]],
        fallback: float,
        validity_ms: int,
        now_ms: Callable[[], int] = monotonic_ms,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.close = close
        self._what = what
        self._read = read
        self._fallback = fallback
        self._validity_ms = validity_ms
        self._now_ms = now_ms
        self._valid_at_ms = now_ms()
        self._mark: object = None
        self._failure = "nothing was read yet"
        self._fallback_applied = 0
        self._factor = Factor(
            fallback, self._failure, self._valid_at_ms, True, (), None, ThrottleState.UNKNOWN
        )

    def check(self) -> None:
        now_ms = self._now_ms()
        try:
            mark, value, age_ms = self._read()
        except KeyrangeError as failure:
            self._failure = failure.message
            raise
        except (OSError, ValueError) as failure:
            self._failure = str(failure)
            raise error(
                "THROTTLE_FACTOR_UNREADABLE", f"the throttle factor cannot be read: {failure}"
            ) from None
        if mark == self._mark:
            self._failure = "nothing new was said"
            return
        # What came since the last check is new, whatever the clock of another host has said.
        self._valid_at_ms = now_ms if self._mark is not None else now_ms - age_ms
        self._mark = mark
        if now_ms - self._valid_at_ms > self._validity_ms:
            self._failure = "what it says last is older than that"
            return
        self._become(value, f"{self._what} says {value:g}", now_ms, False)

    def figures(self, now_ms: int) -> Figures:
        if now_ms - self._valid_at_ms > self._validity_ms:
            why = f"throttle.factor.fallback: {self._what} said nothing for long: {self._failure}"
            if self._factor.standing is not ThrottleState.FALLBACK:
                self._fallback_applied += 1
            self._become(self._fallback, why, now_ms, True)
        return Figures(self._factor, fallback_applied=self._fallback_applied)

    def _become(self, value: float, why: str, now_ms: int, is_fallback: bool) -> None:
        before = self._factor
        same = (before.value, before.is_fallback) == (value, is_fallback)
        since_ms = before.since_ms if same else now_ms
        standing = ThrottleState.FALLBACK if is_fallback else _standing(value)
        self._factor = Factor(value, why, since_ms, is_fallback, (), None, standing)


def file_factor(options: VolumeOptions, now_ms: Callable[[], int] = monotonic_ms) -> SaidFactor:
    """A number in a file, `throttle.factor.file`: for tests, and for people. It is valid for as
    long as it can be read."""
    path = options.factor_file

    def read() -> tuple[object, float, int]:
        with Path(path).open("rb") as file:
            return object(), _factor_of(file.read(_BYTES_MAX), path), 0

    return SaidFactor(path, read, options.fallback, options.validity_ms, now_ms)


def topic_factor(
    topic: FactorTopic,
    options: VolumeOptions,
    now_ms: Callable[[], int] = monotonic_ms,
    wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
) -> SaidFactor:
    """A number in the last record of a Kafka topic, `throttle.factor.topic`: one who decides for
    many clusters or queries. Who decides says it anew within the validity time: the last record of
    one who has died is none to go by for ever."""

    def read() -> tuple[object, float, int]:
        offset, said, written_ms = topic.last()
        age_ms = max(wall_ms() - written_ms, 0) if written_ms >= 0 else 0
        return offset, _factor_of(said, f"{topic.name}-0 at offset {offset}"), age_ms

    what = f"topic {topic.name}"
    return SaidFactor(what, read, options.fallback, options.validity_ms, now_ms, topic.close)


def _standing(value: float) -> ThrottleState:
    """What a number that was said rests on, for who acts by it: nothing is done while it is
    UNKNOWN."""
    return ThrottleState.OPEN if value >= 1.0 else ThrottleState.HELD


_BYTES_MAX: Final = 100


def _factor_of(said: bytes, where: str) -> float:
    text = said[:_BYTES_MAX].decode(errors="replace").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{where} holds no number from 0 to 1: '{text[:20]}'")
    return value


def _cluster_volumes(options: VolumeOptions) -> ThrottleFactorSource:
    # What parsed the options has seen to both.
    assert options.client is not None
    assert options.policy is not None
    return ClusterVolumes(options.client, options.policy)


def _topic(options: VolumeOptions) -> ThrottleFactorSource:
    from keyrange.guard.factor_topic import FactorTopic

    assert options.client is not None
    timeout_ms = check_timeout_ms(options.interval_ms)
    return topic_factor(FactorTopic(options.client, options.factor_topic, timeout_ms), options)


BUILT_IN: Final[Mapping[str, Callable[[VolumeOptions], ThrottleFactorSource]]] = {
    "cluster-volumes": _cluster_volumes,
    "static": lambda options: StaticFactor(options.static_factor),
    "file": file_factor,
    "topic": _topic,
}


def open_factor_source(options: VolumeOptions) -> ThrottleFactorSource:
    """The source that `throttle.factor.source` names.

    Raises INVALID_OPTIONS that lists the names there are.
    """
    if options.interval_ms == 0:
        return StaticFactor(1.0, "storage.check.interval is PT0S: nothing is checked")
    name, option = options.factor_source, "throttle.factor.source"
    return open_source(name, options, BUILT_IN, FACTOR_SOURCES, option)
