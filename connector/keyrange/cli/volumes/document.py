"""What `keyrange volumes show` prints, as plain values.

Rule of this file: no cluster and no clock; times come in.
"""

from __future__ import annotations

from typing import Any

from keyrange.cli.times import iso
from keyrange.guard.model.policy import Factor, Limit
from keyrange.guard.model.volume_readings import Reading, View, Volume


def describe(
    reading: Reading,
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
    if limit.min_available_ratio is not None:
        return limit.min_available_ratio
    assert limit.min_available_bytes is not None
    return min(limit.min_available_bytes / volume.total_bytes, 1.0)
