"""What drives the guard that slows producers down: looks, steps, sends, and says so.

All that is decided is decided by `guard/model/enforcement.py`. Who dies here at any point leaves
quotas that the next guard and every reaper understand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from keyrange.errors import KeyrangeError
from keyrange.guard.client_quotas import alter_quotas, read_quotas
from keyrange.guard.clock import monotonic_ms
from keyrange.guard.model.enforcement import (
    Acked,
    EnforcementState,
    Event,
    Look,
    Refused,
    Report,
    Settings,
    Stop,
    next_look_ms,
    step,
)
from keyrange.guard.model.enforcement_states import IDLE
from keyrange.guard.model.lease import is_held, read_lease
from keyrange.guard.model.quota_entities import Alteration, Quotas
from keyrange.guard.model.quota_ramp import floor_rate
from keyrange.guard.model.quota_requests import Alter
from keyrange.guard.model.throttle_factor import Factor
from keyrange.kafka.cluster import Cluster
from keyrange.options.volumes import VolumeOptions

# A line for people and programs: what happened, and its details.
Say = Callable[[str, dict[str, Any]], None]

_TIMEOUT_MS: Final = 5_000
LATE: Final = "a request came too late to be sent"


def settings_of(options: VolumeOptions, base_rate: int, stamp: int, chance: int) -> Settings:
    """What a guard goes by; `base_rate` is what the quota source says, and the floor at least."""
    floor = floor_rate(options.mute_ms, options.connections, options.request_bytes)
    return Settings(
        floor=floor,
        base=max(base_rate, floor),
        stamp=stamp,
        chance=chance,
        excluded=options.excluded,
        lease_ms=options.lease_ms,
        release_ms=options.interval_ms,
        dry_run=options.dry_run or not options.enforce,
    )


class QuotaStore:
    """The quotas of a cluster."""

    def __init__(self, cluster: Cluster, timeout_ms: float = _TIMEOUT_MS) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    def read(self) -> Quotas:
        return read_quotas(self._cluster, self._timeout_ms)

    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        alter_quotas(self._cluster, alterations, validate_only, self._timeout_ms)


class Enforcer:
    """One guard. `factor` says what holds, `say` is told of everything that is done."""

    def __init__(
        self,
        settings: Settings,
        store: QuotaStore,
        factor: Callable[[], Factor],
        say: Say,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self._settings = settings
        self._store = store
        self._factor = factor
        self._say = say
        self._now_ms = now_ms
        self._trouble = ""
        self._seen: Quotas = {}
        # The leases that this process has held.
        self._epochs: set[int] = set()
        self.state = EnforcementState()

    def run(self, stop: threading.Event) -> bool:
        """Look and act until `stop` is set, and then until all is released; returns whether it is.

        After as long as a lease lasts nobody waits any longer: reapers see to what is left.
        """
        while not stop.is_set():
            self.look()
            stop.wait(next_look_ms(self._settings, self.state) / 1000)
        self._step(Stop())
        until_ms = self._now_ms() + self._settings.lease_ms
        while self._now_ms() < until_ms:
            self.look()
            if self.state.stage in IDLE:
                return not self._has_left()
            time.sleep(min(next_look_ms(self._settings, self.state), 500) / 1000)
        return False

    def look(self) -> None:
        """One look at the quotas, and what follows from it."""
        now_ms = self._now_ms()
        try:
            quotas = self._store.read()
        except KeyrangeError as failure:
            self._troubled(str(failure))
            return
        before, self._seen = self.state, quotas
        commands = self._step(Look(quotas, self._factor()), now_ms)
        after = self.state
        if not self._settings.dry_run:
            self._epochs.add(after.epoch)
        if after.stage != before.stage:
            self._say("stage", {"from": str(before.stage), "to": str(after.stage)})
        if after.yielded != before.yielded:
            self._say("yielded", {"entities": [str(each) for each in after.yielded]})
        if after.exposed != before.exposed:
            self._say("exposed", {"users": list(after.exposed)})
        for command in commands:
            if not self._send(command):
                return

    def _has_left(self) -> bool:
        """Whether something is held still that nobody holds but this process: it lost its lease,
        and had no time to take it again."""
        lease = read_lease(self._seen)
        is_own = lease.epoch in self._epochs if lease is not None else any(self._epochs)
        return is_own and is_held(self._seen)

    def _step(self, event: Event, now_ms: int | None = None) -> tuple[Alter, ...]:
        at_ms = self._now_ms() if now_ms is None else now_ms
        self.state, commands = step(self._settings, self.state, event, at_ms)
        return commands

    def _send(self, command: Alter) -> bool:
        """Send one request; what comes behind one that failed is dropped."""
        if isinstance(command, Report):
            self._say_altered("would alter", command)
            return True
        try:
            self._store.alter(command.alterations, validate_only=True)
            if self._now_ms() > command.until_ms:
                self._troubled(LATE)
                self._step(Refused(command))
                return False
            self._store.alter(command.alterations, validate_only=False)
        except KeyrangeError as failure:
            self._step(Refused(command))
            self._troubled(str(failure))
            return False
        self._trouble = ""
        self._step(Acked(command))
        self._say_altered("altered", command)
        return True

    def _say_altered(self, what: str, command: Alter) -> None:
        """Nothing of a lease that was renewed."""
        if command.changes:
            self._say(what, described(command))

    def _troubled(self, text: str) -> None:
        """Once, until something else is the matter."""
        if text != self._trouble:
            self._trouble = text
            self._say("trouble", {"error": text})


def described(command: Alter) -> dict[str, Any]:
    """What is altered of others' quotas; of the guard's own nothing."""
    return {
        "quotas": [
            {"entity": str(each.entity), "key": each.key, "value": each.value}
            for each in command.changes
        ]
    }
