"""The metrics of queries for OpenTelemetry, through its API alone (`pip install
'keyrange[opentelemetry]'`): where they go is the business of the SDK that the user has set up.

All instruments are observable. So a figure that ended with its query is no longer reported, and a
reader that asks seldom costs nothing in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from keyrange.core.metric_table import TABLE, Kind, Metric
from keyrange.core.query_metrics import Sample
from keyrange.errors import invalid_options


def register(samples: Callable[[], Iterable[Sample]], provider: Any) -> None:
    """Make the instruments with a MeterProvider; True stands for the global one.

    Raises INVALID_OPTIONS where the API is not installed.
    """
    try:
        from opentelemetry import metrics
    except ImportError:
        raise invalid_options(
            ["opentelemetry needs opentelemetry-api: pip install 'keyrange[opentelemetry]'"]
        ) from None
    source = metrics.get_meter_provider() if provider is True else provider
    meter = source.get_meter("keyrange")
    for metric in TABLE:
        counts = metric.kind is Kind.COUNTER
        create = meter.create_observable_counter if counts else meter.create_observable_gauge
        create(
            metric.name,
            callbacks=[_observing(metric, samples)],
            unit=metric.unit,
            description=metric.help,
        )


def _observing(metric: Metric, samples: Callable[[], Iterable[Sample]]) -> Callable[[Any], Any]:
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
