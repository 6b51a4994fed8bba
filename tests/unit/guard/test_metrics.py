"""The guard's figures, as Prometheus' own library writes them."""

from __future__ import annotations

import pytest

from keyrange.guard.factor_sources import Figures
from keyrange.guard.model.throttle_factor import Factor
from keyrange.model.volumes import Volume
from keyrange.volumes import VolumeCollector

prometheus_client = pytest.importorskip("prometheus_client")

FULL, EMPTY = Volume(1, "/a", 100, 5), Volume(2, '/b"', 200, 150)


def figures(*volumes: Volume, time_to_full_ms: int | None = None) -> Figures:
    violated = tuple(each for each in volumes if each.ratio < 0.1)
    factor = Factor(0.0, "full", 4_000, True, violated, time_to_full_ms)
    return Figures(factor, volumes, 2, len(volumes), 7, 3)


def text(known: Figures) -> str:
    registry = prometheus_client.CollectorRegistry()
    registry.register(VolumeCollector(lambda: known, lambda: 10_000))
    lines = prometheus_client.generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_everything_has_its_figure() -> None:
    assert text(figures(FULL, EMPTY, time_to_full_ms=90_000)) == "\n".join(
        [
            "keyrange_volumes_throttle_factor 0.0",
            "keyrange_volumes_throttle_factor_seconds 6.0",
            "keyrange_volumes_fallback 1.0",
            "keyrange_volumes_active_brokers 2.0",
            "keyrange_volumes_active_log_dirs 2.0",
            "keyrange_volumes_violating_log_dirs 1.0",
            "keyrange_volumes_time_to_full_seconds 90.0",
            "keyrange_volumes_fallback_throttle_factor_applied_total 3.0",
            "keyrange_volumes_limit_violated_total 7.0",
            'keyrange_volumes_available_bytes{broker="1",log_dir="/a"} 5.0',
            'keyrange_volumes_available_bytes{broker="2",log_dir="/b\\""} 150.0',
            'keyrange_volumes_consumed_bytes{broker="1",log_dir="/a"} 95.0',
            'keyrange_volumes_consumed_bytes{broker="2",log_dir="/b\\""} 50.0',
        ]
    )


def test_a_broker_that_is_gone_is_gone_from_the_figures() -> None:
    found = text(figures(EMPTY))
    assert 'broker="1"' not in found
    assert "time_to_full" not in found
