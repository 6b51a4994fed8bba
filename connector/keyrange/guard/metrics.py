"""The guard's figures for Prometheus, by its own client library (extra
`prometheus`).

The names are those of the specification, in Prometheus' way of writing. A broker that is gone is
gone from the figures too, once its last reading is no longer valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from keyrange.guard.clock import monotonic_ms
from keyrange.guard.factor_sources import Figures

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PREFIX: Final = "keyrange_volumes"
_PLACE: Final = ("broker", "log_dir")


class VolumeCollector:
    """`prometheus_client.REGISTRY.register(VolumeCollector(lambda: watch.figures))`."""

    def __init__(
        self, figures: Callable[[], Figures], now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._figures = figures
        self._now_ms = now_ms

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry then asks for no figures when this is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        figures = self._figures()
        factor = figures.factor
        gauges: tuple[tuple[str, str, Any], ...] = (
            ("throttle_factor", "The throttle factor in force, 0 to 1.", factor.value),
            (
                "throttle_factor_seconds",
                "For how long the throttle factor has been what it is.",
                max(self._now_ms() - factor.since_ms, 0) / 1000,
            ),
            ("fallback", "1 while the fallback is in force.", int(factor.is_fallback)),
            ("active_brokers", "Brokers of the last check.", figures.active_brokers),
            ("active_log_dirs", "Log directories of the last check.", figures.active_log_dirs),
            ("violating_log_dirs", "Log directories at the limit.", len(factor.violated)),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"{_PREFIX}_{name}", text, value=value)
        if factor.time_to_full_ms is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}_time_to_full_seconds",
                "Until the first volume is full, by its growth over the last checks.",
                value=factor.time_to_full_ms / 1000,
            )
        yield CounterMetricFamily(
            f"{_PREFIX}_fallback_throttle_factor_applied",
            "How often the fallback came into force.",
            value=figures.fallback_applied,
        )
        yield CounterMetricFamily(
            f"{_PREFIX}_limit_violated",
            "Volumes told to be at the limit, each once a check.",
            value=figures.limit_violated,
        )
        available = GaugeMetricFamily(
            f"{_PREFIX}_available_bytes", "What is available on a volume.", labels=_PLACE
        )
        consumed = GaugeMetricFamily(
            f"{_PREFIX}_consumed_bytes", "What is used of a volume.", labels=_PLACE
        )
        for volume in figures.volumes:
            labels = (str(volume.broker), volume.log_dir)
            available.add_metric(labels, volume.usable_bytes)
            consumed.add_metric(labels, volume.used_bytes)
        yield available
        yield consumed
