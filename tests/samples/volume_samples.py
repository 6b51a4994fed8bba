"""Volumes, readings and quotas in short forms."""

from __future__ import annotations

from keyrange.guard.model.throttle_factor import Factor, ThrottleState
from keyrange.guard.model.volume_readings import LogDirs, VolumeReading
from keyrange.model.volumes import Volume

MINUTE = 60_000


def volume(usable: int, broker: int = 1, log_dir: str = "/d", total: int = 1_000) -> Volume:
    return Volume(broker, log_dir, total, usable)


def answer(*volumes: Volume, failure: str = "", broker: int | None = None) -> LogDirs:
    """What one broker says: the one of its volumes, or `broker`."""
    return LogDirs(volumes[0].broker if broker is None else broker, volumes, failure)


def reading(*volumes: Volume, silent: tuple[int, ...] = ()) -> VolumeReading:
    """Each broker with the volumes given of it; `silent` are named and answer nothing."""
    brokers = sorted({each.broker for each in volumes})
    answers = tuple(answer(*(v for v in volumes if v.broker == broker)) for broker in brokers)
    return VolumeReading(frozenset({*brokers, *silent}), answers)


def factor(value: float | None, has_recovered: bool = True) -> Factor:
    """A factor without its reasons; None: nothing is known of the volumes yet."""
    standing = ThrottleState.UNKNOWN if value is None else ThrottleState.OPEN
    value = 1.0 if value is None else value
    return Factor(value, "", 0, False, (), None, standing, has_recovered)
