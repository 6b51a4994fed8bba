"""Looks at the volumes of a cluster, one after the other, each as a document, and the options of
the guard by which they are taken.

Rule of this file: nothing of Spark. Heavy modules are imported when a command runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Annotated, Any

import typer

from keyrange.cli.arguments import named_values
from keyrange.cli.times import iso, now
from keyrange.guard.model.throttle_factor import Factor, Throttle
from keyrange.guard.model.volume_readings import View, VolumeReading
from keyrange.guard.model.volumes import Limit, Volume
from keyrange.options.volume_checks import ADMIN_PREFIX, VolumeOptions, parse_volume_options
from keyrange.options.volumes import VOLUME_ROWS

AdminServersOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="The Kafka cluster, for its admin client.",
    ),
]


def guard_options(
    bootstrap_servers: str, given: list[str] | None, needs_limit: bool = True
) -> VolumeOptions:
    """The options of the guard. Raises INVALID_OPTIONS that names all that is wrong."""
    options = named_values(given or [])
    if bootstrap_servers:
        options["kafka.admin.bootstrap.servers"] = bootstrap_servers
    return parse_volume_options(options, needs_limit)


def looks(options: VolumeOptions, pause_ms: int) -> Iterator[dict[str, Any]]:
    """One document a check, without an end."""
    from keyrange.guard.clock import monotonic_ms
    from keyrange.guard.factor_sources import check_timeout_ms
    from keyrange.kafka.log_dirs import LogDirReader

    assert options.client is not None
    throttle = None if options.policy is None else Throttle(options.policy, monotonic_ms())
    view = View(options.validity_ms) if throttle is None else throttle.view
    limit = None if options.policy is None else options.policy.limit
    with closing(LogDirReader(options.client)) as reader:
        while True:
            reading = reader.read(check_timeout_ms(options.interval_ms))
            now_ms = monotonic_ms()
            (view if throttle is None else throttle).observe(reading, now_ms)
            factor = None if throttle is None else throttle.factor(now_ms)
            yield describe(reading, view, factor, limit, now_ms, now())
            time.sleep(pause_ms / 1000)


class VolumeLooks:
    """The next look at each call, by those of a command's options that are about volumes.

    `skipped` looks come before the first that is given: what grows shows between two.
    """

    def __init__(self, named: Mapping[str, str], pause_ms: int = 0, skipped: int = 0) -> None:
        self._named = named
        self._pause_ms = pause_ms
        self._skipped = skipped
        self._looks: Iterator[dict[str, Any]] | None = None

    def __call__(self) -> dict[str, Any]:
        """Raises what a look fails with; the call after it begins anew."""
        current, self._looks = self._looks or self._begin(), None
        document = next(current)
        self._looks = current
        return document

    def _begin(self) -> Iterator[dict[str, Any]]:
        known = {row.name.lower() for row in VOLUME_ROWS}
        given = {
            name: value
            for name, value in self._named.items()
            if name.lower() in known or name.lower().startswith(ADMIN_PREFIX)
        }
        begun = looks(parse_volume_options(given, needs_limit=False), self._pause_ms)
        for _ in range(self._skipped):
            next(begun)
        return begun


def describe(
    reading: VolumeReading,
    view: View,
    factor: Factor | None,
    limit: Limit | None,
    now_ms: int,
    wall_ms: int,
) -> dict[str, Any]:
    """`now_ms` is of the view's clock, `wall_ms` the same moment since 1970. Without a limit there
    is no factor."""
    volumes = view.volumes(now_ms)
    told = {(each.broker, each.log_dir) for each in reading.volumes}
    return {
        "at": iso(wall_ms),
        "brokers": sorted(reading.brokers),
        "failure": reading.failure,
        "limit": "" if limit is None else str(limit),
        "factor": None if factor is None else _factor(factor, now_ms, wall_ms),
        "volumes": [_volume(each, view, limit, told) for each in volumes],
    }


def _factor(factor: Factor, now_ms: int, wall_ms: int) -> dict[str, Any]:
    return {
        "value": factor.value,
        "why": factor.why,
        "since": iso(wall_ms - (now_ms - factor.since_ms)),
        "fallback": factor.is_fallback,
        "time_to_full_ms": factor.time_to_full_ms,
    }


def _volume(
    volume: Volume, view: View, limit: Limit | None, told: set[tuple[int, str]]
) -> dict[str, Any]:
    return {
        "broker": volume.broker,
        "log_dir": volume.log_dir,
        "total_bytes": volume.total_bytes,
        "used_bytes": volume.used_bytes,
        "available_bytes": volume.usable_bytes,
        "available_ratio": round(volume.ratio, 6),
        "violated": None if limit is None else limit.is_violated(volume),
        "limit_ratio": _limit_ratio(volume, limit),
        "time_to_full_ms": view.time_to_full_ms(volume),
        "told": (volume.broker, volume.log_dir) in told,
    }


def _limit_ratio(volume: Volume, limit: Limit | None) -> float | None:
    """What has to stay available, as a part of the volume."""
    if limit is None or volume.total_bytes <= 0:
        return None
    own = limit.of(volume)
    if own.min_available_ratio is not None:
        return own.min_available_ratio
    assert own.min_available_bytes is not None
    return min(own.min_available_bytes / volume.total_bytes, 1.0)
