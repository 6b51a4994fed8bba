"""What is known of the volumes of a cluster: one check, and the last readings of several.

Nothing that was not told counts as fine. A broker that did not answer, refused, named no log dir,
or could not say how large one is makes a reading that is not whole. A volume that is gone from
what is described (its broker restarts) is remembered for the validity time.

Times are ms of one monotonic clock that the caller reads. Of many volumes a look is long enough to
hold up other threads: `rest` is called every hundred volumes or so, and may let them go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from keyrange.model.volumes import Volume

# Readings that growth is taken from: at one a minute, the last ten minutes.
_READINGS_KEPT: Final = 10
# What one sentence holds of a large cluster's failures.
_SAID_MAX: Final = 3
_AT_ONCE: Final = 100

Rest = Callable[[], None]


def no_rest() -> None:
    """For who holds up nobody."""


@dataclass(frozen=True, slots=True)
class LogDirs:
    """What one broker answered; `failure` says what it did not tell, beside `volumes`."""

    broker: int
    volumes: tuple[Volume, ...]
    failure: str = ""

    @property
    def problem(self) -> str:
        """What keeps the answer from being whole, or ""."""
        untold = [each for each in self.volumes if not each.is_told]
        if self.failure:
            return f"broker {self.broker}: {self.failure}"
        if untold:
            return f"{untold[0]}: its size was not told"
        return "" if self.volumes else f"broker {self.broker} named no log dir"


@dataclass(frozen=True, slots=True)
class VolumeReading:
    """One check: the brokers that the cluster named, and what they answered."""

    brokers: frozenset[int]
    answers: tuple[LogDirs, ...]

    @property
    def failure(self) -> str:
        """Why it is not whole, in one sentence, or ""."""
        if not self.brokers:
            return "the cluster named no broker"
        problems = [each.problem for each in self.answers if each.problem]
        missing = sorted(self.brokers - {each.broker for each in self.answers})
        problems += [f"broker {broker} did not answer" for broker in missing]
        more = len(problems) - _SAID_MAX
        return ", ".join(problems[:_SAID_MAX]) + (f", and {more} more" if more > 0 else "")

    @property
    def volumes(self) -> tuple[Volume, ...]:
        """What was told, of a reading that is not whole too."""
        return tuple(each for answer in self.answers for each in answer.volumes if each.is_told)


def with_rests(volumes: Iterable[Volume], rest: Rest) -> Iterator[Volume]:
    """The same, with a rest now and then."""
    for number, volume in enumerate(volumes, 1):
        yield volume
        if number % _AT_ONCE == 0:
            rest()


@dataclass(slots=True)
class _Seen:
    volume: Volume
    at_ms: int
    # When, and how much was available then; the oldest first.
    history: deque[tuple[int, int]] = field(
        default_factory=lambda: deque[tuple[int, int]](maxlen=_READINGS_KEPT)
    )


class View:
    """The last reading of each volume, for `validity_ms`."""

    def __init__(self, validity_ms: int) -> None:
        self._validity_ms = validity_ms
        self._seen: dict[tuple[int, str], _Seen] = {}
        self.active_brokers = 0
        self.active_log_dirs = 0

    def observe(self, reading: VolumeReading, now_ms: int, rest: Rest = no_rest) -> None:
        """Take in what was told, and forget what is older than the validity time."""
        volumes, known = reading.volumes, len(self._seen)
        self.active_brokers = len(reading.brokers)
        self.active_log_dirs = len(volumes)
        for volume in with_rests(volumes, rest):
            key = volume.broker, volume.log_dir
            seen = self._seen.get(key)
            if seen is None or seen.volume.total_bytes != volume.total_bytes:
                # Of a volume that was exchanged or enlarged, what came before says nothing.
                seen = self._seen[key] = _Seen(volume, now_ms)
            seen.volume, seen.at_ms = volume, now_ms
            seen.history.append((now_ms, volume.usable_bytes))
        if len(self._seen) != known or len(self.volumes(now_ms)) != known:
            # In order, so that who asks each second makes nothing but the answer: a thousand new
            # objects at once would call Python's collector.
            self._seen = dict(sorted(self._valid(now_ms), key=lambda row: row[0]))

    def volumes(self, now_ms: int) -> tuple[Volume, ...]:
        """All that are known, by broker and log dir."""
        return tuple(seen.volume for _, seen in self._valid(now_ms))

    def time_to_full_ms(self, volume: Volume) -> int | None:
        """Until nothing is available, by the growth over the last readings; None: not in sight."""
        seen = self._seen.get((volume.broker, volume.log_dir))
        if seen is None:
            return None
        (first_ms, before), (last_ms, left) = seen.history[0], seen.history[-1]
        if last_ms <= first_ms or before <= left:
            return None
        return left * (last_ms - first_ms) // (before - left)

    def _valid(self, now_ms: int) -> Iterator[tuple[tuple[int, str], _Seen]]:
        for key, seen in self._seen.items():
            if now_ms - seen.at_ms <= self._validity_ms:
                yield key, seen
