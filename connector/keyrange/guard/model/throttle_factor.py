"""From readings of the volumes to the throttle factor.

At or below the limit on any volume the factor is 0.0, else 1.0. Once it is 0.0 it stays so until
all volumes have recovered: by some margin, for some readings in a row, for some time. When checks
fail, the factor that was found last stands for the validity time, and then the fallback. Before the
first reading that counts there is none to stand: it is the fallback from the start.

A volume at the limit counts in a reading that is not whole too. That all is well does not: such a
reading is a failed check. So is one in which the cluster does not name a broker any more that had a
volume at the limit when it was read last: nobody has seen that volume recover. It takes the broker
itself to say so, or a new start.

Times are ms of one monotonic clock that the caller reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from keyrange.guard.model.volume_readings import Rest, View, VolumeReading, no_rest, with_rests
from keyrange.model.volumes import Policy, Volume
from keyrange.text.formats import size_text
from keyrange.text.transitions import transitions

OPEN_FACTOR: Final = 1.0
HELD_FACTOR: Final = 0.0


class ThrottleState(StrEnum):
    """What is believed of the volumes."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    HELD = "HELD"
    RECOVERING = "RECOVERING"
    FALLBACK = "FALLBACK"
    # The same, and when something was known last a volume was too full.
    FALLBACK_HELD = "FALLBACK_HELD"


class ThrottleEvent(StrEnum):
    """What a reading says, or that none came; the text is what the diagram says."""

    VIOLATED = "a volume at or below the limit"
    BETWEEN = "none at the limit, not all recovered"
    CLEAR = "all recovered, not often or long enough"
    RECOVERED = "all recovered, often and long enough"
    EXPIRED = "nothing valid for longer than the validity"


# The factor is 0.0 in these.
HOLDING: Final = frozenset({ThrottleState.HELD, ThrottleState.RECOVERING})
FALLEN_BACK: Final = frozenset({ThrottleState.FALLBACK, ThrottleState.FALLBACK_HELD})

# The factor moves by this table alone; `tests/commands/diagrams.py` draws it. Where a volume was
# too full before, it is believed to be until all have recovered; where none was, the limit alone
# counts.
TRANSITIONS: Final = transitions(
    ThrottleState,
    ThrottleEvent,
    """
    VIOLATED: UNKNOWN OPEN HELD RECOVERING FALLBACK FALLBACK_HELD -> HELD
    BETWEEN: UNKNOWN OPEN FALLBACK -> OPEN
    BETWEEN: HELD RECOVERING FALLBACK_HELD -> HELD
    CLEAR: UNKNOWN OPEN FALLBACK -> OPEN
    CLEAR: HELD RECOVERING -> RECOVERING
    # The fallback was in force meanwhile; to wait on would hold back for volumes that recovered.
    CLEAR: FALLBACK_HELD -> OPEN
    RECOVERED: UNKNOWN OPEN HELD RECOVERING FALLBACK FALLBACK_HELD -> OPEN
    EXPIRED: UNKNOWN OPEN FALLBACK -> FALLBACK
    EXPIRED: HELD RECOVERING FALLBACK_HELD -> FALLBACK_HELD
    """,
)


@dataclass(frozen=True, slots=True)
class Factor:
    """The throttle factor, why it is so and since when.

    `violated` are the volumes at the limit, as they were read last. `time_to_full_ms` is that of
    the volume that will be full first, if nothing changes; None: none is in sight. `standing` is
    what the value rests on. `has_recovered` says that nothing speaks against letting go of what was
    held back by an earlier life: with 1.0 some volume may be between limit and recovery.
    """

    value: float
    why: str
    since_ms: int
    is_fallback: bool
    violated: tuple[Volume, ...]
    time_to_full_ms: int | None
    standing: ThrottleState = ThrottleState.OPEN
    has_recovered: bool = True


class Throttle:
    """The state. Before the first reading the factor is the fallback, and the standing UNKNOWN for
    the validity time: who throttles others may wait for so long.

    `fallback_applied` counts how often nothing was valid any longer, `limit_violated` volumes that
    were told to be at the limit, each once a reading.
    """

    def __init__(self, policy: Policy, now_ms: int) -> None:
        self._policy = policy
        self._standing = ThrottleState.UNKNOWN
        self._since_ms = now_ms
        # Of the last reading that counts; the start, before there is one.
        self._valid_ms = now_ms
        self._clear_readings = 0
        self._has_recovered = False
        # The first volume that has not.
        self._behind: Volume | None = None
        self._failure = ""
        self._violated: tuple[Volume, ...] = ()
        self._time_to_full_ms: int | None = None
        # The brokers that had a volume at the limit when they last answered.
        self._full: set[int] = set()
        self.view = View(policy.validity_ms)
        self.fallback_applied = 0
        self.limit_violated = 0

    def observe(self, reading: VolumeReading, now_ms: int, rest: Rest = no_rest) -> None:
        """Take in a check that was answered, wholly or in part."""
        self._pass(now_ms)
        self.view.observe(reading, now_ms, rest)
        limit, recovery = self._policy.limit, self._policy.recovery
        full = [v.broker for v in with_rests(reading.volumes, rest) if limit.is_violated(v)]
        told = len(full)
        self._full.difference_update(each.broker for each in reading.answers if not each.problem)
        self._full.update(full)
        volumes = self.view.volumes(now_ms)
        self._violated = tuple(filter(limit.is_violated, with_rests(volumes, rest)))
        self.limit_violated += told
        times_ms = map(self.view.time_to_full_ms, with_rests(volumes, rest))
        self._time_to_full_ms = min((each for each in times_ms if each is not None), default=None)
        self._failure = reading.failure or self._vanished(reading)
        if self._failure and not told:
            return
        self._valid_ms = now_ms
        behind = (v for v in with_rests(volumes, rest) if not limit.is_recovered(v, recovery))
        self._behind = next(behind, None)
        self._has_recovered = self._behind is None
        if self._violated:
            self._sign(ThrottleEvent.VIOLATED, now_ms)
        elif not self._has_recovered:
            self._sign(ThrottleEvent.BETWEEN, now_ms)
        else:
            self._clear_readings += 1
            often = self._clear_readings >= recovery.readings
            long = now_ms - self._since_ms >= recovery.dwell_ms
            self._sign(ThrottleEvent.RECOVERED if often and long else ThrottleEvent.CLEAR, now_ms)

    def _vanished(self, reading: VolumeReading) -> str:
        gone = sorted(self._full - reading.brokers)
        return f"broker {gone[0]} had a volume at the limit and is not named now" if gone else ""

    def failed(self, reason: str, now_ms: int) -> None:
        """Say that a check came to nothing."""
        self._pass(now_ms)
        self._failure = reason

    def factor(self, now_ms: int) -> Factor:
        """What holds at this time."""
        self._pass(now_ms)
        return Factor(
            self._value,
            self._why(),
            self._since_ms,
            self._is_fallback,
            self._violated,
            self._time_to_full_ms,
            self._standing,
            self._has_recovered or self._is_fallback,
        )

    @property
    def _is_fallback(self) -> bool:
        return self._standing in FALLEN_BACK or self._standing is ThrottleState.UNKNOWN

    @property
    def _value(self) -> float:
        if self._is_fallback:
            return self._policy.fallback
        return HELD_FACTOR if self._standing in HOLDING else OPEN_FACTOR

    def _pass(self, now_ms: int) -> None:
        if now_ms - self._valid_ms > self._policy.validity_ms:
            self._sign(ThrottleEvent.EXPIRED, now_ms)

    def _sign(self, sign: ThrottleEvent, now_ms: int) -> None:
        standing, before = self._standing, (self._value, self._is_fallback)
        self._standing = TRANSITIONS[standing, sign]
        if sign is not ThrottleEvent.CLEAR:
            self._clear_readings = 0
        if self._standing in FALLEN_BACK and standing not in FALLEN_BACK:
            self.fallback_applied += 1
        if before != (self._value, self._is_fallback):
            self._since_ms = now_ms

    def _why(self) -> str:
        limit, failure = self._policy.limit, self._failure
        failed = f"; the last check failed: {failure}" if failure else ""
        if self._standing in FALLEN_BACK:
            ago = f"nothing was read for more than {self._policy.validity_ms} ms"
            return f"throttle.factor.fallback: {ago}{failed}"
        if self._standing is ThrottleState.UNKNOWN:
            return f"throttle.factor.fallback: nothing was read yet{failed}"
        if self._violated:
            first, others = self._violated[0], len(self._violated) - 1
            more = f", and {others} more" if others else ""
            return (
                f"{first} has {size_text(first.usable_bytes)} of {size_text(first.total_bytes)} "
                f"available{more}; {limit.of(first).text}{failed}"
            )
        if self._standing in HOLDING:
            still = self._behind_text() or "all have recovered, not for long enough"
            return f"a volume was too full, and {still}; {limit}{failed}"
        if behind := self._behind_text():
            # Who was held back before it looked here, or by another process, goes on later.
            what = f"no volume is at the limit, but {behind}: who is held back waits"
            return f"{what}; {limit}{failed}"
        return f"every volume has more available; {limit}{failed}"

    def _behind_text(self) -> str:
        """What is missing for all volumes to have recovered; "" where nothing is."""
        first, limit = self._behind, self._policy.limit
        if first is None:
            return ""
        needed = limit.recovers_at(first, self._policy.recovery)
        return (
            f"{first} has not recovered: it has {size_text(first.usable_bytes)} of "
            f"{size_text(first.total_bytes)} available, and {size_text(needed)} are needed"
        )
