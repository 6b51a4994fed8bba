"""A guard that is killed at each of its writes to a real broker, and what comes after it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from brokers.real_broker import wait_until
from guards.guard_processes import ALICE, APP, ClusterQuotas, by_file, guarding, quotas_at, said
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.guard.enforcer import QuotaStore
from keyrange.guard.model.lease import is_held
from keyrange.guard.model.quota_entities import RATE, QuotaEntity, Quotas
from keyrange.guard.reaper import reap_dead
from keyrange.kafka.cluster import Cluster
from spark.sources import client

CRASHING = (str(Path(__file__).parents[1] / "faults" / "crashing_guard.py"),)
# Three steps above the floor, most of which take several requests.
PRIOR: Final[Quotas] = {
    ALICE: {RATE: 100_000.0, "consumer_byte_rate": 123_456_789.0},
    QuotaEntity("", None): {"request_percentage": 312.5},
    APP: {RATE: 60_000.0},
}
OPTIONS = {
    "guard.dry.run": "false",
    "guard.connections": "1",
    "guard.request.max.bytes": "1k",
    "quota.producer.byte.rate": "80000",
}
# All writes of a guard from the beginning to the end of a hold, in order.
LIFE: Final = (
    "TAKING lease 1",
    *(f"RAMPING {number}" for number in range(1, 7)),
    "FLOOR lease 1",
    *(f"RECOVERING {number}" for number in range(1, 4)),
    *(f"RELEASING {number}" for number in range(1, 4)),
)
POINTS = [f"{write} {moment}" for write in LIFE for moment in ("unsent", "sent")]
ORDINARY = {"RAMPING 2 unsent", "RELEASING 2 sent"}
_DEAD_MS: Final = 1_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of its own: quotas are everybody's."""
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def quotas(broker: EmbeddedBroker) -> Iterator[ClusterQuotas]:
    with quotas_at(broker, PRIOR) as made:
        yield made


class Guards:
    """Guards that are killed where a test says, and others after them."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        quotas: ClusterQuotas,
        home: Path,
        patch: pytest.MonkeyPatch,
    ) -> None:
        self._broker, self._quotas, self._home, self._patch = broker, quotas, home, patch
        self.factor = home / "factor"
        self.factor.write_text("0")

    def written(self, at: str) -> list[str]:
        """The writes of one that was killed at this point, or with "" has come to its end."""
        writes = self._home / "writes"
        writes.write_text("")
        for name, value in (("CRASH", at), ("WRITES", str(writes)), ("FACTOR", str(self.factor))):
            self._patch.setenv(name, value)
        options = OPTIONS | by_file(self.factor)
        log = self._home / "log"
        with guarding(self._broker, log, options, program=CRASHING) as guard:
            if at:
                assert guard.wait(120) == -signal.SIGKILL
            else:
                wait_until(lambda: said(log, "guard") != [])
                wait_until(lambda: self.factor.read_text() == "1", 120)
                wait_until(lambda: not is_held(self._quotas()), 120)
                guard.send_signal(signal.SIGTERM)
                assert guard.wait(120) == 0
        return writes.read_text().splitlines()


@pytest.fixture
def guards(
    broker: EmbeddedBroker,
    quotas: ClusterQuotas,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Guards:
    return Guards(broker, quotas, tmp_path, monkeypatch)


def reaped(broker: EmbeddedBroker) -> None:
    cluster = Cluster(client(broker))
    store = QuotaStore(cluster)
    # What was sent by a guard that is dead may come a moment later, as of one that lives.
    wait_until(lambda: reap_dead(store, _DEAD_MS, lambda *_: None))
    cluster.close()


def edited(quotas: ClusterQuotas, number: int) -> Quotas:
    """What is to be there at the end; people change something at two of three points."""
    if number % 3 == 1:
        quotas.write(ALICE, RATE, 77_000.0)
        return {**PRIOR, ALICE: {**PRIOR[ALICE], RATE: 77_000.0}}
    if number % 3 == 2:
        quotas.write(APP, RATE, None)
        return {entity: values for entity, values in PRIOR.items() if entity != APP}
    return PRIOR


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_these_are_all_writes_of_a_guard(quotas: ClusterQuotas, guards: Guards) -> None:
    assert tuple(guards.written("")) == LIFE
    assert quotas() == PRIOR


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("number", "point"),
    [
        pytest.param(number, point, marks=() if point in ORDINARY else pytest.mark.slow, id=point)
        for number, point in enumerate(POINTS)
    ],
)
def test_what_a_guard_leaves_that_is_killed_at_a_write_is_restored(
    broker: EmbeddedBroker, quotas: ClusterQuotas, guards: Guards, number: int, point: str
) -> None:
    """By a reaper, and by guards that find the disk full still, or not any more."""
    assert guards.written(point)[-1] == point.rpartition(" ")[0]
    time.sleep(0.5)
    expected = edited(quotas, number)
    if number % 4 < 2:
        reaped(broker)
    else:
        guards.factor.write_text(str(number % 4 - 2))
        guards.written("")
    wait_until(lambda: quotas() == expected)
