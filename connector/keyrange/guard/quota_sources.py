"""Where the rate is from at which throttling begins, for clients without a quota of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from keyrange.errors import KeyrangeError, error
from keyrange.guard.entry_points import open_source
from keyrange.options.volume_checks import VolumeOptions

QUOTA_SOURCES: Final = "keyrange.quota_sources"
_BYTES_MAX: Final = 100
_RATE_MAX: Final = 2**53


class QuotaSource(Protocol):
    """Asked once by each guard, at its start."""

    def base_rate(self) -> int:
        """Bytes a second and broker that no such client exceeds. Raises KeyrangeError."""


class _OwnSource(NamedTuple):
    base_rate: Callable[[], int]


def _read_rate(path: Path) -> int:
    """The number in `quota.file`."""
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX).decode(errors="replace").strip()
        rate = int(text) if text.isascii() and text.isdigit() else 0
        if not 0 < rate <= _RATE_MAX:
            raise ValueError(f"{path} holds no rate: '{text[:20]}'")
    except (OSError, ValueError) as failure:
        raise error("QUOTA_UNREADABLE", f"the rate cannot be read: {failure}") from None
    return rate


BUILT_IN: Final[Mapping[str, Callable[[VolumeOptions], QuotaSource]]] = {
    "static": lambda options: _OwnSource(lambda: options.base_rate),
    "file": lambda options: _OwnSource(lambda: _read_rate(Path(options.quota_file))),
}


def base_rate(options: VolumeOptions) -> int:
    """The rate that the source says which `quota.source` names. Raises INVALID_OPTIONS that lists
    the names, and QUOTA_UNREADABLE for whatever a source of others raises, or says that is no
    rate."""
    name = options.quota_source
    source = open_source(name, options, BUILT_IN, QUOTA_SOURCES, "quota.source")
    try:
        rate = source.base_rate()
        if isinstance(rate, bool) or not isinstance(rate, int) or not 0 < rate <= _RATE_MAX:
            raise ValueError(f"{rate!r} is no rate")
    except KeyrangeError:
        raise
    except Exception as failure:
        text = f"the source {name} did not say a rate"
        reason = f"{type(failure).__name__}: {failure}"
        raise error("QUOTA_UNREADABLE", f"{text}: {reason}") from failure
    return rate
