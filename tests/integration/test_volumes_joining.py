"""A broker that joins a cluster while a guard runs, and leaves it."""

from __future__ import annotations

import signal
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from brokers.real_broker import wait_until
from faults.small_volumes import KEPT_MB, SmallVolume, joining_broker
from guards.guard_processes import ALICE, PRIOR, ClusterQuotas, guarding, said
from keyrange.embedded.process import HOST, free_ports
from keyrange.guard.model.quota_entities import RATE
from keyrange.kafka.cluster import Cluster
from spark.sources import client

JOINING = 4
INTERVAL_S, VALIDITY_S = 5.0, 15.0
# A check and what a busy machine adds to it.
MARGIN_S = 2.0
OPTIONS = {
    "min.available.bytes": f"{KEPT_MB}m",
    "storage.check.interval": f"PT{INTERVAL_S:g}S",
    "throttle.factor.validity.duration": f"PT{VALIDITY_S:g}S",
    "guard.dry.run": "false",
}


class Shown:
    """What a guard shows for Prometheus."""

    def __init__(self, port: int) -> None:
        self._address = f"http://{HOST}:{port}/metrics"

    def _samples(self) -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(self._address, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        return {(each.name, each.labels.get("broker", "")): each.value for each in samples}

    @property
    def active(self) -> float:
        """How many brokers were there at the last check."""
        return self._samples()["keyrange_volumes_active_brokers", ""]

    @property
    def brokers(self) -> set[str]:
        """Those whose volumes are known."""
        return {at for name, at in self._samples() if name == "keyrange_volumes_available_bytes"}

    @property
    def factor(self) -> float:
        return self._samples()["keyrange_volumes_throttle_factor", ""]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_broker_that_joins_takes_part_within_a_check_and_leaves_again(tmp_path: Path) -> None:
    """It comes with a full disk, leaves, and comes back with room: quotas follow, and are right."""
    log, [port] = tmp_path / "log", free_ports(1)
    with joining_broker(tmp_path / "cluster") as (cluster, fourth):
        view, quotas, volume = Cluster(client(cluster)), ClusterQuotas(cluster), SmallVolume(fourth)
        quotas.become(PRIOR)

        def listed(count: int) -> float:
            """When the cluster has so many brokers."""
            wait_until(lambda: len(view.brokers(10_000)) == count)
            return time.monotonic()

        with guarding(cluster, log, OPTIONS, metrics_port=port) as guard:
            wait_until(lambda: bool(said(log, "guard")))
            shown = Shown(port)
            assert (shown.active, shown.brokers) == (3, {"1", "2", "3"})
            volume.fill(KEPT_MB - 10)
            fourth.start()
            since_s = listed(JOINING)
            wait_until(lambda: shown.active == JOINING)
            joined_s = time.monotonic() - since_s
            assert (shown.factor, shown.brokers) == (0.0, {"1", "2", "3", "4"})
            wait_until(lambda: quotas.rate(ALICE) == PRIOR[ALICE][RATE] / 2)

            fourth.stop()
            since_s = listed(JOINING - 1)
            wait_until(lambda: shown.active == JOINING - 1)
            left_s = time.monotonic() - since_s
            # It is remembered, and nobody let go yet.
            assert (shown.factor, shown.brokers) == (0.0, {"1", "2", "3", "4"})
            wait_until(lambda: shown.factor == 1.0)
            assert shown.brokers == {"1", "2", "3"}
            wait_until(lambda: quotas() == PRIOR)

            volume.free()
            fourth.start()
            wait_until(lambda: shown.active == JOINING)
            assert (shown.factor, shown.brokers) == (1.0, {"1", "2", "3", "4"})
            fourth.stop()
            wait_until(lambda: shown.active == JOINING - 1)
            assert (shown.factor, quotas()) == (1.0, PRIOR)
            guard.send_signal(signal.SIGTERM)
            assert guard.wait(120) == 0
        print(f"shown {joined_s:.1f} s after it had joined, and {left_s:.1f} s after it had left")
        assert max(joined_s, left_s) <= INTERVAL_S + MARGIN_S
        assert any("broker 4" in each["why"] for each in said(log, "factor"))
        assert quotas() == PRIOR
        view.close()
        quotas.close()
