"""`keyrange volumes guard` that is killed at one of its writes. Arguments as for `keyrange`.

The environment says more: CRASH at which write, such as `RAMPING 2 unsent` or `RELEASING 1 sent`
(the second request of the ramp, before it is sent; the first of the release, before its answer is
read), or nothing; WRITES a file for the names of all writes; FACTOR the file of the factor, which
becomes 1 as soon as the guard is at the floor and has renewed its lease there. Windows are short,
and requests so small that a step of the ramp takes several.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from keyrange.cli.main import main
from keyrange.guard import enforcer
from keyrange.guard.model.enforcement import Settings
from keyrange.guard.model.enforcement_states import GuardState
from keyrange.guard.model.quota_entities import Alteration
from keyrange.kafka.connection import Connection
from keyrange.options.volume_checks import VolumeOptions

CRASH, WRITES = os.environ["CRASH"], Path(os.environ["WRITES"])
FACTOR = Path(os.environ["FACTOR"])
SHORT = {"window_ms": 1_000, "release_ms": 30_000, "lease_ms": 10_000, "records_max": 6}


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore(enforcer.QuotaStore):
    stage = GuardState.UNKNOWN
    counts: ClassVar[Counter[str]] = Counter()

    def alter(self, alterations: Iterable[Alteration], validate_only: bool) -> None:
        wanted = list(alterations)
        if not validate_only:
            changes = [each for each in wanted if not each.entity.is_reserved]
            kind = f"{self.stage}" if changes else f"{self.stage} lease"
            self.counts[kind] += 1
            name = f"{kind} {self.counts[kind]}"
            with WRITES.open("a") as file:
                file.write(f"{name}\n")
            if f"{name} unsent" == CRASH:
                die()
            if f"{name} sent" == CRASH:
                Connection.answer = die  # type: ignore[method-assign]
        super().alter(wanted, validate_only)


class ShortGuard(enforcer.Enforcer):
    def _send(self, command: Any) -> bool:
        assert isinstance(self._store, CrashingStore)
        self._store.stage = self.state.stage
        sent = super()._send(command)
        if self.state.stage is GuardState.FLOOR:
            FACTOR.write_text("1")
        return sent


def short(options: VolumeOptions, *given: Any) -> Settings:
    return replace(_settings_of(options, *given), **SHORT)  # type: ignore[arg-type]


if __name__ == "__main__":
    _settings_of = enforcer.settings_of
    enforcer.settings_of = short
    enforcer.QuotaStore = CrashingStore  # type: ignore[misc]
    enforcer.Enforcer = ShortGuard  # type: ignore[misc]
    main()
