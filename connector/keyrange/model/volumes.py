"""Volumes of brokers, how much has to be available on them, and when one that had less counts as
recovered."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import ceil
from typing import Final

_OTHERS_SAID: Final = 3


@dataclass(frozen=True, slots=True)
class Volume:
    """A log dir of a broker and the volume that it is on; sizes that were not told are negative."""

    broker: int
    log_dir: str
    total_bytes: int
    usable_bytes: int

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.usable_bytes

    @property
    def ratio(self) -> float:
        """The part that is available; that of a volume without any room is 0."""
        return self.usable_bytes / self.total_bytes if self.total_bytes > 0 else 0.0

    @property
    def is_told(self) -> bool:
        return self.total_bytes >= 0 and self.usable_bytes >= 0

    def __str__(self) -> str:
        return f"broker {self.broker} {self.log_dir}"


@dataclass(frozen=True, slots=True)
class Recovery:
    """When a volume that was at the limit counts as recovered.

    What is available has to reach `bytes_factor` times min.available.bytes, or `ratio_margin` more
    than min.available.ratio; but never more than half the way from the limit to an empty volume,
    which a small volume could not. It takes `readings` whole readings in a row in which all volumes
    have, and `dwell_ms` since the factor became 0.0.
    """

    bytes_factor: float = 1.5
    ratio_margin: float = 0.02
    readings: int = 2
    dwell_ms: int = 22_000


@dataclass(frozen=True, slots=True)
class VolumeName:
    """The volumes of a broker, or of all brokers (None), whose log dir matches `log_dir`, which may
    hold * and ?."""

    broker: int | None
    log_dir: str

    def matches(self, volume: Volume) -> bool:
        is_there = self.broker in (None, volume.broker)
        return is_there and fnmatchcase(volume.log_dir, self.log_dir)

    def __str__(self) -> str:
        return f"{'*' if self.broker is None else self.broker}:{self.log_dir}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What has to be available on every volume, by one of the two; of those that `others` name,
    which have a `name`, by the first of these."""

    min_available_bytes: int | None = None
    min_available_ratio: float | None = None
    name: VolumeName | None = None
    others: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        if (self.min_available_bytes is None) == (self.min_available_ratio is None):
            raise ValueError("one of min_available_bytes and min_available_ratio has to be given")

    def of(self, volume: Volume) -> Limit:
        """The limit of one volume."""
        named = (each for each in self.others if each.name and each.name.matches(volume))
        return next(named, self)

    def is_violated(self, volume: Volume) -> bool:
        own = self.of(volume)
        if own.min_available_bytes is not None:
            return volume.usable_bytes <= own.min_available_bytes
        assert own.min_available_ratio is not None
        return volume.ratio <= own.min_available_ratio

    def is_recovered(self, volume: Volume, recovery: Recovery) -> bool:
        if self.is_violated(volume):
            return False
        own = self.of(volume)
        if own.min_available_bytes is not None:
            return volume.usable_bytes >= own._bytes_of_recovery(volume, recovery)
        return volume.ratio >= own._ratio_of_recovery(recovery)

    def recovers_at(self, volume: Volume, recovery: Recovery) -> int:
        """How many bytes have to be available on a volume that was at its limit."""
        own = self.of(volume)
        if own.min_available_bytes is not None:
            return ceil(own._bytes_of_recovery(volume, recovery))
        return ceil(own._ratio_of_recovery(recovery) * volume.total_bytes)

    def _bytes_of_recovery(self, volume: Volume, recovery: Recovery) -> float:
        assert self.min_available_bytes is not None
        least = self.min_available_bytes
        return min(least * recovery.bytes_factor, (least + volume.total_bytes) / 2)

    def _ratio_of_recovery(self, recovery: Recovery) -> float:
        assert self.min_available_ratio is not None
        ratio = self.min_available_ratio
        return min(ratio + recovery.ratio_margin, (ratio + 1) / 2)

    @property
    def text(self) -> str:
        """The limit without others."""
        of = "" if self.name is None else f" of {self.name}"
        if self.min_available_bytes is not None:
            return f"min.available.bytes{of} is {self.min_available_bytes}"
        return f"min.available.ratio{of} is {self.min_available_ratio}"

    def __str__(self) -> str:
        left = len(self.others) - _OTHERS_SAID
        more = f", and {left} more" if left > 0 else ""
        shown = (self, *self.others[:_OTHERS_SAID])
        return ", ".join(each.text for each in shown) + more


@dataclass(frozen=True, slots=True)
class Policy:
    """`interval_ms` 0: nothing is checked."""

    limit: Limit
    fallback: float = 1.0
    validity_ms: int = 300_000
    interval_ms: int = 60_000
    recovery: Recovery = field(default_factory=Recovery)
