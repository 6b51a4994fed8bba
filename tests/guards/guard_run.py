"""A guard that runs undisturbed beside a store of quotas."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokers.quota_store import Store
from keyrange.guard.model.enforcement import Acked, EnforcementState, Look, Settings, step
from keyrange.guard.model.enforcement_states import GuardState
from keyrange.guard.model.quota_entities import RATE, Alteration, QuotaEntity
from keyrange.guard.model.quota_requests import Alter
from samples.volume_samples import factor

SECOND = 1_000
ALICE, BOB = QuotaEntity("alice", None), QuotaEntity("bob", "app")
FLOOR, BASE = 20_000, 160_000
SETTINGS = Settings(floor=FLOOR, base=BASE, stamp=1_000, chance=7, dry_run=False)


@dataclass
class Run:
    """A guard and its store; a look a second."""

    store: Store = field(default_factory=Store)
    settings: Settings = SETTINGS
    state: EnforcementState = field(default_factory=EnforcementState)
    now_ms: int = 0
    factor: float | None = 0.0
    has_recovered: bool = True
    requests: int = 0

    def look(self) -> tuple[Alter, ...]:
        seen = Look(self.store.quotas, factor(self.factor, self.has_recovered))
        self.state, commands = step(self.settings, self.state, seen, self.now_ms)
        return commands

    def send(self, command: Alter) -> None:
        self.store.alter(command.alterations)
        self.requests += 1
        self.state, _ = step(self.settings, self.state, Acked(command), self.now_ms)

    def goes(self, seconds: int) -> None:
        for _ in range(seconds):
            for command in self.look():
                self.send(command)
            self.now_ms += SECOND

    def until(self, stage: GuardState, seconds: int = 1_000) -> None:
        for _ in range(seconds):
            self.goes(1)
            if self.state.stage is stage:
                return
        raise AssertionError(f"{self.state.stage} and not {stage} after {seconds} s")

    def set(self, entity: QuotaEntity, rate: float | None, key: str = RATE) -> None:
        self.store.alter([Alteration(entity, key, rate)])

    def rate(self, entity: QuotaEntity) -> float | None:
        return self.store.quotas.get(entity, {}).get(RATE)


def begun() -> Run:
    """Two quotas, and a disk that is full."""
    run = Run()
    run.set(ALICE, 100_000.0)
    run.set(ALICE, 5.0, "request_percentage")
    run.set(BOB, 10_000.0)
    return run
