"""`keyrange volumes guard`, `reap` and `release`, as processes beside a real broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.real_broker import wait_until
from guards.guard_processes import (
    ALICE,
    APP,
    PRIOR,
    ClusterQuotas,
    by_file,
    guarding,
    quotas_at,
    run,
    said,
)
from keyrange.embedded.broker import EmbeddedBroker
from keyrange.guard.model.quota_entities import RATE

FOR_REAL = {"guard.dry.run": "false"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of its own: quotas are everybody's."""
    with EmbeddedBroker() as started:
        yield started


@pytest.fixture
def quotas(broker: EmbeddedBroker) -> Iterator[ClusterQuotas]:
    with quotas_at(broker) as made:
        yield made


@pytest.mark.slow
def test_producers_are_slowed_and_released_when_the_guard_is_stopped(
    broker: EmbeddedBroker, quotas: ClusterQuotas, tmp_path: Path
) -> None:
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("0")
    with guarding(broker, log, by_file(factor) | FOR_REAL) as process:
        wait_until(lambda: quotas()[ALICE][RATE] < 4_000_000)
        found = quotas()
        assert found[ALICE]["consumer_byte_rate"] == 123_456_789
        assert found[APP][RATE] < 2_000_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
    wait_until(lambda: quotas() == PRIOR)
    [first, *_] = said(log, "altered")
    # It falls by half, and no further at once.
    assert {"entity": "user alice", "key": RATE, "value": 2_000_000.0} in first["quotas"]


def test_what_a_killed_guard_has_left_is_released_by_a_reaper(
    broker: EmbeddedBroker, quotas: ClusterQuotas, tmp_path: Path
) -> None:
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("0")
    with guarding(broker, log, by_file(factor) | FOR_REAL) as process:
        wait_until(lambda: quotas()[ALICE][RATE] < 4_000_000)
        process.kill()
        process.wait()
    assert quotas()[ALICE][RATE] < 4_000_000
    assert run(broker, "release") == ["would release"]
    assert run(broker, "reap", "--option", "guard.lease.ms=22000") == ["released"]
    wait_until(lambda: quotas() == PRIOR)
    assert run(broker, "reap") == ["nothing is held"]
    assert run(broker, "release") == ["nothing is held"]


@pytest.mark.slow
def test_producers_are_released_when_nobody_hears_the_guard(
    broker: EmbeddedBroker, quotas: ClusterQuotas, tmp_path: Path
) -> None:
    """As with `guard | tee log`, where Ctrl-C ends both."""
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("0")
    heard, log_end = os.pipe()
    os.symlink(f"/proc/self/fd/{log_end}", log)
    with guarding(broker, log, by_file(factor) | FOR_REAL) as process:
        os.close(log_end)
        wait_until(lambda: quotas()[ALICE][RATE] < 4_000_000)
        os.close(heard)
        assert process.wait(240) == 1
    wait_until(lambda: quotas() == PRIOR)


def test_a_dry_run_says_what_it_would_do(
    broker: EmbeddedBroker, quotas: ClusterQuotas, tmp_path: Path
) -> None:
    factor, log = tmp_path / "factor", tmp_path / "log"
    factor.write_text("0")
    with guarding(broker, log, by_file(factor)) as process:
        wait_until(lambda: bool(said(log, "would alter")))
        assert quotas() == PRIOR
        # A terminal that is gone ends it as everything else does.
        process.send_signal(signal.SIGHUP)
        assert process.wait(240) == 0
    assert quotas() == PRIOR
    assert [each["dry_run"] for each in said(log, "guard")] == [True]
    assert said(log, "altered") == []
