"""Figures as people read them, in commands and in reports: counts, shares, bytes, spans, times.

What is not known (None) is written as nothing. Times come as documents have them, in ISO 8601.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_LETTERS: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_SPANS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_HASHES: Final = 2.0**63


def number(value: float | None) -> str:
    """A number with its thousands apart."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def counted(count: int, one: str) -> str:
    """`1 record`, `2 records`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def are(count: int, one: str) -> str:
    """`1 record is`, `2 records are`."""
    return f"{counted(count, one)} {'is' if count == 1 else 'are'}"


def percent(value: float | None) -> str:
    """A share of 1, to the tenth of a percent."""
    return "" if value is None else f"{value:.1%}"


def percent_of_hashes(bounds: Sequence[int]) -> tuple[float, float]:
    """Where a key range, as documents have it, begins and ends in the hash space."""
    lo, hi = bounds
    return 100 * lo / _HASHES, 100 * (hi + 1) / _HASHES


def size_text(count: int) -> str:
    """Bytes in the largest unit that leaves a whole number, with three digits."""
    value = float(count)
    unit = 0
    while abs(value) >= 1024 and unit + 1 < len(_BYTES):
        value /= 1024
        unit += 1
    return f"{_three_digits(value) if unit else f'{value:.0f}'} {_BYTES[unit]}"


def short(count: float) -> str:
    """A number with three digits and the letter of its size."""
    for size, letter in _LETTERS:
        if abs(count) >= size:
            return f"{_three_digits(count / size)} {letter}"
    return f"{count:.0f} "


def _three_digits(value: float) -> str:
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def span(duration_ms: int) -> str:
    """A time that has passed, in its two largest units: `2 h 10 min`."""
    left = max(duration_ms, 0)
    for at, (unit, unit_ms) in enumerate(_SPANS):
        whole, rest = divmod(left, unit_ms)
        if whole and at < 2:
            below, below_ms = _SPANS[at + 1]
            return f"{whole} {unit} {rest // below_ms} {below}"
        if whole:
            return f"{whole} {unit}"
    return "0 s"


def exact_span(duration_ms: int) -> str:
    """A time in the largest unit of which it is a whole number: `90 min`."""
    for unit, unit_ms in _SPANS:
        if duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms:,} {unit}"
    return f"{duration_ms:,} ms"


def short_span(duration_ms: int) -> str:
    """As `span`, and below ten seconds to the tenth."""
    return f"{duration_ms / 1000:.1f} s" if duration_ms < 10_000 else span(duration_ms)


def rounded_span(duration_ms: float | None) -> str:
    """A time that has passed, in its largest unit, to the tenth: `2.2 h`."""
    if duration_ms is None:
        return ""
    for unit, unit_ms in _SPANS:
        if duration_ms >= unit_ms:
            return f"{duration_ms / unit_ms:.1f} {unit}"
    return f"{round(max(duration_ms, 0))} ms"


def moment(at: str) -> str:
    """A time to the second, without its zone; what is no time, as it is."""
    return f"{day(at)} {clock(at)}" if "T" in at else at


def day(at: str) -> str:
    """The date of a time."""
    return at[:10]


def clock(at: str) -> str:
    """The time of day of a time, to the second."""
    return at[11:19]
