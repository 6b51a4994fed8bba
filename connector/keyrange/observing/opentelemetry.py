"""The metrics of queries for OpenTelemetry, through its API alone (extra `opentelemetry`): where
they go is the business of the SDK that the user has set up.

All instruments are observable. So a figure that ended with its query is no longer reported, and a
reader that asks seldom costs nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from keyrange.errors import invalid_options
from keyrange.observing.merged_listeners import MergedFigures, Samples
from keyrange.observing.model.metric_table import TABLE, Metric, MetricKind
from keyrange.text.packages import install_line

_PLACES: Final = MergedFigures()


def register(samples: Samples, provider: Any) -> None:
    """Let a MeterProvider observe, once for all that are registered; True stands for the global
    one.

    Raises INVALID_OPTIONS where the API is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError:
        raise invalid_options(
            [f"opentelemetry needs opentelemetry-api: {install_line('opentelemetry')}"]
        ) from None
    place = metrics.get_meter_provider() if provider is True else provider
    _PLACES.add(place, samples, lambda merged: _make_instruments(place, merged))


def _make_instruments(provider: Any, samples: Samples) -> None:
    """Of several instruments of one name the SDK would ask the first one only."""
    meter = provider.get_meter("keyrange")
    for metric in TABLE:
        counts = metric.kind is MetricKind.COUNTER
        create = meter.create_observable_counter if counts else meter.create_observable_gauge
        create(
            metric.name,
            callbacks=[_observing(metric, samples)],
            unit=metric.unit,
            description=metric.help,
        )


def _observing(metric: Metric, samples: Samples) -> Callable[[Any], Any]:
    from opentelemetry.metrics import Observation

    def observe(options: Any) -> list[Any]:  # noqa: ARG001  the form that the API calls
        return [
            Observation(
                sample.value,
                {
                    f"keyrange.{name}": value
                    for name, value in zip(metric.labels, sample.labels, strict=True)
                },
            )
            for sample in samples()
            if sample.metric == metric
        ]

    return observe
