"""A guard on three brokers: the controller lost, guards killed and paused, people, missing rights.

All are long forms, on one cluster. The brokers know users; clients without a name may do all.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
)

from brokers.real_broker import PASSWORD, USER, Topics, wait_until
from brokers.secured_brokers import ASKS_FOR_RIGHTS
from faults.small_volumes import three_brokers
from guards.guard_processes import (
    ALICE,
    APP,
    EVERYBODY,
    PRIOR,
    ClusterQuotas,
    by_file,
    guarding,
    quotas_at,
    run,
    said,
)
from keyrange.embedded.broker import BrokerNode, EmbeddedCluster
from keyrange.guard.model.quota_entities import RATE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAUSED = (str(Path(__file__).parents[1] / "faults" / "paused_guard.py"),)
FOR_REAL = {"guard.dry.run": "false"}
# What a guard needs to see what it is to alter.
SEEING = (ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with three_brokers(
        tmp_path_factory.mktemp("cluster"),
        listeners=("SASL_PLAINTEXT",),
        users={USER: PASSWORD},
        properties=ASKS_FOR_RIGHTS,
    ) as made:
        yield made


@pytest.fixture
def quotas(cluster: EmbeddedCluster) -> Iterator[ClusterQuotas]:
    with quotas_at(cluster) as made:
        yield made


@pytest.fixture
def factor(tmp_path: Path) -> Path:
    path = tmp_path / "factor"
    path.write_text("0")
    return path


def rate_of(quotas: ClusterQuotas, *among: float) -> float:
    """Alice's rate, once it is none of these."""
    wait_until(lambda: quotas.rate(ALICE) not in (PRIOR[ALICE][RATE], *among))
    rate = quotas.rate(ALICE)
    assert rate is not None
    return rate


def active_controller(cluster: EmbeddedCluster) -> BrokerNode:
    topics = Topics(cluster)
    [topic] = topics.admin.describe_metadata_quorum()["topics"]
    topics.close()
    return cluster.nodes[topic["partitions"][0]["leader_id"] - 1]


def troubles(log: Path) -> list[str]:
    return [each["error"] for each in said(log, "trouble")]


def test_the_controller_is_lost_while_producers_are_throttled(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    """Killed on the ramp, the guard goes on; then the next one and the guard, and a reaper does."""
    log, again = tmp_path / "log", tmp_path / "again"
    with guarding(cluster, log, by_file(factor) | FOR_REAL) as guard:
        first = rate_of(quotas)
        lost = active_controller(cluster)
        lost.kill()
        lost_s = time.monotonic()
        second = rate_of(quotas, first)
        print(f"{first:.0f} B/s, and {second:.0f} {time.monotonic() - lost_s:.1f} s after the loss")
        print(f"said meanwhile: {troubles(log)}")
        assert second < first
        factor.write_text("1")
        wait_until(lambda: quotas() == PRIOR)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
    lost.start()
    factor.write_text("0")
    with guarding(cluster, again, by_file(factor) | FOR_REAL) as guard:
        rate_of(quotas)
        lost = active_controller(cluster)
        lost.kill()
        guard.kill()
        guard.wait()
    try:
        assert run(cluster, "reap", "--option", "guard.lease.ms=22000") == ["released"]
        wait_until(lambda: quotas() == PRIOR)
        assert run(cluster, "reap") == ["nothing is held"]
    finally:
        lost.start()


def test_without_any_controller_the_guard_says_so_and_goes_on_when_there_is_one(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    """Two of three are killed: nothing can be written, and the lease ends meanwhile."""
    log = tmp_path / "log"
    with guarding(cluster, log, by_file(factor) | FOR_REAL) as guard:
        first = rate_of(quotas)
        lease = quotas.lease
        lost = cluster.nodes[:2]
        try:
            for node in lost:
                node.kill()
            wait_until(lambda: troubles(log) != [])
            wait_until(lambda: said(log, "stage")[-1]["to"] == "STANDBY")
            assert guard.poll() is None
        finally:
            with ThreadPoolExecutor() as pool:
                list(pool.map(BrokerNode.start, lost))
        print(f"said meanwhile: {troubles(log)}")
        second = rate_of(quotas, first)
        assert second < first
        assert lease is not None
        assert quotas.lease is not None
        assert quotas.lease.epoch > lease.epoch
        factor.write_text("1")
        wait_until(lambda: quotas() == PRIOR)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0


def test_a_guard_paused_past_its_lease_changes_nothing_when_it_goes_on(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    """It stands still with a request validated, and another one has taken over meanwhile."""
    first_log, second_log = tmp_path / "first", tmp_path / "second"
    options = by_file(factor) | FOR_REAL
    with ExitStack() as running:
        first = running.enter_context(guarding(cluster, first_log, options, program=PAUSED))
        wait_until(lambda: is_stopped(first.pid))
        assert quotas.rate(ALICE) == PRIOR[ALICE][RATE]
        taken = quotas.lease
        second = running.enter_context(guarding(cluster, second_log, options))
        wait_until(lambda: quotas.rate(ALICE) != PRIOR[ALICE][RATE])
        lease = quotas.lease
        assert taken is not None
        assert lease is not None
        assert lease.epoch > taken.epoch
        os.kill(first.pid, signal.SIGCONT)
        rates, epochs = set(), set()
        until = time.monotonic() + 15
        while time.monotonic() < until:
            found = quotas.lease
            epochs.add(found and found.epoch)
            rates.add(quotas.rate(ALICE))
        assert first.poll() is None
        assert epochs == {lease.epoch}
        assert troubles(first_log) == ["a request came too late to be sent"]
        assert said(first_log, "altered") == []
        assert [each["to"] for each in said(first_log, "stage")][-1] == "STANDBY"
        # Only the other one has lowered anything.
        written = {
            quota["value"]
            for each in said(second_log, "altered")
            for quota in each["quotas"]
            if quota["entity"] == "user alice"
        }
        assert rates <= written
        factor.write_text("1")
        wait_until(lambda: quotas() == PRIOR)
        second.send_signal(signal.SIGTERM)
        assert second.wait(120) == 0


def is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def test_what_people_change_meanwhile_is_left_to_them(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with guarding(cluster, log, by_file(factor) | FOR_REAL) as guard:
        rate_of(quotas)
        quotas.write(ALICE, RATE, 3_000_000.0)
        quotas.write(APP, RATE, None)
        quotas.write(APP, "consumer_byte_rate", 777.0)
        wait_until(lambda: said(log, "yielded") != [])
        held = quotas.rate(EVERYBODY)
        wait_until(lambda: quotas.rate(EVERYBODY) != held)
        assert (quotas.rate(ALICE), quotas.rate(APP)) == (3_000_000.0, None)
        factor.write_text("1")
        expected = {
            **PRIOR,
            ALICE: {**PRIOR[ALICE], RATE: 3_000_000.0},
            APP: {"consumer_byte_rate": 777.0},
        }
        wait_until(lambda: quotas() == expected)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
    assert quotas() == expected
    named = {name for each in said(log, "yielded") for name in each["entities"]}
    assert named == {str(ALICE), str(APP)}


def test_people_release_what_a_living_guard_holds_and_are_told_that_it_lives(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    with guarding(cluster, tmp_path / "log", by_file(factor) | FOR_REAL) as guard:
        rate_of(quotas)
        told = run(cluster, "release", "--confirm", code=3)
        assert told == ["released", "a guard lives"]
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
    wait_until(lambda: quotas() == PRIOR)


def test_a_guard_without_rights_says_which_and_begins_when_it_has_them(
    cluster: EmbeddedCluster, quotas: ClusterQuotas, factor: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    servers = cluster.bootstrap_servers_of("SASL_PLAINTEXT")
    options = by_file(factor) | {
        "guard.dry.run": "false",
        "kafka.admin.security.protocol": "SASL_PLAINTEXT",
        "kafka.admin.sasl.mechanism": "PLAIN",
        "kafka.admin.sasl.username": USER,
        "kafka.admin.sasl.password": PASSWORD,
    }
    with guarding(cluster, log, options, servers=servers) as guard:
        wait_until(lambda: any("DESCRIBE_CONFIGS" in each for each in troubles(log)))
        allow(cluster, *SEEING)
        wait_until(lambda: any("ALTER_CONFIGS" in each for each in troubles(log)))
        assert all("AUTHORIZATION_FAILED" in each for each in troubles(log))
        assert quotas() == PRIOR
        assert guard.poll() is None
        allow(cluster, ACLOperation.ALTER_CONFIGS)
        rate_of(quotas)
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(120) == 0
    wait_until(lambda: quotas() == PRIOR)


def allow(cluster: EmbeddedCluster, *operations: ACLOperation) -> None:
    """Let the user do these to the cluster."""
    topics = Topics(cluster)
    place = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
    given = [
        ACL(f"User:{USER}", "*", operation, ACLPermissionType.ALLOW, place)
        for operation in operations
    ]
    made = topics.admin.create_acls(given)
    topics.close()
    assert len(made["succeeded"]) == len(given)
