"""Points in time and spans of it, as command lines take them and documents have them."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from keyrange.options.value_parsers import duration_ms

_PAUSE_MS_MAX: Final = 3_600_000
SinceOption = Annotated[
    str, typer.Option(metavar="TIME", help="From this time on: ISO 8601, or how long ago (2h).")
]


def iso(at_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601 in UTC."""
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return at.isoformat(timespec="milliseconds")


def ms_of(text: str) -> int:
    """ISO 8601, in UTC where it names no zone, as ms since 1970. Raises ValueError."""
    at = datetime.fromisoformat(text)
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)


def now() -> int:
    """ms since 1970."""
    return int(time.time() * 1000)


def read_since(text: str, now_ms: int) -> int:
    """What `--since` says, as `read_time` has it; 0 where it says nothing."""
    return read_time(text, "--since", now_ms) if text else 0


def read_pause(text: str, option: str, least_ms: int = 0) -> int:
    """What an option says of the time between two looks, such as 2s, in ms: at least `least_ms`, an
    hour at the most.

    Raises typer.BadParameter (exit code 2).
    """
    try:
        return min(max(duration_ms(text), least_ms), _PAUSE_MS_MAX)
    except ValueError as failure:
        raise typer.BadParameter(f"{option} {failure}") from None


def read_time(text: str, option: str, now_ms: int) -> int:
    """ISO 8601 (UTC where it names no zone) or how long ago, such as 90s or 2h; as ms since 1970.

    Raises typer.BadParameter (exit code 2).
    """
    with suppress(ValueError):
        return ms_of(text)
    try:
        if text.isascii() and text.isdigit():
            raise ValueError
        return now_ms - duration_ms(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: a time is such as 2026-05-01T12:00:00Z, or 90s, 15m or 2h ago, not {text}"
        ) from None
