"""Numbers of bytes, for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size_text(count: int) -> str:
    """Bytes in the largest unit that leaves a whole number, with three digits."""
    value = float(count)
    unit = 0
    while abs(value) >= 1024 and unit + 1 < len(_UNITS):
        value /= 1024
        unit += 1
    digits = 0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {_UNITS[unit]}"
